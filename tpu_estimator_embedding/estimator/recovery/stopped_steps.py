# SPDX-License-Identifier: Apache-2.0
"""Starts a new session for a task whose step the chief stopped in order to restore."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.recovery.server_state import ServerState


class StoppedSteps(tf.compat.v1.train.SessionRunHook):
    """Raises AbortedError, from which a MonitoredSession recovers, for a step without a permit."""

    def __init__(self, state: ServerState):
        """Stores the state on the servers."""
        self._state = state

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Watches the session's runs."""
        run = session.run

        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except tf.errors.OpError as error:
                if not self._state.is_stopped_step(error):
                    raise
                raise tf.errors.AbortedError(
                    None, None, "The chief initializes or restores the variables: this step "
                    "changed nothing, and a new session waits for the chief.") from None

        session.run = watched
