# SPDX-License-Identifier: Apache-2.0
"""The session hook that feeds the engine."""

import tensorflow as tf


class EmbeddingHook(tf.compat.v1.train.SessionRunHook):
    """Starts the input and keeps one prepared step ahead of the one that computes.

    The step takes its input from the queue. When the input ends, the queue closes, and
    the session stops after the last batch; when the session stops first, the thread is
    told to stop and joined by the session's coordinator.
    """

    def __init__(self, initializer: tf.Operation | None,
                 runner: tf.compat.v1.train.QueueRunner):
        """Takes the initializer of the dataset's iterator, if any, and the queue's runner."""
        self._initializer = initializer
        self._runner = runner

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Starts the input anew, for a session that was lost and made again too."""
        if self._initializer is not None:
            session.run(self._initializer)
        self._runner.create_threads(session, coord, daemon=True, start=True)
