# SPDX-License-Identifier: Apache-2.0
"""The session hook of a worker that trains synchronously."""

import random
import threading
import time
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.synchronous.server_slots import ServerSlots
from tpu_estimator_embedding.estimator.synchronous.workers import Workers

LINE_SECONDS = 30.0  # between two lines about a worker that is waited for
_POLL_SECONDS = 0.1


class SynchronousHook(tf.compat.v1.train.SessionRunHook):
    """Starts the chief's life, and logs which workers a step waits for.

    A worker that restarts after it has sent a step does not send it again: the chief may be
    making its update.
    """

    def __init__(self, workers: Workers, slots: ServerSlots):
        """Adds the ops that the hook runs to the current graph."""
        self._workers = workers
        self._new_life = tf.compat.v1.placeholder(tf.int64, [])
        self._start_life = slots.start_life(self._new_life)
        self._time_out = slots.time_out()
        self._has_life = slots.has_life()
        step = tf.compat.v1.train.get_global_step()
        with tf.control_dependencies(None):
            self._current = slots.current(step.read_value())
            self._tags = [slots.tag(number) for number in range(workers.size)]
        self._last_step = time.monotonic()
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Starts the life of a chief; lets a worker wait for it, and for a step that it sent."""
        self._end_watch()
        if self._workers.is_chief:
            life = random.SystemRandom().getrandbits(62)
            session.run(self._start_life, {self._new_life: life})
        else:
            self._wait_for_turn(session, coord)
        self._last_step = time.monotonic()
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(session, self._stop),
                                         name="synchronous", daemon=True)
        self._watcher.start()

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Notes the time of a step."""
        self._last_step = time.monotonic()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the watch."""
        self._end_watch()

    def _wait_for_turn(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        while not coord.should_stop():
            if session.run(self._has_life):
                current, tag = session.run([self._current, self._tags[self._workers.number]])
                if tag.tolist() != current.tolist():
                    return
            time.sleep(_POLL_SECONDS)

    def _end_watch(self) -> None:
        self._stop.set()
        if self._watcher and self._watcher is not threading.current_thread():
            self._watcher.join(timeout=1)

    def _watch(self, session: Any, stop: threading.Event) -> None:
        next_line = LINE_SECONDS
        while not stop.wait(_POLL_SECONDS):
            seconds = time.monotonic() - self._last_step
            if seconds < LINE_SECONDS:
                next_line = LINE_SECONDS
            elif seconds >= next_line:
                next_line += LINE_SECONDS
                try:
                    self._say(session, seconds)
                except (tf.errors.OpError, RuntimeError):  # the session is over
                    return

    def _say(self, session: tf.compat.v1.Session, seconds: float) -> None:
        current, tags = session.run([self._current, self._tags])
        missing = [name for name, tag in zip(self._workers.names[1:], tags[1:], strict=True)
                   if tag.tolist() != current.tolist()]
        if not self._workers.is_chief:
            missing = missing or [self._workers.names[0]]
        is_over = seconds >= self._workers.timeout_seconds
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: step %d has waited %.0f s for %s%s", current[1], seconds,
            ", ".join(missing) or "this task",
            ", longer than timeout_seconds: training fails" if is_over else "")
        if is_over and missing and self._workers.is_chief:
            session.run(self._time_out)
