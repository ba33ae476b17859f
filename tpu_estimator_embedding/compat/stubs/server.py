# SPDX-License-Identifier: Apache-2.0
"""`tf.distribute.Server` for clusters whose other tasks run this package's ops on it."""

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.kernels import load


def starting(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a `Server.__init__` that loads the kernels before it calls another one.

    A server only supports ops that were loaded when it started. The error of a server that cannot
    start names its task and address.
    """
    @functools.wraps(original)
    def start(self: tf.distribute.Server, *args: Any, **kwargs: Any) -> None:
        load.native_ops()
        try:
            original(self, *args, **kwargs)
        except tf.errors.UnknownError as error:
            definition = self.server_def
            task, number = definition.job_name, definition.task_index
            [tasks] = [job.tasks for job in definition.cluster.job if job.name == task]
            raise tf.errors.UnknownError(
                None, None, f"{error.message}. The port of {task} {number} must be free, got "
                f"{tasks[number]!r}. End the process that listens there, or give the task "
                "another port, in the TF_CONFIG of all tasks.") from None

    return start


def joining(original: Callable[[tf.distribute.Server], None],
            ) -> Callable[[tf.distribute.Server], None]:
    """Returns a `Server.join` that blocks while another one does; Ctrl-C ends the process."""
    @functools.wraps(original)
    def join(self: tf.distribute.Server) -> None:
        waiting = threading.Thread(target=original, args=(self,), daemon=True)
        waiting.start()
        try:
            while waiting.is_alive():  # Python handles signals between calls of the main thread
                waiting.join(timeout=1.0)
        except KeyboardInterrupt:
            sys.exit(130)  # without a traceback: this is how a server is stopped

    return join
