# SPDX-License-Identifier: Apache-2.0
"""A training on servers: what its graph, its sessions, savers and hooks need to survive faults."""

import contextlib
import functools
import time
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.training import session_manager

from tpu_estimator_embedding.estimator.cluster.server_state import (
    ServerState,
    forget_training,
    training_of,
)
from tpu_estimator_embedding.estimator.cluster.servers import LINE_SECONDS, servers_of, watching
from tpu_estimator_embedding.estimator.cluster.tasks import TRAINERS
from tpu_estimator_embedding.ops.assertion import sentence_of
from tpu_estimator_embedding.types import RunConfig

_WAIT_SECONDS = 1.0  # between two looks at the servers
_RUNNING_OPS_SECONDS = 1.0  # for ops that had read their permit


@contextlib.contextmanager
def recovering(config: RunConfig,
               train_op: tf.Operation) -> Iterator[list[tf.compat.v1.train.SessionRunHook]]:
    """Prepares graph and sessions of a training; yields the hooks that it needs in addition.

    If the training of a chief ends with an error, such as a loss that is NaN, what the servers
    hold may be the cause: the next chief restores the last checkpoint. An invalid id in the input
    of one task ends the training of all, with a message that names the task.

    Args:
        config: the RunConfig of a trainer in a cluster with servers.
        train_op: the op of a step.

    Raises:
        tf.errors.InvalidArgumentError: for an invalid id.
    """
    servers, jobs = servers_of(config), config.cluster_spec.as_dict()
    state = ServerState(
        [server.device for server in servers], f"{config.task_type}/{config.task_id}",
        [f"{job}/{number}" for job in TRAINERS for number in range(len(jobs.get(job, ())))])
    state.check_permits(train_op)
    try:
        with sessions_of(state), watching(servers) as watchdog:
            yield [StoppedSteps(state), watchdog]
    except Exception as error:
        if config.is_chief:
            forget_training(config.model_dir)
        sentence = sentence_of(str(error))
        if sentence is None or not isinstance(error, tf.errors.InvalidArgumentError):
            raise
        message = f"{config.task_type} {config.task_id}: {sentence}"
        with tf.compat.v1.Session(config.master, config=config.session_config) as session:
            state.fail(session, message)
        raise tf.errors.InvalidArgumentError(error.node_def, error.op, message) from None


class StoppedSteps(tf.compat.v1.train.SessionRunHook):
    """Raises AbortedError, from which a MonitoredSession recovers, for a step without a permit."""

    def __init__(self, state: ServerState):
        """Stores the state on the servers."""
        self._state = state

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Watches the session's runs."""
        run = session.run

        def watched(*args: object, **kwargs: object) -> object:
            try:
                return run(*args, **kwargs)
            except tf.errors.OpError as error:
                if not self._state.is_stopped_step(error):
                    raise
                raise tf.errors.AbortedError(
                    None, None, "The chief initializes or restores the variables: this step "
                    "changed nothing, and a new session waits for the chief.") from None

        session.run = watched


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

    def __init__(self, state: ServerState, *args: object, **kwargs: object):
        """Takes what the servers remember, and the arguments of a SessionManager."""
        super().__init__(*args, **{**kwargs, "recovery_wait_secs": _WAIT_SECONDS})
        self._state = state
        self._has_started = False

    def prepare_session(self, master: str, *args: object,
                        saver: Any = None,
                        checkpoint_dir: Any = None,
                        config: tf.compat.v1.ConfigProto | None = None,
                        **kwargs: object) -> tf.compat.v1.Session:
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

    def wait_for_session(self, master: str, config: tf.compat.v1.ConfigProto | None = None,
                         max_wait_secs: float = float("inf")) -> tf.compat.v1.Session:
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

    def _keep(self, session: tf.compat.v1.Session, saver: tf.compat.v1.train.Saver,
              directory: str) -> None:
        self._state.permit_steps(session)
        checkpoints = tf.train.get_checkpoint_state(directory)
        if checkpoints:  # which a restore would make the saver remember
            saver.recover_last_checkpoints(checkpoints.all_model_checkpoint_paths)
        _log("the servers hold all variables of this training: the chief goes on from there and "
             "restores no checkpoint. To go back to one, restart the servers.")


def _log(line: str) -> None:
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", line)


def shard_savers(scaffold: tf.compat.v1.train.Scaffold,
                 hooks: Iterable[tf.compat.v1.train.SessionRunHook]) -> None:
    """Makes every Saver of a training sharded, because others collect all tables in one process.

    Savers are modified in place, because a program's hooks may use them as well.

    Args:
        scaffold: the Scaffold of the training, which may have a Saver.
        hooks: hooks of the session, some of which may save.
    """
    savers = [scaffold.saver, *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS),
              *(hook._saver for hook in hooks
                if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook))]
    for saver in savers:
        if isinstance(saver, tf.compat.v1.train.Saver) and not saver._sharded:
            _shard(saver)


def _shard(saver: tf.compat.v1.train.Saver) -> None:
    if not saver._is_built:
        saver._sharded = True
    elif saver._var_list is not None:  # else it was made from a SaverDef
        saver._sharded, saver._is_built, saver.saver_def = True, False, None
        saver.build()
