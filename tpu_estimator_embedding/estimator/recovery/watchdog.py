# SPDX-License-Identifier: Apache-2.0
"""Logs which servers do not answer while training waits for them."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tpu_estimator_embedding.estimator.recovery.servers import (
    ANSWER_SECONDS,
    LINE_SECONDS,
    Server,
    names,
    silent,
)


@contextlib.contextmanager
def watching(servers: Sequence[Server]) -> Iterator["Watchdog"]:
    """Yields the hook for a session; it watches from now on, until the context ends."""
    watchdog = Watchdog(servers, LINE_SECONDS)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()


class Watchdog(tf.compat.v1.train.SessionRunHook):
    """Logs repeatedly which servers do not answer if there is no step for 30 seconds.

    TensorFlow's session waits for its servers forever and logs nothing.
    """

    def __init__(self, servers: Sequence[Server], seconds: float):
        """Stores the servers, and the seconds without a step after which they are queried."""
        self._servers = servers
        self._seconds = seconds
        self._last_step = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Starts watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stops watching."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * ANSWER_SECONDS)  # a query may be in progress

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Records the time of a step."""
        self._last_step = time.monotonic()

    def _watch(self) -> None:
        next_line = self._last_step + self._seconds
        while not self._stopping.wait(max(0.0, next_line - time.monotonic())):
            if time.monotonic() - self._last_step >= self._seconds:
                self._say()
                next_line = time.monotonic() + self._seconds
            else:
                next_line = self._last_step + self._seconds

    def _say(self) -> None:
        missing = silent(self._servers)
        seconds = time.monotonic() - self._last_step
        if self._stopping.is_set() or seconds < self._seconds:
            return
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: no step for %.0f s: %s", seconds,
            f"{names(missing)} does not answer" if missing else "all servers answer")
