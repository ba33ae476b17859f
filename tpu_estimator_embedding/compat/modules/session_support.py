# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.session_support`: hooks that watch and stop the workers of a TPU job.

They relied on the heartbeats of TPU workers. Without TPU workers the hooks here do nothing; with
TPU workers they raise an error, because they could not watch them.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

import tensorflow as tf

# The exit code that requests a TPU worker to restart.
_RESTART = 42

class _WorkerManager(Protocol):
    """What the functions of a program use of TensorFlow's `WorkerHeartbeatManager`."""

    def shutdown(self, wait_time_in_ms: int = 60000, exit_code: int | None = None) -> None: ...


ShutdownFn = Callable[
    [tf.compat.v1.train.SessionRunContext, _WorkerManager, _WorkerManager], None]


class CoordinatorResetError(tf.errors.AbortedError):
    """Makes a MonitoredSession recover with a new session."""

    def __init__(self) -> None:
        super().__init__(None, None, "The workers were shut down; a new session is needed.")


def start_worker_watchdog(session: object, devices: Sequence[str] | None = None,
                          ping_interval: float = 60, shutdown_timeout: float = 3600) -> NoReturn:
    """Raises RuntimeError: only TPU workers can be watched."""
    raise RuntimeError(
        "start_worker_watchdog needs the heartbeats of TPU workers, which TensorFlow 2.16 "
        "removed. Remove the call, or run the TPU job with TensorFlow 2.15.")


def stop_worker_watchdog() -> None:
    """Does nothing, because no watchdog can have been started."""


class GracefulShutdownHook(tf.compat.v1.train.SessionRunHook):
    """Replaces the hook that saved the model of a TPU job before a worker stopped.

    Args:
        checkpoint_prefix: prefix of the checkpoint; not used.
        saver: the saver; not used.
        on_shutdown_hooks: functions to call after saving; not used.
    """

    def __init__(self, checkpoint_prefix: str, saver: tf.compat.v1.train.Saver | None = None,
                 on_shutdown_hooks: Sequence[ShutdownFn] | None = None) -> None:
        self._checkpoint_prefix = checkpoint_prefix
        self._saver = saver
        self._on_shutdown_hooks = list(on_shutdown_hooks or ())

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Raises RuntimeError if the session has TPU workers, which it could not watch."""
        workers = [device.name for device in session.list_devices()
                   if device.device_type == "TPU"]
        if workers:
            raise RuntimeError(
                f"GracefulShutdownHook cannot watch the TPU workers {workers}: TensorFlow 2.16 "
                f"removed their heartbeats. Remove the hook, or run the TPU job with "
                f"TensorFlow 2.15.")


class ShutdownLameWorkers:
    """Shuts down the workers that reported problems; training continues on the others."""

    def __call__(self, run_context: object, all_workers: _WorkerManager,
                 lame_workers: _WorkerManager) -> None:
        lame_workers.shutdown(exit_code=_RESTART)


class ShutdownAllWorkers:
    """Shuts down every worker."""

    def __call__(self, run_context: object, all_workers: _WorkerManager,
                 lame_workers: _WorkerManager) -> None:
        all_workers.shutdown(exit_code=_RESTART)


class ResetComputation:
    """Shuts down every worker and makes the MonitoredSession recover."""

    def __call__(self, run_context: object, all_workers: _WorkerManager,
                 lame_workers: _WorkerManager) -> NoReturn:
        all_workers.shutdown(exit_code=_RESTART)
        raise CoordinatorResetError()
