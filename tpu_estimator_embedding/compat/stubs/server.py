# SPDX-License-Identifier: Apache-2.0
"""`tf.distribute.Server` for clusters whose other tasks run this package's ops on it."""

import sys
import threading
from typing import Any

import tensorflow as tf
from tensorflow.python.training import server_lib

from tpu_estimator_embedding.kernels import load

_original_init = server_lib.Server.__init__
_original_join = server_lib.Server.join


def start(self: tf.distribute.Server, *args: Any, **kwargs: Any) -> None:
    """Loads the kernels before it starts the server, which only supports ops loaded by then."""
    load.native_ops()
    _original_init(self, *args, **kwargs)


def join(self: tf.distribute.Server) -> None:
    """Blocks forever, because no server shuts down by itself; Ctrl-C ends the process."""
    waiting = threading.Thread(target=_original_join, args=(self,), daemon=True)
    waiting.start()
    try:
        while waiting.is_alive():  # Python handles signals only between calls of the main thread
            waiting.join(timeout=1.0)
    except KeyboardInterrupt:
        sys.exit(130)  # without a traceback: this is how a server is stopped
