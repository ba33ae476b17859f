# SPDX-License-Identifier: Apache-2.0
"""Checkpoints that are written while training goes on have the bytes of those that it waits for."""

import pathlib
import signal
import sys
import threading

import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.oracle_model import Data, Model
from tests.kernel_choice import choose_kernels
from tests.spec.oracle import Optimizer
from tests.subprocesses import start
from tpu_estimator_embedding.checkpoint import step_snapshot

PROGRAM = pathlib.Path(__file__).with_name("killed_program.py")
MODEL = Model({
    "words": Optimizer("Adagrad", 0.3, {"initial_accumulator": 0.1}),
    "small": Optimizer("Adam", 0.1, {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3}),
    "all": Optimizer("Adagrad", 0.1, {"initial_accumulator": 0.1}, decay=0.1),
})
STEPS, EVERY = 24, 8


class SlowReads(tf.compat.v1.train.SessionRunHook):
    """Lets a step pass before every block of a snapshot is read; counts the steps."""

    def __init__(self, monkeypatch):
        self.steps, self.passed, self.waits = 0, threading.Condition(), True
        read_rows = step_snapshot._RowsOfSnapshot.read_rows

        def slow(tensor, start, stop):
            with self.passed:
                begun = self.steps
                self.passed.wait_for(lambda: self.steps > begun or not self.waits, timeout=0.02)
            return read_rows(tensor, start, stop)

        monkeypatch.setattr(step_snapshot._RowsOfSnapshot, "read_rows", slow)
        monkeypatch.setattr(step_snapshot, "row_blocks", lambda rows, row_bytes: [
            (row, min(rows, row + 3)) for row in range(0, rows, 3)])

    def after_run(self, run_context, run_values):
        with self.passed:
            self.steps += 1
            self.passed.notify_all()

    def end(self, session):
        with self.passed:
            self.waits = False
            self.passed.notify_all()


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()
            if ".data-" in path.name or path.name == "checkpoint"}


def train(model_dir, hooks=(), *, pipelined=False, listeners=None, steps=STEPS, **options):
    estimator = counting.new_estimator(
        model_dir, MODEL.model_fn, batch_size=4,
        spec=MODEL.spec(pipeline_execution_with_tensor_core=pipelined, **options.pop("spec", {})),
        config=counting.run_config(save_checkpoints_steps=EVERY, tf_random_seed=1), **options)
    estimator.train(Data(MODEL.optimizers, [4] * STEPS).input_fn, hooks=list(hooks),
                    max_steps=steps, saving_listeners=listeners)


@pytest.mark.slow
@pytest.mark.parametrize("kernels, pipelined, options", [
    ("native", False, {"num_hosts": 2, "spec": {"partition_strategy": "mod"}}),
    ("native", True, {}),
    ("tf", False, {"num_hosts": 2}),
])
def test_every_checkpoint_has_the_same_bytes(tmp_path, monkeypatch, kernels, pipelined, options):
    choose_kernels(kernels, monkeypatch)
    train(tmp_path / "waits", pipelined=pipelined, **options)
    ends, end = [], step_snapshot.StepSnapshot.end
    monkeypatch.setattr(step_snapshot.StepSnapshot, "end", lambda snapshot: (
        end(snapshot), ends.append(snapshot.bytes_kept)))
    train(tmp_path / "goes on", [SlowReads(monkeypatch)], pipelined=pipelined,
          async_checkpoints=True, **options)
    written = files_of(tmp_path / "goes on")
    assert written == files_of(tmp_path / "waits") and len(written) == 9
    assert (max(ends) > 0) == (kernels == "native")  # it trained on while rows were read
    assert tf.train.latest_checkpoint(str(tmp_path / "goes on")).endswith(f"ckpt-{STEPS}")
    values = tf.train.load_checkpoint(str(tmp_path / "goes on"))
    assert values.get_tensor("global_step") == STEPS


class Listener(tf.compat.v1.train.CheckpointSaverListener):
    def __init__(self, directory, stops_at=None):
        self.directory, self.stops_at, self.calls = directory, stops_at, []

    def before_save(self, session, global_step_value):
        self.calls.append(("before", int(global_step_value)))

    def after_save(self, session, global_step_value):
        newest = tf.train.latest_checkpoint(str(self.directory))
        self.calls.append(("after", int(global_step_value)))
        assert newest.endswith(f"ckpt-{global_step_value}")
        assert tf.train.load_variable(newest, "global_step") == global_step_value
        return global_step_value == self.stops_at

    def end(self, session, global_step_value):
        self.calls.append(("end", int(global_step_value)))


@pytest.mark.slow
def test_listeners_are_called_in_order_and_may_stop(tmp_path, monkeypatch):
    slow, listener = SlowReads(monkeypatch), Listener(tmp_path, stops_at=EVERY)
    train(tmp_path, [slow], async_checkpoints=True, listeners=[listener])
    *calls, (last, step) = listener.calls
    assert calls[:4] == [("before", 0), ("after", 0), ("before", 8), ("after", 8)]
    assert last == "end" and step == slow.steps < STEPS
    assert calls[4:] == [(when, step) for when in ("before", "after") if step != EVERY]


@pytest.mark.slow
def test_hooks_of_one_training_write_one_after_another(tmp_path, monkeypatch):
    hooks = [tf.compat.v1.train.CheckpointSaverHook(str(tmp_path / name), save_steps=EVERY)
             for name in ("one", "other")]
    train(tmp_path / "model", [SlowReads(monkeypatch), *hooks], async_checkpoints=True)
    # They share a Saver, which deletes the oldest ones of both.
    one, other = ({name: data for name, data in files_of(tmp_path / folder).items()
                   if f"-{STEPS}." in name} for folder in ("one", "other"))
    assert one and one == other


@pytest.mark.long
@pytest.mark.parametrize("moment", ["write", "replace"])
def test_a_kill_leaves_the_last_complete_checkpoint(tmp_path, moment):
    done = start([sys.executable, PROGRAM, tmp_path / "killed", moment],
                 TPU_ESTIMATOR_EMBEDDING_ASYNC_CHECKPOINTS="1")
    assert done.returncode == -signal.SIGKILL, done.stderr
    newest = tf.train.latest_checkpoint(str(tmp_path / "killed"))
    assert newest.endswith("ckpt-8")
    assert tf.train.load_variable(newest, "global_step") == 8
    train(tmp_path / "killed", steps=STEPS - 8, async_checkpoints=True)  # its input is 8 short
    left = [path.name for path in (tmp_path / "killed").iterdir() if "temp" in path.name]
    assert left == []


def test_only_true_and_false_are_choices(tmp_path):
    with pytest.raises(ValueError, match="`async_checkpoints` must be one of "):
        train(tmp_path, async_checkpoints="False")
