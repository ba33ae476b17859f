# SPDX-License-Identifier: Apache-2.0
"""The checkpoints, log lines and results of a Trainer."""

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.contents import CheckpointContents
from tpu_estimator_embedding.checkpoint.model_directory import (
    translate_state_errors,
    translate_write_errors,
    warn_of_unnamed_checkpoints,
)
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.types import Tensor

NOT_GIVEN: Any = object()  # the default, because None means no checkpoints, as in RunConfig
_DEFAULT_SECONDS = 600


class Saving:
    """Saves checkpoints and restores the newest one.

    Args:
        model_dir: the directory; None saves nothing.
        steps, seconds: from one checkpoint to the next; 600 seconds if both are NOT_GIVEN. Without
            either, nothing is saved.
        keep: number of checkpoints; 0 or None means all.
        keep_hours: hours after each of which one stays forever.
        log_steps: from one log line to the next.
        completed: makes a context in which the tables have every update.

    Raises:
        ValueError: both steps and seconds are given.
    """

    def __init__(self, model_dir: str | None, steps: int | None, seconds: float | None,
                 keep: int | None, keep_hours: float, log_steps: int | None,
                 completed: Callable[[], AbstractContextManager[None]]) -> None:
        if steps is NOT_GIVEN:
            steps, seconds = None, _DEFAULT_SECONDS if seconds is NOT_GIVEN else seconds
        seconds = None if seconds is NOT_GIVEN else seconds
        if steps is not None and seconds is not None:
            raise ValueError("`save_checkpoints_steps` and `save_checkpoints_secs` cannot both be "
                             f"set, got {steps} and {seconds}. Set one of them to None.")
        self._directory, self._log_steps = model_dir, log_steps
        self._completed = completed
        self._steps, self._seconds = steps, seconds
        self._keep, self._keep_hours = keep or None, keep_hours
        self._manager: tf.train.CheckpointManager | None = None
        self._status: tf.train.experimental.CheckpointLoadStatus | None = None
        self._restored: str | None = None
        self._has_trained = False
        self._saved_at = self._logged_at = time.monotonic()

    def track(self, objects: Mapping[str, object], *, training: bool) -> None:
        """Restores the newest checkpoint; later calls complete it where variables are new.

        Args:
            objects: name -> what a checkpoint has.
            training: whether these are all, with the slots. Then a warning names the first of what
                a checkpoint has beyond them; evaluation alone needs no slots.

        Raises:
            ValueError: the newest checkpoint is one of the Estimator or of another model, or
                TensorFlow cannot read the file `checkpoint`.
        """
        if self._directory is None:
            return
        if self._manager is None:
            warn_of_unnamed_checkpoints(self._directory)
            with translate_write_errors(self._directory):
                self._manager = tf.train.CheckpointManager(
                    tf.train.Checkpoint(**objects), self._directory, self._keep,
                    keep_checkpoint_every_n_hours=self._keep_hours)
            self.restore_newer()
        elif self._status is not None:
            self._check_matched()
        if training and self._status is not None:
            self._warn_of_unread()

    def restore_newer(self) -> None:
        """Restores the newest checkpoint, unless training has gone beyond it in this process."""
        if self._directory is None or self._manager is None or self._has_trained:
            return
        with translate_state_errors(self._directory):
            newest = tf.train.latest_checkpoint(self._directory)
        if newest is None or newest == self._restored:
            return
        if not _is_of_tf2(newest):
            raise ValueError(
                f"`model_dir` {self._directory!r} has checkpoints of the Estimator, such as "
                f"{newest!r}, which would eventually be deleted. Give another model_dir, and call "
                f"restore_estimator_checkpoint({newest!r}, input_fn) to continue from it.")
        self._status = self._manager.checkpoint.restore(newest).expect_partial()
        self._restored = newest
        self._check_matched()

    def _check_matched(self) -> None:
        assert self._status is not None
        try:
            self._status.assert_existing_objects_matched()
        except AssertionError as error:
            raise ValueError(
                f"{str(error).splitlines()[0].rstrip('.')}. `model_dir` must have checkpoints "
                f"of this model's Trainer, got {self._restored!r}. Give another model_dir. To go "
                "on from one of the Estimator, call restore_estimator_checkpoint.") from error

    def _warn_of_unread(self) -> None:
        assert self._status is not None
        try:
            self._status.assert_consumed()
        except AssertionError as error:
            tf.get_logger().warning(
                "%s. The model has no variables for it, and checkpoints from now on do not have "
                "it. The checkpoint is %s.", str(error).split(": ")[0], self._restored)

    def after_step(self, step: int, loss: Tensor) -> bool:
        """Saves and logs, if it is time to; returns whether it has saved."""
        self._has_trained = True
        now = time.monotonic()
        if self._log_steps and step % self._log_steps == 0:
            speed = self._log_steps / max(now - self._logged_at, 1e-9)
            tf.get_logger().info("step %d: loss %.6g, %.4g steps/s", step, float(loss), speed)
            self._logged_at = now
        is_due = self._steps and step % self._steps == 0 or (
            self._seconds and now - self._saved_at >= self._seconds)
        return bool(is_due) and self.save(step)

    def save(self, step: int) -> bool:
        """Saves a checkpoint, unless there is one of the step, or none is to be saved.

        Returns:
            Whether it has saved one.
        """
        if self._directory is None or self._manager is None or not (self._steps or self._seconds):
            return False
        self._saved_at = time.monotonic()
        if str(self._manager.latest_checkpoint).endswith(f"-{step}"):
            return False
        with self._completed(), translate_write_errors(self._directory):
            self._manager.save(checkpoint_number=step)
        return True

    def write_results(self, results: Mapping[str, float], directory: str | None) -> None:
        """Writes the numbers of an evaluation for TensorBoard."""
        if directory is None:
            return
        writer = tf.summary.create_file_writer(directory)
        with writer.as_default(step=int(results["global_step"])):
            for name, value in results.items():
                if name != "global_step" and np.ndim(value) == 0:
                    tf.summary.scalar(name, value)
        writer.close()


def _is_of_tf2(path: str) -> bool:
    return bool(tf.train.load_checkpoint(path).has_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))


class EstimatorValues:
    """The values in a checkpoint of the Estimator, by name.

    Tables have their rows in the order of ids, whatever hosts saved them.

    Args:
        contents: of the checkpoint.
    """

    def __init__(self, contents: CheckpointContents) -> None:
        self._path = contents.path
        self._tables = {table.key(slot): tensor for table in contents.tables.values()
                        for slot, tensor in table.tensors()}
        self._variables = contents.variables
        self._read: set[str] = set()

    def __call__(self, name: str) -> np.ndarray:
        """Returns a value.

        Raises:
            ValueError: there is none of that name.
        """
        self._read.add(name)
        if name in self._tables:
            return self._tables[name].read_rows(0, self._tables[name].shape[0])
        if name not in self._variables:
            raise ValueError(f"The checkpoint '{self._path}' has no variable {name!r}. It has "
                             f"{sorted((*self._tables, *self._variables))}.")
        return self._variables[name].read()

    def unread(self) -> list[str]:
        """Returns the names of values that were not read."""
        return sorted({*self._tables, *self._variables} - self._read)


def read_values(path: str) -> EstimatorValues | None:
    """Returns the values in a checkpoint of the Estimator; None if it is of TF2.

    Raises:
        FileNotFoundError: there is no such checkpoint.
    """
    contents = read_checkpoint(path)
    return EstimatorValues(contents) if contents.form == "v1" else None
