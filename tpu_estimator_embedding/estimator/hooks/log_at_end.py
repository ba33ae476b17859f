# SPDX-License-Identifier: Apache-2.0
"""Hooks that log tensors at the end, even if the input has ended."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


class LogAtEndHook(tf.compat.v1.train.SessionRunHook):
    """Runs a `LoggingTensorHook(at_end=True)` whose last line needs no further batch.

    That hook evaluates its tensors once more at the end. If the input has ended, this would
    fail and prevent the last checkpoint; the values of the last step are logged instead.
    """

    def __init__(self, hook: tf.compat.v1.train.LoggingTensorHook):
        """Takes the hook."""
        self._hook = hook
        self._last_values: Any = None

    def begin(self) -> None:
        """Begins the hook."""
        self._hook.begin()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Passes on the session."""
        self._hook.after_create_session(session, coord)

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Fetches what the hook fetches, and what it would log at the end."""
        asked = self._hook.before_run(run_context) or tf.compat.v1.train.SessionRunArgs(None)
        fetches = [] if asked.fetches is None else [asked.fetches]
        return asked._replace(fetches=(fetches, self._hook._current_tensors))

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Passes on the values."""
        asked, self._last_values = run_values.results
        self._hook.after_run(run_context, run_values._replace(
            results=asked[0] if asked else None))

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the hook."""
        try:
            self._hook.end(session)
        except tf.errors.OutOfRangeError:
            if self._last_values is not None:
                self._hook._log_tensors(self._last_values)


def logging_without_input(hooks: Iterable[Any] | None) -> list[Any]:
    """Returns the hooks; those that log at the end do so even if the input has ended."""
    return [LogAtEndHook(hook) if isinstance(hook, tf.compat.v1.train.LoggingTensorHook)
            and hook._log_at_end else hook for hook in hooks or ()]
