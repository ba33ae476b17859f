# SPDX-License-Identifier: Apache-2.0
"""Saves checkpoints while training goes on.

A thread runs the Saver, with a stand-in for the session: where the Saver runs its op that saves,
the stand-in writes a snapshot. All else, the file `checkpoint`, the graph, and which checkpoints
are deleted, is the Saver's own work.

A save that is due while another is being written waits for it. Listeners are called in the thread
that trains: before_save when the values are taken, after_save between the first steps after the
checkpoint is complete, so that they may run the session and read the checkpoint. They are all
called, in the order of the checkpoints, before a training ends.
"""

import contextlib
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow.python.client import session as session_module

from tpu_estimator_embedding.checkpoint.saver_hook import SaverHook
from tpu_estimator_embedding.checkpoint.savers import ERRORS_OF_A_FULL_DISK

if TYPE_CHECKING:
    from tpu_estimator_embedding.checkpoint.step_snapshot import SnapshotOps, StepSnapshot


class AsynchronousSaverHook(SaverHook):
    """A `tf.train.CheckpointSaverHook` that writes checkpoints while training goes on.

    The values are those of the step by which a checkpoint is named. The last checkpoint is complete
    when the session ends. A checkpoint that cannot be written is an error of a later step, or of
    the session's end. What only TensorFlow can write, such as the parts of a cluster, is written
    between steps, which a log line tells.

    Args:
        checkpoint_dir: directory of the checkpoints.
        save_secs: saves every N seconds; exactly one of `save_secs` and `save_steps` is given.
        save_steps: saves every N steps.
        saver: the saver; at most one of `saver` and `scaffold` is given.
        checkpoint_basename: prefix of the file names.
        scaffold: a Scaffold with the saver.
        listeners: `CheckpointSaverListener`s, called before and after each save.
        save_graph_def: whether to write the graph, too.

    Raises:
        ValueError: if both or neither of `save_secs` and `save_steps` are given, or both `saver`
            and `scaffold`.
    """

    _ops: "SnapshotOps"
    _writing: "_Writing | None" = None
    _has_told: bool = False

    def begin(self) -> None:
        """Prepares the graph."""
        # Only here, because it loads what writes checkpoints: `install()` does not wait for that.
        from tpu_estimator_embedding.checkpoint.step_snapshot import SnapshotOps
        super().begin()
        self._ops = SnapshotOps()

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Saves if that is due, and ends a save whose checkpoint is complete."""
        super().after_run(run_context, run_values)
        if (self._writing is not None and self._writing.is_done
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

    def wait(self) -> None:
        """Waits for the checkpoint that is being written after an error of the training."""
        if self._writing is None:
            return
        writing, self._writing = self._writing, None
        with contextlib.suppress(Exception):  # logged where it arose
            writing.result()

    def _write(self, session: tf.compat.v1.Session, step: int) -> bool:
        """Begins to save; returns whether a listener has requested a stop."""
        saver = self._get_saver()
        reason = self._ops.why_not(session.graph, saver, self._save_path)
        stops = self._finish(session)
        if reason:
            self._tell(reason)
            return super()._write(session, step) or stops
        for listener in self._listeners:
            listener.before_save(session, step)
        _Writing.wait_for_newest(session.graph)
        tf.compat.v1.logging.info("Saving checkpoints for %d into %s while training goes on.",
                                  step, self._save_path)
        self._writing = _Writing(
            self._ops.take(session, saver), session.graph, saver, self._save_path, step,
            write_meta_graph=self._save_graph_def)
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
        writing, self._writing = self._writing, None
        writing.result()
        self._summary_writer.add_session_log(tf.compat.v1.SessionLog(
            status=tf.compat.v1.SessionLog.CHECKPOINT, checkpoint_path=self._save_path),
            writing.step)
        answers = [listener.after_save(session, writing.step) for listener in self._listeners]
        return any(answers)

    def _tell(self, reason: str) -> None:
        if not self._has_told:
            self._has_told = True
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: checkpoints in %s are saved between steps, not while "
                "training goes on: %s.", self._save_path, reason)


@contextlib.contextmanager
def saved_at_the_end(hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> Iterator[None]:
    """Waits for the checkpoints that hooks are writing, also if the context raises an error."""
    try:
        yield
    finally:
        for hook in hooks:
            if isinstance(hook, AsynchronousSaverHook):
                hook.wait()


class _Writing:
    """A checkpoint that a thread is writing.

    Attributes:
        step: the global step of its values.
    """

    # The newest of each graph. A snapshot of its tables excludes another, of another hook.
    _newest: "weakref.WeakKeyDictionary[tf.Graph, threading.Thread]" = weakref.WeakKeyDictionary()

    def __init__(self, snapshot: "StepSnapshot", graph: tf.Graph, saver: tf.compat.v1.train.Saver,
                 path: str, step: int, write_meta_graph: bool):
        """Starts to write."""
        self.step = int(step)
        self._error: Exception | None = None
        self._thread = threading.Thread(
            target=self._write, args=(snapshot, graph, saver, path, write_meta_graph),
            name=f"saves {path}-{step}")
        self._newest[graph] = self._thread
        self._thread.start()

    @classmethod
    def wait_for_newest(cls, graph: tf.Graph) -> None:
        """Waits until no checkpoint of a graph is being written."""
        if graph in cls._newest:
            cls._newest[graph].join()

    @property
    def is_done(self) -> bool:
        """Whether the checkpoint is complete, or failed."""
        return not self._thread.is_alive()

    def result(self) -> None:
        """Waits until the checkpoint is complete.

        Raises:
            Exception: if it could not be written.
        """
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _write(self, snapshot: "StepSnapshot", graph: tf.Graph, saver: tf.compat.v1.train.Saver,
               path: str, write_meta_graph: bool) -> None:
        try:
            with graph.as_default():  # which a thread does not inherit
                saver.save(_WritesSnapshot(graph, snapshot), path, global_step=self.step,
                           write_meta_graph=write_meta_graph)
        except Exception as error:
            tf.compat.v1.logging.error("tpu_estimator_embedding: %s", error)
            self._error = error
        else:
            tf.compat.v1.logging.info("Saved the checkpoint of step %d. Updates copied %.0f MiB.",
                                      self.step, snapshot.bytes_kept / 2**20)
        finally:
            snapshot.end()


class _WritesSnapshot(session_module.SessionInterface):
    """What a Saver gets for a session: it writes a snapshot where the Saver runs its op."""

    def __init__(self, graph: tf.Graph, snapshot: "StepSnapshot"):
        self._graph, self._snapshot = graph, snapshot

    @property
    def graph(self) -> tf.Graph:
        """The graph of the training."""
        return self._graph

    def run(self, fetches: object, feed_dict: Any = None, options: object = None,
            run_metadata: object = None) -> str:
        """Writes the checkpoint that is fed; returns its path.

        Raises:
            tf.errors.OpError: if it cannot be written.
        """
        del fetches, options, run_metadata
        [path] = feed_dict.values()
        try:
            self._snapshot.write(path)
        except OSError as error:
            kind = (tf.errors.ResourceExhaustedError if error.errno in ERRORS_OF_A_FULL_DISK
                    else tf.errors.UnknownError)
            raise kind(None, None, f"{path}: {error.strerror or error}.") from error
        self._snapshot.end()
        return str(path)
