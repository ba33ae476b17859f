# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.session_support`: what watches and stops the workers of a TPU job.

The heartbeats it lived on belong to TPU workers. Without such workers there is nothing to
watch and every hook here is idle; with them, watching raises, because it would not happen.
"""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import tensorflow as tf

# The exit code with which a TPU worker is asked to restart.
_RESTART = 42

ShutdownFn = Callable[[tf.compat.v1.train.SessionRunContext, Any, Any], None]


class CoordinatorResetError(tf.errors.AbortedError):
    """Asks a MonitoredSession to recover with a new session."""

    def __init__(self) -> None:
        super().__init__(None, None, "The workers were shut down; a new session is needed.")


def start_worker_watchdog(session: Any, devices: Sequence[str] | None = None,
                          ping_interval: float = 60, shutdown_timeout: float = 3600) -> NoReturn:
    """Raises RuntimeError: only TPU workers can be watched."""
    raise RuntimeError(
        "start_worker_watchdog needs the heartbeats of TPU workers, which TensorFlow dropped "
        "in 2.16. Remove the call, or run the TPU job on TensorFlow 2.15.")


def stop_worker_watchdog() -> None:
    """Does nothing, because no watchdog can have been started."""


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Replaces the hook with which a TPU job saved its model before a worker stopped.

    Args:
        checkpoint_prefix: where the checkpoint would go.
        saver: what would save it.
        on_shutdown_hooks: functions that would be called after saving.
    """

    def __init__(self, checkpoint_prefix: str, saver: tf.compat.v1.train.Saver | None = None,
                 on_shutdown_hooks: Sequence[ShutdownFn] | None = None) -> None:
        self._checkpoint_prefix = checkpoint_prefix
        self._saver = saver
        self._on_shutdown_hooks = list(on_shutdown_hooks or ())

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Raises RuntimeError where the session has TPU workers, which go unwatched."""
        workers = [device.name for device in session.list_devices()
                   if device.device_type == "TPU"]
        if workers:
            raise RuntimeError(
                f"GracefulShutdownHook cannot watch the TPU workers {workers}: TensorFlow "
                f"dropped their heartbeats in 2.16. Remove the hook, or run the TPU job on "
                f"TensorFlow 2.15.")


class ShutdownLameWorkers:
    """Shuts down the workers that reported trouble; training goes on with the rest."""

    def __call__(self, run_context: Any, all_workers: Any, lame_workers: Any) -> None:
        lame_workers.shutdown(exit_code=_RESTART)


class ShutdownAllWorkers:
    """Shuts down every worker."""

    def __call__(self, run_context: Any, all_workers: Any, lame_workers: Any) -> None:
        all_workers.shutdown(exit_code=_RESTART)


class ResetComputation:
    """Shuts down every worker and makes the MonitoredSession start over."""

    def __call__(self, run_context: Any, all_workers: Any, lame_workers: Any) -> NoReturn:
        all_workers.shutdown(exit_code=_RESTART)
        raise CoordinatorResetError()
