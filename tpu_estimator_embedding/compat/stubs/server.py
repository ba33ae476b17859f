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

    A server only supports ops that were loaded when it started. Its error names the address.
    """
    @functools.wraps(original)
    def start(self: tf.distribute.Server, *args: Any, **kwargs: Any) -> None:
        load.native_ops()
        try:
            original(self, *args, **kwargs)
        except tf.errors.UnknownError as error:
            raise tf.errors.UnknownError(None, None, (
                f"{error.message}. This task is {_task(self.server_def)}. If another process uses "
                "that address, end it, or give the task another address in TF_CONFIG.")) from error

    return start


def _task(definition: Any) -> str:
    """Returns the name and address of a ServerDef's own task."""
    cluster = tf.train.ClusterSpec(definition.cluster)
    address = cluster.task_address(definition.job_name, definition.task_index)
    return f"{definition.job_name} {definition.task_index}, at {address}"


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
