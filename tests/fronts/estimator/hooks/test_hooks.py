# SPDX-License-Identifier: Apache-2.0
"""Hooks of the user and of the model behave as under any Estimator."""


import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
    run_config,
)
from tests.fronts.estimator.hang import finish
from tpu_estimator_embedding import TPUConfig

v1 = tf.compat.v1


class Recorder(v1.train.SessionRunHook):
    """Notes what it is called for, and the value of `fetch` in every run."""

    def __init__(self, fetch=None):
        self.fetch, self.values, self.calls = fetch, [], []

    def begin(self):
        self.calls.append("begin")

    def after_create_session(self, session, coord):
        self.calls.append("session")

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.fetch) if self.fetch else None

    def after_run(self, run_context, run_values):
        self.calls.append("run")
        self.values.append(run_values.results)

    def end(self, session):
        self.calls.append("end")


def model_fn_with(**hooks):
    def model_fn(features, labels, mode, params):
        loss = tf.negative(tf.reduce_sum(features["id"]), name="loss")
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=count(loss) if mode == "train" else None,
            predictions={"count": features["id"]}, **hooks)
    return model_fn


def test_hooks_of_the_model_run_in_their_mode(tmp_path):
    training, evaluation, prediction = Recorder(), Recorder(), Recorder()
    estimator = new_estimator(tmp_path, model_fn_with(
        training_hooks=[training], evaluation_hooks=[evaluation],
        prediction_hooks=[prediction]))
    estimator.train(input_of(range(4)), max_steps=100)
    assert training.calls == ["begin", "session", "run", "run", "end"]
    assert evaluation.calls == prediction.calls == []
    estimator.evaluate(input_of(range(6)))
    assert evaluation.calls == ["begin", "session", "run", "run", "run", "end"]
    assert len(list(estimator.predict(input_of([0])))) == 1
    assert prediction.calls[:3] == ["begin", "session", "run"]
    assert training.calls.count("run") == 2


def test_stop_at_step_hook_stops_training(tmp_path):
    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_of(range(10)), max_steps=100,
           hooks=[v1.train.StopAtStepHook(last_step=2)])
    assert estimator.get_variable_value("global_step") == 2
    assert counts(estimator) == counts_of(*range(4))


@pytest.mark.parametrize("stop", [{"steps": 2}, {"max_steps": 100}])
def test_logging_at_the_end_does_not_hang(tmp_path, stop):
    """It runs the loss once more with the next batch; where none is left, it has the last one's."""
    estimator, losses = new_estimator(tmp_path), []
    hook = v1.train.LoggingTensorHook({"loss": "loss:0"}, every_n_iter=2, at_end=True,
                                      formatter=lambda values: losses.append(values["loss"]))
    finish(estimator.train, input_of([0, 0, 0, 1, 0, 0]), hooks=[hook], **stop)
    assert losses == {"steps": [0.0, -6.0], "max_steps": [0.0, -6.0, -6.0]}[next(iter(stop))]
    assert counts(estimator) == {"steps": counts_of(0, 0, 0, 1),
                                 "max_steps": counts_of(0, 0, 0, 1, 0, 0)}[next(iter(stop))]


@pytest.mark.slow
def test_logging_at_the_end_of_any_mode_needs_no_further_batch(tmp_path):
    """Hooks of the model and of the call; without input nothing is logged."""
    losses = []

    def new_hook():
        return v1.train.LoggingTensorHook({"loss": "loss:0"}, at_end=True, formatter=lambda values:
                                          losses.append(values["loss"]))

    estimator = new_estimator(tmp_path, model_fn_with(
        training_hooks=[new_hook()], evaluation_hooks=[new_hook()],
        prediction_hooks=[new_hook()]))
    finish(estimator.train, input_of([0, 0, 1]), max_steps=100)
    assert losses == [0.0]
    finish(estimator.evaluate, input_of([1, 0, 0]), hooks=[new_hook()])
    assert losses[1:] == [-2.0, -2.0]
    finish(lambda: list(estimator.predict(input_of([0, 1, 1]), hooks=[new_hook()])))
    assert losses[3:] == [-1.0, -1.0]
    finish(estimator.train, input_of([]), max_steps=100)
    assert len(losses) == 5
    assert estimator.get_variable_value("global_step") == 2


def test_hook_derived_from_that_which_logs_stays_itself(tmp_path):
    class Mine(v1.train.LoggingTensorHook):
        seen = []

        def before_run(self, run_context):
            super().before_run(run_context)
            return v1.train.SessionRunArgs("loss:0")

        def after_run(self, run_context, run_values):
            self.seen.append(run_values.results)

        def end(self, session):
            super().end(session)
            self.seen.append("end")

    hook = Mine({"loss": "loss:0"}, at_end=True)
    finish(new_estimator(tmp_path).train, input_of([0, 0, 0]), steps=1, hooks=[hook])
    assert hook.seen == [0.0, "end"]


class RunLoss(v1.train.SessionRunHook):
    """Runs the session once more in every run of it."""

    def __init__(self, when):
        self.when, self.losses = when, []

    def after_create_session(self, session, coord):
        self.callable = session.make_callable("loss:0") if self.when == "callable" else None

    def before_run(self, run_context):
        if self.when == "before":
            self.losses.append(run_context.session.run("loss:0"))

    def after_run(self, run_context, run_values):
        if self.when == "after":
            self.losses.append(run_context.session.run("loss:0"))
        elif self.callable:
            self.losses.append(self.callable())


@pytest.mark.parametrize("when", ["before", "after", "callable"])
def test_hook_that_runs_the_loss_consumes_an_extra_batch(tmp_path, when):
    """As under any Estimator, a further run of the session is a further batch."""
    hook = RunLoss(when)
    estimator = new_estimator(tmp_path)
    finish(estimator.train, input_of([0, 0, 1, 1, 0, 0, 2, 2]), max_steps=100, hooks=[hook])
    assert counts(estimator) == counts_of(*[1, 1, 2, 2] if when == "before" else [0, 0, 0, 0])
    assert hook.losses == [0.0, 0.0]


def test_checkpoint_of_a_step_holds_all_updates_up_to_it(tmp_path):
    config = run_config(save_checkpoints_steps=1, keep_checkpoint_max=2)
    estimator = new_estimator(tmp_path, config=config)
    tables = {}

    class Listen(v1.train.CheckpointSaverListener):
        def after_save(self, session, step):
            reader = tf.train.load_checkpoint(str(tmp_path / f"model.ckpt-{step}"))
            tables[int(step)] = reader.get_tensor("counts")[:, 0].tolist()

    estimator.train(input_of(range(8)), max_steps=100, saving_listeners=[Listen()])
    assert tables == {step: counts_of(*range(2 * step)) for step in range(5)}
    assert estimator.latest_checkpoint() == str(tmp_path / "model.ckpt-4")
    assert sorted(path.name for path in tmp_path.glob("*.index")) == [
        "model.ckpt-3.index", "model.ckpt-4.index"]
    assert estimator.get_variable_names() == ["counts", "global_step"]
    older = estimator.evaluate(input_of(range(8)), checkpoint_path=str(
        tmp_path / "model.ckpt-3"))
    assert older["global_step"] == 3
    assert older["loss"] == -1.5


def test_short_loops_are_not_logged(tmp_path, logged):
    estimator = new_estimator(tmp_path, model_fn_with(), config=run_config(
        TPUConfig(iterations_per_loop=2)))
    estimator.train(input_of(range(12)), max_steps=6)
    assert logged("with the embedding engine") and not logged("of a loop")
