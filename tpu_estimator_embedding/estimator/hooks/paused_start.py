# SPDX-License-Identifier: Apache-2.0
"""Pauses the garbage collector while a graph is built and its session starts."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from tpu_estimator_embedding.compat.paused_collection import paused_collection


@contextlib.contextmanager
def collecting_once_started() -> Iterator["CollectOnceStarted"]:
    """Yields the hook for a session; no garbage is collected until the session is ready.

    A graph is made of many objects that stay, so it starts collections that free nothing and
    visit all objects of TensorFlow.
    """
    with contextlib.ExitStack() as pause:
        pause.enter_context(paused_collection())
        yield CollectOnceStarted(pause)


class CollectOnceStarted(tf.compat.v1.train.SessionRunHook):
    """Ends the pause when the session is ready."""

    def __init__(self, pause: contextlib.ExitStack):
        """Takes the pause."""
        self._pause = pause

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Ends the pause."""
        self._pause.close()
