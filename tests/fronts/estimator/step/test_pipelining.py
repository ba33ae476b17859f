# SPDX-License-Identifier: Apache-2.0
"""Pipelined execution: exactly one step of staleness, complete tables, no batch lost."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.counting import counts, counts_of, input_of, new_estimator, new_spec
from tests.fronts.estimator.hang import finish
from tests.fronts.estimator.oracle_model import (
    Data,
    Model,
    ModelOracle,
    assert_same_states,
    states_of,
)
from tests.fronts.estimator.replica_model import V1, V2, Values, new_replicated, v1
from tests.spec.optimizer_cases import CASES

PIPELINED = {"pipeline_execution_with_tensor_core": True}


def rising(step):
    return 0.25 + 0.25 * tf.cast(step, tf.float32)


def falling(step):
    return 1.0 - 0.125 * tf.cast(step, tf.float32)


def new_model():
    """The learning rate of one table and the multiplier of all change with the step."""
    optimizers = {name: CASES[name] for name in ("SGD", "Adagrad", "Adam", "Adam, not lazy")}
    optimizers["dynamic"] = dataclasses.replace(CASES["SGD"], learning_rate=rising)
    return Model({name.replace(", ", "_").replace(" ", "_"): optimizer
                  for name, optimizer in optimizers.items()}, falling)


def train(model_dir, model, data, *, num_replicas=1, input_mode=V1, pipelined=True, steps=100):
    values = Values()
    estimator = new_replicated(
        model_dir, model.model_fn, num_replicas, input_mode=input_mode, batch_size=8,
        spec=model.spec(pipeline_execution_with_tensor_core=pipelined))
    estimator.train(data.input_fn, steps=steps, hooks=[values])
    return states_of(values.of_step, model), estimator


@pytest.mark.slow
@pytest.mark.parametrize("num_replicas, input_mode, sizes", [
    (1, V1, [8] * 5 + [3]), (2, V1, [8] * 5), (4, V2, [8] * 4)])
def test_activations_miss_exactly_one_update(tmp_path, num_replicas, input_mode, sizes):
    """Tables and slots are those of the oracle after every step, the last one included."""
    model = new_model()
    data = Data(model.optimizers, sizes)
    actual, _ = train(tmp_path, model, data, num_replicas=num_replicas, input_mode=input_mode)
    expected = ModelOracle(model, actual[0], num_cores=num_replicas, pipelined=True).train(data)
    assert_same_states(actual, expected)
    fresh = ModelOracle(model, actual[0], num_cores=num_replicas).train(data)
    for name in model.optimizers:
        assert np.abs(fresh[-1][name, None] - actual[-1][name, None]).max() > 1e-3


@pytest.mark.slow
def test_v1_control_flow_changes_nothing(tmp_path):
    v1.disable_control_flow_v2()
    try:
        test_activations_miss_exactly_one_update(tmp_path / "two", 2, V2, [8] * 3)
        test_every_batch_is_trained_on_once(tmp_path / "empty", 0, {"max_steps": 5}, 0)
        test_every_batch_is_trained_on_once(tmp_path / "short", 7, {"max_steps": 100}, 4)
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.slow
def test_checkpoint_of_a_step_holds_all_updates_up_to_it(tmp_path):
    model = new_model()
    data = Data(model.optimizers, [8] * 4)
    estimator = new_replicated(
        tmp_path, model.model_fn, 1, spec=model.spec(**PIPELINED),
        config={"save_checkpoints_steps": 1, "keep_checkpoint_max": 9})
    estimator.train(data.input_fn, max_steps=100)
    names = {**model.names(), "kernel": "kernel"}
    saved = []
    for step in range(5):
        reader = tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{step}"))
        saved.append({key: reader.get_tensor(name) for key, name in names.items()})
    assert_same_states(saved, ModelOracle(model, saved[0], pipelined=True).train(data))


@pytest.mark.slow
def test_new_call_of_train_starts_fresh(tmp_path):
    """Its first two steps see the tables that the call before has left."""
    model = new_model()
    first, second = Data(model.optimizers, [8] * 4, seed=1), Data(model.optimizers, [8] * 3, seed=2)
    before, _ = train(tmp_path, model, first, steps=3)
    after, _ = train(tmp_path, model, second)
    assert_same_states(after[:1], before[-1:], 0, 0)
    expected = ModelOracle(model, after[0], pipelined=True).train(second, first_step=3)
    assert_same_states(after, expected)


# No batch is lost or used twice, and nothing hangs. These count ids.


def new_counting(tmp_path, **options):
    return new_estimator(tmp_path, spec=new_spec(**PIPELINED), **options)


@pytest.mark.parametrize("num_ids, stop, steps", [
    (7, {"max_steps": 100}, 4), (8, {"max_steps": 100}, 4), (8, {"max_steps": 4}, 4),
    (8, {"max_steps": 3}, 3), (8, {"steps": 1}, 1), (2, {"max_steps": 100}, 1),
    (1, {"steps": 1}, 1), (0, {"max_steps": 5}, 0)])
def test_every_batch_is_trained_on_once(tmp_path, num_ids, stop, steps):
    estimator = new_counting(tmp_path)
    finish(estimator.train, input_of(range(num_ids)), **stop)
    assert counts(estimator) == counts_of(*range(num_ids)[:2 * steps])
    assert estimator.get_variable_value("global_step") == steps


def with_static_shapes(ids):
    return lambda params: tf.data.Dataset.from_tensor_slices(
        np.asarray(ids, np.int64)).batch(2, drop_remainder=True).map(lambda ids: {"id": ids})


class RunLoss(v1.train.SessionRunHook):
    """Runs the loss in a separate run, at one of the points where a hook may."""

    def __init__(self, where, times):
        self._where, self._times, self.losses = where, times, []

    def begin(self):
        self._loss = v1.get_default_graph().get_tensor_by_name("loss:0")

    def _run(self, where, session):
        if where == self._where:
            self.losses += [session.run(self._loss) for _ in range(self._times)]

    def before_run(self, run_context):
        self._run("before_run", run_context.session)

    def after_run(self, run_context, run_values):
        self._run("after_run", run_context.session)

    def end(self, session):
        self._run("end", session)


@pytest.mark.parametrize("where", ["before_run", "after_run", "end"])
@pytest.mark.parametrize("max_steps", [2, 100])
def test_hook_that_runs_the_loss_takes_no_batch_and_does_not_hang(tmp_path, where, max_steps):
    hook, estimator = RunLoss(where, times=2), new_counting(tmp_path)
    finish(estimator.train, with_static_shapes(range(8)), max_steps=max_steps, hooks=[hook])
    steps = min(4, max_steps)
    assert counts(estimator) == counts_of(*range(2 * steps))
    assert len(hook.losses) == (2 if where == "end" else 2 * steps)


@pytest.mark.parametrize("new_input", [input_of, with_static_shapes])
@pytest.mark.parametrize("stop", [{"steps": 2}, {"max_steps": 100}])
def test_logging_at_the_end_shows_the_loss_and_does_not_hang(tmp_path, stop, new_input):
    hook = v1.train.LoggingTensorHook(["loss:0"], every_n_iter=100, at_end=True)
    estimator = new_counting(tmp_path)
    finish(estimator.train, new_input(range(8)), hooks=[hook], **stop)
    assert sum(counts(estimator)) == 2 * stop.get("steps", 4)


def test_bad_id_in_a_batch_to_come_surfaces(tmp_path):
    estimator = new_counting(tmp_path)
    with pytest.raises(tf.errors.InvalidArgumentError, match="its vocabulary_size, got 12"):
        finish(estimator.train, input_of([1, 2, 3, 4, 5, counting.VOCABULARY]), max_steps=100)
