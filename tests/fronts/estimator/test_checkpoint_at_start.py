# SPDX-License-Identifier: Apache-2.0
"""A training need not save what its initializers, or the checkpoint it restored, have given."""

import pytest
import tensorflow as tf

from tests.fronts.estimator.test_asynchronous_saving import EVERY, MODEL, files_of, train
from tpu_estimator_embedding.checkpoint.async_saver_hook import SaverHook
from tpu_estimator_embedding.estimator.hooks import training_hooks

ASYNC = pytest.mark.parametrize("async_checkpoints", [False, True])


def checkpoints_of(directory):
    """Returns step -> when its data was written."""
    return {int(path.name.split("ckpt-")[1].split(".")[0]): path.stat().st_mtime_ns
            for path in directory.glob("model.ckpt-*.index")}


class Listener(tf.compat.v1.train.CheckpointSaverListener):
    def __init__(self):
        self.calls = []

    def before_save(self, session, global_step_value):
        self.calls.append(("before", int(global_step_value)))

    def after_save(self, session, global_step_value):
        self.calls.append(("after", int(global_step_value)))


@pytest.mark.slow
@ASYNC
def test_other_checkpoints_and_calls_are_the_same(tmp_path, async_checkpoints):
    with_it, without = Listener(), Listener()
    train(tmp_path / "with", listeners=[with_it], async_checkpoints=async_checkpoints)
    train(tmp_path / "without", listeners=[without], async_checkpoints=async_checkpoints,
          checkpoint_at_start=False)
    assert checkpoints_of(tmp_path / "with").keys() == {0, 8, 16, 24}
    assert checkpoints_of(tmp_path / "without").keys() == {8, 16, 24}
    expected, found = files_of(tmp_path / "with"), files_of(tmp_path / "without")
    del expected["checkpoint"], found["checkpoint"]
    assert found and found.items() <= expected.items()
    assert without.calls == with_it.calls


@pytest.mark.slow
@ASYNC
def test_a_training_that_goes_on_does_not_write_again_what_it_restored(tmp_path,
                                                                       async_checkpoints):
    options = {"async_checkpoints": async_checkpoints, "checkpoint_at_start": False}
    train(tmp_path, steps=EVERY, **options)
    before = checkpoints_of(tmp_path)
    assert before.keys() == {EVERY}
    train(tmp_path, steps=2 * EVERY, **options)
    after = checkpoints_of(tmp_path)
    assert after.keys() == {EVERY, 2 * EVERY} and after[EVERY] == before[EVERY]
    train(tmp_path, steps=3 * EVERY, async_checkpoints=async_checkpoints)
    assert checkpoints_of(tmp_path)[2 * EVERY] > after[2 * EVERY]


class StopsAtOnce(tf.compat.v1.train.SessionRunHook):
    def before_run(self, run_context):
        raise tf.errors.OutOfRangeError(None, None, "the input has ended")


@ASYNC
def test_a_training_without_a_step_saves_at_its_end(tmp_path, async_checkpoints):
    train(tmp_path, [StopsAtOnce()], async_checkpoints=async_checkpoints,
          checkpoint_at_start=False)
    assert checkpoints_of(tmp_path).keys() == {0}
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("ckpt-0")
    assert {name for name, _ in tf.train.list_variables(str(tmp_path))} > set(MODEL.optimizers)


@pytest.mark.parametrize("step", [0, EVERY])
def test_only_known_values_are_left_out(tmp_path, step):
    """Those of a later step come from elsewhere if there is no checkpoint of them."""
    class SetsStep(tf.compat.v1.train.SessionRunHook):
        def begin(self):
            self.set = tf.compat.v1.train.get_global_step().assign(step)

        def after_create_session(self, session, coord):
            session.run(self.set)

    with tf.Graph().as_default():
        new_step = tf.compat.v1.assign_add(tf.compat.v1.train.get_or_create_global_step(), 1)
        scaffold = tf.compat.v1.train.Scaffold()
        saver = SaverHook(str(tmp_path), save_steps=EVERY, scaffold=scaffold)
        saver.saves_at_start = False
        with tf.compat.v1.train.MonitoredSession(
                tf.compat.v1.train.ChiefSessionCreator(scaffold),
                hooks=[SetsStep(), saver]) as session:
            session.run(new_step)
    assert checkpoints_of(tmp_path).keys() == ({1} if step == 0 else {EVERY, EVERY + 1})


@pytest.mark.slow
@ASYNC
def test_a_hook_of_the_program(tmp_path, async_checkpoints, logged):
    class Own(tf.compat.v1.train.CheckpointSaverHook):
        pass

    for hook_class in (tf.compat.v1.train.CheckpointSaverHook, Own):
        directory = tmp_path / hook_class.__name__
        train(directory, [hook_class(str(directory), save_steps=EVERY)],
              async_checkpoints=async_checkpoints, checkpoint_at_start=False)
    assert checkpoints_of(tmp_path / "CheckpointSaverHook").keys() == {8, 16, 24}
    assert checkpoints_of(tmp_path / "Own").keys() == {0, 8, 16, 24}
    assert logged("Own, a class of the program, saves")


def test_the_command_line_chooses_what_a_program_does_not_give(monkeypatch):
    assert training_hooks.saving_choice(None, None) == (False, True)
    assert training_hooks.saving_choice(None, None).is_tensorflows
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_CHECKPOINT_AT_START", "0")
    assert training_hooks.saving_choice(None, None) == (False, False)
    assert training_hooks.saving_choice(True, True) == (True, True)
    with pytest.raises(ValueError, match="`checkpoint_at_start` must be one of "):
        training_hooks.saving_choice(None, "False")


@pytest.mark.slow
def test_a_hook_that_is_used_again_saves_as_the_later_training_chooses(tmp_path):
    hook = tf.compat.v1.train.CheckpointSaverHook(str(tmp_path), save_steps=EVERY)
    train(tmp_path, [hook], steps=EVERY, checkpoint_at_start=False)
    before = checkpoints_of(tmp_path)
    train(tmp_path, [hook], steps=2 * EVERY)
    assert checkpoints_of(tmp_path)[EVERY] > before[EVERY]
