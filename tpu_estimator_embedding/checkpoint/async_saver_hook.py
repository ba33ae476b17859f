# SPDX-License-Identifier: Apache-2.0
"""A saver hook that can save while training continues, and skip the checkpoint at its start.

A save that is due while another is being written waits for it. Listeners are called in the thread
that trains: before_save when the values are taken, after_save between the first steps after the
checkpoint is complete, so that they may run the session and read the checkpoint. They are all
called, in the order of the checkpoints, before a training ends.

TensorFlow's hook saves when a session begins: first the values that the initializers have just
computed, and later those that were just restored from the same checkpoint. Large tables take as
long then as in any other save.
"""

from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import tensorflow as tf

if TYPE_CHECKING:
    from tpu_estimator_embedding.checkpoint.step_snapshot import TableSnapshots


class _Writing(NamedTuple):
    """A checkpoint that a thread is writing."""

    step: int
    result: "Future[None]"


class SaverHook(tf.compat.v1.train.CheckpointSaverHook):
    """A `tf.train.CheckpointSaverHook` with two more options, which `like` takes.

    Without the checkpoint of the start, listeners are called as with it, but `after_save` finds no
    new checkpoint. A training that ends without a step saves at its end what it left out.

    While training goes on, the values are those of the step by which a checkpoint is named. The
    last checkpoint is complete when the session ends. A checkpoint that cannot be written is an
    error of a later step, or of the session's end. What only TensorFlow can write, such as the
    parts of a cluster, is written between steps, which a log line tells.

    Attributes:
        saves_at_start: whether it saves when a session begins, as TensorFlow's hook does. With
            False it does not if the step is 0, or if it has a checkpoint of this step already.
        thread: writes checkpoints while training goes on, one at a time; hooks of a session share
            it. None to write between steps.
    """

    saves_at_start: bool = True
    thread: Executor | None = None
    _snapshots: "TableSnapshots"
    _is_starting: bool = False
    _left_out: int | None = None  # the step whose checkpoint was skipped
    _writing: _Writing | None = None
    _has_told: bool = False

    @classmethod
    def like(cls, hook: tf.compat.v1.train.CheckpointSaverHook, *, saves_at_start: bool,
             thread: Executor | None) -> Self:
        """Returns a hook that saves what another one would, which stays as it is."""
        own = cls.__new__(type(hook) if isinstance(hook, cls) else cls)
        own.__dict__.update(vars(hook))
        own.saves_at_start, own.thread = saves_at_start, thread
        return own

    def begin(self) -> None:
        """Prepares the graph."""
        super().begin()
        if self.thread is not None:
            # Only here, because it loads what writes checkpoints: `install()` does not wait for it.
            from tpu_estimator_embedding.checkpoint.step_snapshot import TableSnapshots
            self._snapshots = TableSnapshots()

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Writes the graph, and saves unless that is left out."""
        self._is_starting = True
        try:
            super().after_create_session(session, coord)
        finally:
            self._is_starting = False

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Saves if that is due, and ends a save whose checkpoint is complete."""
        super().after_run(run_context, run_values)
        if (self._writing is not None and self._writing.result.done()
                and self._finish(run_context.session)):
            run_context.request_stop()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Saves the last step, and returns when its checkpoint is complete."""
        step = session.run(self._global_step_tensor)
        if step != self._timer.last_triggered_step() or step == self._left_out:
            self._timer.update_last_triggered_step(step)
            self._save(session, step)
        self._finish(session)
        super().end(session)  # which calls the listeners' `end`

    def _save(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Saves, or leaves it out; returns whether a listener has requested a stop."""
        if self._is_starting and not self.saves_at_start:
            is_saved = tf.compat.v1.train.checkpoint_exists(f"{self._save_path}-{step}")
            if step == 0 or is_saved:
                self._left_out = None if is_saved else step
                return self._leave_out(session, step)
        self._left_out = None
        if self.thread is None:
            return bool(super()._save(session, step))
        return self._start_saving(session, step, self.thread)

    def _leave_out(self, session: tf.compat.v1.Session, step: int) -> bool:
        tf.compat.v1.logging.info("The checkpoint at the start of training, of step %d, is "
                                  "skipped.",
                                  step)
        for listener in self._listeners:
            listener.before_save(session, step)
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)

    def _start_saving(self, session: tf.compat.v1.Session, step: int, thread: Executor) -> bool:
        """Begins to save; returns whether a listener has requested a stop."""
        from tpu_estimator_embedding.checkpoint import background_save
        saver = self._get_saver()
        reason = background_save.why_not_while_training(saver, session.graph, self._save_path)
        stops = self._finish(session)
        if reason:
            self._tell(reason)
            return bool(super()._save(session, step)) or stops
        for listener in self._listeners:
            listener.before_save(session, step)
        tf.compat.v1.logging.info("Saving checkpoints for %d into %s while training continues.",
                                  step, self._save_path)
        self._writing = _Writing(step, background_save.start_saving(
            saver, self._snapshots, session, self._save_path, int(step), thread,
            write_meta_graph=self._save_graph_def))
        return stops

    def _finish(self, session: tf.compat.v1.Session) -> bool:
        """Waits for the checkpoint that is being written, and calls the listeners.

        Returns:
            Whether one of them requests a stop.

        Raises:
            Exception: if the checkpoint could not be written.
        """
        if self._writing is None:
            return False
        (step, result), self._writing = self._writing, None
        result.result()
        self._summary_writer.add_session_log(tf.compat.v1.SessionLog(
            status=tf.compat.v1.SessionLog.CHECKPOINT, checkpoint_path=self._save_path), step)
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)

    def _tell(self, reason: str) -> None:
        if not self._has_told:
            self._has_told = True
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: checkpoints in %s are saved between steps, not while "
                "training continues: %s.", self._save_path, reason)
