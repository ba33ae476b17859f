# SPDX-License-Identifier: Apache-2.0
"""How chief and workers of a cluster start a session, at first and after a fault."""

import contextlib
import functools
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.training import session_manager

from tpu_estimator_embedding.estimator.recovery.server_state import ServerState, training_of
from tpu_estimator_embedding.estimator.recovery.servers import LINE_SECONDS

_WAIT_SECONDS = 1.0  # between two looks at the servers
_RUNNING_OPS_SECONDS = 1.0  # for ops that had read their permit


@contextlib.contextmanager
def sessions_of(state: ServerState) -> Iterator[None]:
    """Makes the sessions that start within the context those of a cluster."""
    original = session_manager.SessionManager
    session_manager.SessionManager = functools.partial(ClusterSessionManager, state)
    try:
        yield
    finally:
        session_manager.SessionManager = original


class ClusterSessionManager(session_manager.SessionManager):
    """Keeps the variables on the servers where it can, and restores only while nobody trains."""

    def __init__(self, state: ServerState, *args: Any, **kwargs: Any):
        """Takes what the servers remember, and the arguments of a SessionManager."""
        super().__init__(*args, **{**kwargs, "recovery_wait_secs": _WAIT_SECONDS})
        self._state = state
        self._has_started = False

    def prepare_session(self, master, *args, saver=None, checkpoint_dir=None, config=None,
                        **kwargs):
        """Starts the chief's session; initializes or restores if the servers lost a variable.

        Raises:
            tf.errors.InvalidArgumentError: if another task has ended the training.
        """
        session = tf.compat.v1.Session(master, graph=self._graph, config=config)
        self._check_failure(session)
        if self._is_kept(session, checkpoint_dir):
            self._keep(session, saver, checkpoint_dir)
            self._has_started = True
            return session
        if self._state.stop_steps(session):
            _log("the chief stops the steps of all tasks: it initializes or restores variables")
            time.sleep(_RUNNING_OPS_SECONDS)
        session.close()
        session = super().prepare_session(master, *args, saver=saver, config=config,
                                          checkpoint_dir=checkpoint_dir, **kwargs)
        self._state.start_training(session, checkpoint_dir)
        self._has_started = True
        return session

    def wait_for_session(self, master, config=None, max_wait_secs=float("inf")):
        """Starts a worker's session once the chief has initialized or restored all variables.

        Raises:
            tf.errors.DeadlineExceededError: after `max_wait_secs`.
            tf.errors.InvalidArgumentError: if another task has ended the training.
        """
        start, next_line = time.monotonic(), 0.0
        while True:
            session = tf.compat.v1.Session(master, graph=self._graph, config=config)
            self._check_failure(session)
            if self._joins(session):
                self._has_started = True
                return session
            session.close()
            now = time.monotonic()
            if now - start > (max_wait_secs or float("inf")):
                raise tf.errors.DeadlineExceededError(
                    None, None, f"Session was not ready after waiting {max_wait_secs} secs. The "
                    "chief has not initialized or restored the variables: look at its log.")
            if now >= next_line:
                _log(f"waiting for the chief to initialize or restore the variables, for "
                     f"{now - start:.0f} s so far")
                next_line = now + LINE_SECONDS
            time.sleep(_WAIT_SECONDS)

    def _check_failure(self, session: tf.compat.v1.Session) -> None:
        failure = self._state.failure(session)
        if failure and self._has_started:  # else it ended a training before this one
            raise tf.errors.InvalidArgumentError(None, None, failure)

    def _joins(self, session: tf.compat.v1.Session) -> bool:
        training = self._state.training(session)
        if training is None or not self._is_ready(session):
            return False
        self._state.permit_steps(session)
        return self._state.training(session) == training  # not stopped before it had the permit

    def _is_ready(self, session: tf.compat.v1.Session) -> bool:
        """Whether all variables are initialized; initializes those of this process."""
        return bool(self._try_run_local_init_op(session)[0] and self._model_ready(session)[0])

    def _is_kept(self, session: tf.compat.v1.Session, directory: str) -> bool:
        training = self._state.training(session)
        return (training is not None and training == training_of(directory)
                and not self._state.has_unfinished_update(session) and self._is_ready(session))

    def _keep(self, session: tf.compat.v1.Session, saver: Any, directory: str) -> None:
        self._state.permit_steps(session)
        checkpoints = tf.train.get_checkpoint_state(directory)
        if checkpoints:  # which a restore would make the saver remember
            saver.recover_last_checkpoints(checkpoints.all_model_checkpoint_paths)
        _log("the servers hold all variables of this training: the chief goes on from there and "
             "restores no checkpoint. To go back to one, restart the servers.")


def _log(line: str) -> None:
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", line)
