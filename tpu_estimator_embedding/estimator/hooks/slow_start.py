# SPDX-License-Identifier: Apache-2.0
"""What is said while tables take long to be initialized or restored."""

import contextlib
import threading
import time
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

PATIENCE_SECONDS = 5.0


@contextlib.contextmanager
def telling_of_slow_start(plan: EmbeddingPlan) -> Iterator["SlowStartHook"]:
    """Passes the hook for a session; one that fails to start leaves nothing running."""
    hook = SlowStartHook(plan)
    try:
        yield hook
    finally:
        hook.stop()


class SlowStartHook(tf.compat.v1.train.SessionRunHook):
    """Logs what a session that takes long to start is busy with, and when it is ready."""

    def __init__(self, plan: EmbeddingPlan):
        """Takes the tables."""
        self._what = _describe(plan)
        self._timer = threading.Timer(PATIENCE_SECONDS, self._say)
        self._timer.daemon = True
        self._start = 0.0

    def begin(self) -> None:
        """Starts to count the seconds."""
        self._start = time.monotonic()
        self._timer.start()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Says how long it took, if that was long."""
        self.stop()
        seconds = time.monotonic() - self._start
        if seconds > PATIENCE_SECONDS:
            _log(f"{self._what} are ready after {seconds:.0f} s")

    def stop(self) -> None:
        """Says nothing any more."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()

    def _say(self) -> None:
        _log(f"initializing or restoring {self._what} ...")


def _describe(plan: EmbeddingPlan) -> str:
    """Returns the tables and slots in words.

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
