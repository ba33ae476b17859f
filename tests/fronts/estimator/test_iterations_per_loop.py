# SPDX-License-Identifier: Apache-2.0
"""A session run is a loop of steps: what hooks see, and what happens in every step."""

import datetime
import os
import signal

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    new_spec,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tests.fronts.estimator.hooks.test_hooks import Recorder
from tests.fronts.estimator.test_host_functions import events, metrics, model_fn_of
from tpu_estimator_embedding import tf_estimator
from tpu_estimator_embedding.compat import upstream

v1 = tf.compat.v1
TPUConfig, RunConfig = upstream.tpu_config.TPUConfig, upstream.tpu_config.RunConfig


class Steps(v1.train.SessionRunHook):
    """Notes the global step before and after every run."""

    def begin(self):
        self.before, self.seen = [], []
        self._step = v1.train.get_global_step()

    def before_run(self, run_context):
        self.before.append(int(run_context.session.run(self._step)))

    def after_run(self, run_context, run_values):
        self.seen.append(int(run_context.session.run(self._step)))


class Saved(v1.train.CheckpointSaverListener):
    def begin(self):
        self.seen = []

    def after_save(self, session, global_step_value):
        self.seen.append(int(global_step_value))


def looping(iterations, model_dir, *arguments, tpu_config=None, pipelined=False, **options):
    """Returns the counting estimator with loops of so many steps."""
    config = run_config(TPUConfig(iterations_per_loop=iterations, **(tpu_config or {})), **options)
    return new_estimator(model_dir, *arguments, config=config, spec=new_spec(
        pipeline_execution_with_tensor_core=pipelined))


def make_spec(features):
    v1.summary.scalar("total", tf.reduce_sum(features["id"]))
    return {}


def model_fn_noting(seen, note=lambda step: None):
    """Returns a model_fn whose host call appends the step to `seen`, and calls `note`."""
    def call(step):
        seen.append(int(step[0]))
        note(int(step[0]))
        return step

    def model_fn(features, labels, mode, params):
        step = tf.reshape(v1.train.get_global_step(), [1])
        loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=count(loss) if mode == "train" else None, host_call=(
                lambda step: tf.numpy_function(call, [step], tf.int64), [step]))
    return model_fn


@pytest.mark.parametrize("iterations, seen, saved, written", [
    (1, [1, 2, 3, 4, 5], [0, 2, 4, 5], {1, 4}), (2, [2, 4, 5], [0, 2, 4, 5], {2, 5}),
    (np.int64(3), [3, 5], [0, 3, 5], {3}), (1000, [5], [0, 5], {5}), ("30s", [5], [0, 5], {5})])
def test_hooks_see_the_last_step_of_each_loop(tmp_path, iterations, seen, saved, written):
    logged, steps, listener = [], Steps(), Saved()
    estimator = looping(iterations, tmp_path, model_fn_of(make_spec),
                        save_checkpoints_steps=2, save_summary_steps=3)
    log = v1.train.LoggingTensorHook({"step": "global_step"}, every_n_iter=2,
                                     formatter=lambda values: logged.append(values["step"]))
    estimator.train(input_of([0] * 24), max_steps=5, hooks=[steps, log],
                    saving_listeners=[listener])
    assert steps.seen == seen
    assert steps.before == [0, *seen[:-1]]
    assert listener.seen == saved
    assert len(logged) == (len(seen) + 1) // 2
    assert {step for tag, step in events(tmp_path) if tag == "total"} == written
    assert counts(estimator) == counts_of(*[0] * 10)


@pytest.mark.slow
@pytest.mark.parametrize("iterations", [1, 2, 5, 1000])
def test_fetches_and_numbers_of_steps_are_exact(tmp_path, iterations):
    loss, steps = Recorder("loss:0"), Steps()
    estimator = looping(iterations, tmp_path)
    estimator.train(input_of([0] * 24), steps=3, hooks=[loss])
    estimator.train(input_of([0] * 24), steps=4, hooks=[loss, steps])
    estimator.train(input_of([0] * 24), max_steps=8, hooks=[loss])
    last = {1: range(8), 2: [1, 2, 4, 6, 7], 5: [2, 6, 7], 1000: [2, 6, 7]}[iterations]
    assert loss.values == [-4.0 * step for step in last]  # of the step before the one it counts
    assert steps.seen[-1] == 7
    assert counts(estimator) == counts_of(*[0] * 16)


def test_loops_have_two_steps_by_default(tmp_path):
    steps = Steps()
    config = RunConfig(log_step_count_steps=None, save_summary_steps=None)
    new_estimator(tmp_path, config=config).train(input_of(range(12)), max_steps=5, hooks=[steps])
    assert steps.seen == [2, 4, 5]


@pytest.mark.slow
def test_time_ends_a_loop(tmp_path):
    """Its last step starts when the time is over."""
    steps = Steps()
    estimator = looping("1s", tmp_path)
    finish(estimator.train, lambda params: input_of(range(8))(params).repeat(), max_steps=10 ** 7,
           hooks=[steps, StopAfterRuns(2)])
    assert len(steps.seen) == 2
    assert 1 < steps.seen[0] < steps.seen[1]


class StopAfterRuns(v1.train.SessionRunHook):
    def __init__(self, runs):
        self._runs = runs

    def after_run(self, run_context, run_values):
        self._runs -= 1
        if not self._runs:
            run_context.request_stop()


@pytest.mark.parametrize("every_n_steps, called", [(1, [*range(7)]), (2, [0, 2, 4, 6])])
@pytest.mark.parametrize("iterations", [2, 3, 100])
def test_host_calls_run_in_every_step_that_is_due(tmp_path, iterations, every_n_steps, called):
    seen = []
    estimator = looping(iterations, tmp_path, model_fn_noting(seen), tpu_config={
        "experimental_host_call_every_n_steps": every_n_steps})
    estimator.train(input_of([0] * 12), steps=3)
    estimator.train(input_of([0] * 12), steps=4)
    assert seen == called


@pytest.mark.parametrize("steps, losses, mean", [
    (3, [-6], 16 / 6), (1, [-4], 2.0), (None, [-4, -6, -6, 0], 2.0)])
def test_evaluation_of_so_many_steps_is_one_loop(tmp_path, steps, losses, mean):
    """Metrics and host calls have all of its steps, hooks the last."""
    seen, loss = [], Recorder("loss:0")

    def model_fn(features, labels, mode, params):
        spec = model_fn_noting(seen)(features, labels, mode, params)
        return TPUEstimatorSpec(mode, loss=tf.identity(spec.loss, "loss"), train_op=spec.train_op,
                                host_call=spec.host_call, eval_metrics=(metrics, [features["id"]]))

    estimator = looping(7, tmp_path, model_fn)
    estimator.train(input_of([0, 0, 1, 1, 1, 2, 2, 2, 2, 2]), max_steps=5)
    seen.clear()
    result = estimator.evaluate(input_of([0, 0, 1, 1, 1, 1, 9, 9]), steps=steps, hooks=[loss])
    assert loss.values == losses
    assert result["mean"] == pytest.approx(mean)
    assert len(seen) == (steps or 4)


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("num_ids, steps, seen", [(7, 4, [3]), (12, 6, [3, 6]), (2, 1, []),
                                                  (0, 0, [])])
def test_input_that_ends_within_a_loop_ends_training(tmp_path, pipelined, num_ids, steps, seen):
    estimator, hook = looping(3, tmp_path, pipelined=pipelined), Steps()
    finish(estimator.train, input_of(range(num_ids)), max_steps=100, hooks=[hook])
    assert hook.seen == seen
    assert estimator.latest_checkpoint() == str(tmp_path / f"model.ckpt-{steps}")
    assert counts(estimator) == counts_of(*range(num_ids))


def broken_at(step):
    """Returns an input_fn that raises an exception in the place of a step's batch."""
    def fail(id):
        if id == 2 * step:
            raise ValueError("This one is bad.")
        return id

    return input_of(range(12), transform=lambda id: tf.ensure_shape(
        tf.numpy_function(fail, [id], tf.int64), []))


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("iterations", [1, 2, 3, 100])
def test_exception_in_the_input_comes_at_its_step(tmp_path, iterations, pipelined):
    seen = []
    estimator = looping(iterations, tmp_path, model_fn_noting(seen), pipelined=pipelined)
    with pytest.raises(tf.errors.OpError, match="^ValueError: This one is bad"):
        finish(estimator.train, broken_at(4), max_steps=100)
    assert seen == [0, 1, 2, 3]
    seen.clear()
    finish(estimator.train, broken_at(4), max_steps=4)
    assert seen == [0, 1, 2, 3]


def test_exceptions_of_a_step_within_a_loop_are_those_of_a_run(tmp_path):
    def model_fn(features, labels, mode, params):
        step = v1.train.get_global_step()
        check = tf.debugging.assert_less(step, tf.constant(2, tf.int64), message="too far",
                                         name="check_of_mine")
        with tf.control_dependencies([check]):
            loss = -tf.reduce_sum(features["id"])
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    messages = []
    for iterations in (1, 100):
        estimator = looping(iterations, tmp_path / str(iterations), model_fn)
        with pytest.raises(tf.errors.InvalidArgumentError, match="too far") as raised:
            finish(estimator.train, input_of(range(12)), max_steps=100)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_op_of_the_model_that_runs_out_of_range_within_a_loop_is_an_error(tmp_path):
    def model_fn(features, labels, mode, params):
        rows = v1.data.make_one_shot_iterator(tf.data.Dataset.range(2)).get_next()
        loss = -tf.reduce_sum(features["id"]) + 0 * tf.cast(rows, tf.float32)
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    with pytest.raises(tf.errors.OutOfRangeError, match="is not the end of the input"):
        finish(looping(100, tmp_path, model_fn).train, input_of(range(12)), max_steps=100)


def test_signal_ends_a_loop_after_the_next_step(tmp_path):
    def interrupt(step):
        if step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    seen = []
    estimator = looping(1000, tmp_path, model_fn_noting(seen, interrupt))
    with pytest.raises(KeyboardInterrupt):
        estimator.train(lambda params: input_of(range(8))(params).repeat(), max_steps=10 ** 6)
    assert seen[:3] == [0, 1, 2]
    assert 3 <= len(seen) <= 4
    assert estimator.latest_checkpoint() == str(tmp_path / f"model.ckpt-{len(seen)}")


def test_request_of_another_thread_ends_a_loop(tmp_path):
    class Stop(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            self.coord = coord

    def stop_at(step):
        if step == 3:
            stop.coord.request_stop()

    seen, stop = [], Stop()
    estimator = looping(10 ** 6, tmp_path, model_fn_noting(seen, stop_at))
    finish(estimator.train, lambda params: input_of(range(8))(params).repeat(),
           max_steps=10 ** 6, hooks=[stop])
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-4")
    assert seen == [0, 1, 2, 3]


def test_loss_that_is_not_a_number_at_the_end_of_a_loop_stops_training(tmp_path):
    def model_fn(features, labels, mode, params):
        loss = -tf.reduce_sum(features["id"]) + tf.where(
            v1.train.get_global_step() >= 2, float("nan"), 0.0)
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    with pytest.raises(v1.train.NanLossDuringTrainingError):
        finish(looping(4, tmp_path, model_fn).train, input_of(range(12)), max_steps=6)


def test_random_numbers_of_a_model_do_not_depend_on_the_length_of_loops(tmp_path):
    def drawn(iterations):
        seen = []

        def model_fn(features, labels, mode, params):
            values = tf.random.uniform([1], seed=3)
            loss = -tf.reduce_sum(features["id"])
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss), host_call=(
                lambda values: tf.numpy_function(
                    lambda drawn: seen.append(float(drawn[0])) or drawn, [values], tf.float32),
                [values]))

        looping(iterations, tmp_path / str(iterations), model_fn, tf_random_seed=1).train(
            input_of(range(12)), max_steps=6)
        return seen

    expected = drawn(1)
    assert len(set(expected)) == 6
    assert drawn(4) == expected


def test_variable_limits_the_steps_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN", "2")
    steps, evaluated = Steps(), Recorder("loss:0")
    estimator = looping(100, tmp_path)
    estimator.train(input_of(range(12)), max_steps=5, hooks=[steps])
    assert steps.seen == [2, 4, 5]
    estimator.evaluate(input_of(range(12)), steps=5, hooks=[evaluated])
    assert len(evaluated.values) == 3
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN", "0")
    with pytest.raises(ValueError, match="`TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN` must be a "):
        estimator.train(input_of(range(12)), steps=1)


@pytest.mark.parametrize("use_tpu", [True, False])
def test_wrong_variable_is_refused_by_the_call_that_reads_it(tmp_path, monkeypatch, use_tpu):
    """Whatever the variable was when the estimator was made."""
    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", initializer=1.0)
        product = weight * tf.cast(features["id"], tf.float32)
        loss = tf.reduce_sum(product)
        return TPUEstimatorSpec(mode, loss=loss, predictions={"product": product},
                                train_op=count(loss) if mode == "train" else None)

    estimator = new_estimator(tmp_path, model_fn, use_tpu=use_tpu)
    estimator.train(input_of(range(12)), max_steps=1)
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN", "0")
    calls = {"train": lambda: estimator.train(input_of(range(12)), steps=1),
             "evaluate": lambda: estimator.evaluate(input_of(range(12)), steps=1),
             "evaluate all": lambda: estimator.evaluate(input_of(range(12))),
             "predict": lambda: list(estimator.predict(input_of(range(12)))),
             "export": lambda: estimator.export_saved_model(str(tmp_path / "export"), receiver)}
    refused = []
    for name, call in calls.items():
        try:
            call()
        except ValueError as error:
            assert "`TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN` must be a positive" in str(error)
            refused.append(name)
    assert refused == (list(calls) if use_tpu else ["train"])


def receiver():
    ids = v1.placeholder(tf.int64, [None])
    return tf_estimator.export.ServingInputReceiver({"id": ids}, ids)


def test_evaluation_in_a_training_reads_the_variable_each_time(tmp_path, monkeypatch):
    evaluated, estimator = [], looping(2, tmp_path)

    class Counted(v1.train.SessionRunHook):
        def begin(self):
            evaluated.append(0)

        def after_run(self, run_context, run_values):
            evaluated[-1] += 1
            monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN", "2")

    estimator.train(input_of(range(12)), max_steps=4, hooks=[
        tf_estimator.experimental.InMemoryEvaluatorHook(
            estimator, input_of(range(12)), steps=4, hooks=[Counted()], every_n_iter=2)])
    assert evaluated == [1, 2, 2]


def test_loops_of_other_inputs_are_loops(tmp_path):
    """Tensors are evaluated again in each run, so that a thread feeds them step by step."""
    ids, steps = iter(range(100)), Steps()

    def input_fn(params):
        id = tf.numpy_function(lambda: np.array([next(ids) % 12]), [], tf.int64)
        return {"id": tf.ensure_shape(id, [1])}

    estimator = looping(3, tmp_path)
    finish(estimator.train, input_fn, max_steps=8, hooks=[steps])
    assert steps.seen == [3, 6, 8]
    assert counts(estimator) == counts_of(*range(8))


def test_without_the_engine_a_run_is_a_step(tmp_path):
    steps = Steps()
    config = run_config(TPUConfig(iterations_per_loop=100))

    def model_fn(features, labels, mode, params):
        loss = v1.get_variable("w", [], initializer=v1.ones_initializer())
        return TPUEstimatorSpec(mode, loss=loss, train_op=count(loss))

    new_estimator(tmp_path, model_fn, config=config, use_tpu=False,
                  embedding_config_spec=None).train(input_of(range(6)), max_steps=3, hooks=[steps])
    assert steps.seen == [1, 2, 3]


@pytest.mark.parametrize("iterations", [
    0, -1, 1.5, "0s", "5d", "s", "", None, True, datetime.timedelta(seconds=30)])
def test_other_lengths_of_a_loop_are_refused(iterations):
    with pytest.raises(ValueError, match="Invalid TPUConfig `iterations_per_loop` value"):
        TPUConfig(iterations_per_loop=iterations)
