# SPDX-License-Identifier: Apache-2.0
"""The start of a session: log lines while it is slow, and no garbage collection."""

import contextlib
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding.compat.pause_gc import pause_gc
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

PATIENCE_SECONDS = 5.0


@contextlib.contextmanager
def log_slow_start(plan: EmbeddingPlan) -> Iterator["SlowStartHook"]:
    """Yields the hook for a session; if the session fails to start, nothing keeps running."""
    hook = SlowStartHook(plan)
    try:
        yield hook
    finally:
        hook.stop()


class SlowStartHook(tf.compat.v1.train.SessionRunHook):
    """Logs what a slow session start is doing, and when it is ready."""

    def __init__(self, plan: EmbeddingPlan):
        """Takes the tables."""
        self._what = _describe(plan)
        self._has_tables = bool(plan.tables)
        self._timer = threading.Timer(PATIENCE_SECONDS, self._say)
        self._timer.daemon = True
        self._start = 0.0

    def begin(self) -> None:
        """Starts the timer."""
        self._start = time.monotonic()
        if self._has_tables:
            self._timer.start()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Logs the time of a slow start; sessions that follow a fault are not starts."""
        self.stop()
        seconds = time.monotonic() - self._start
        self._start = float("inf")
        if seconds > PATIENCE_SECONDS and self._has_tables:
            _log(f"{self._what} are ready after {seconds:.0f} s")

    def stop(self) -> None:
        """Stops logging."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()

    def _say(self) -> None:
        _log(f"initializing or restoring {self._what} ...")


def _describe(plan: EmbeddingPlan) -> str:
    """Returns a description of the tables and slots.

    >>> _describe(EmbeddingPlan.build([], []))
    '0 tables and their slots (0.0 GB)'
    """
    values = sum(table.vocabulary_size * table.dimension * (1 + len(table.slot_initial_values))
                 for table in plan.tables)
    number = len(plan.tables)
    tables = "1 table and its" if number == 1 else f"{number} tables and their"
    return f"{tables} slots ({4 * values / 1e9:.1f} GB)"


def _log(line: str) -> None:
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", line)


@contextlib.contextmanager
def pause_gc_until_started() -> Iterator["ResumeGcHook"]:
    """Yields the hook for a session; no garbage is collected until the session is ready.

    A graph is made of many objects that stay, so it starts collections that free nothing and
    visit all objects of TensorFlow.
    """
    with contextlib.ExitStack() as pause:
        pause.enter_context(pause_gc())
        yield ResumeGcHook(pause)


class ResumeGcHook(tf.compat.v1.train.SessionRunHook):
    """Ends the pause when the session is ready."""

    def __init__(self, pause: contextlib.ExitStack):
        """Takes the pause."""
        self._pause = pause

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Ends the pause."""
        self._pause.close()
