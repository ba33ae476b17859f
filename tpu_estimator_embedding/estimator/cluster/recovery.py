# SPDX-License-Identifier: Apache-2.0
"""A training on servers: what its graph, its sessions, savers and hooks need to survive faults."""

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.cluster.server_state import (
    ServerState,
    forget_training,
    training_of,
)
from tpu_estimator_embedding.estimator.cluster.servers import servers_of, watching
from tpu_estimator_embedding.estimator.cluster.tasks import TRAINERS
from tpu_estimator_embedding.estimator.step_session import StepSession, StepSessionManager
from tpu_estimator_embedding.ops.assertion import sentence_of
from tpu_estimator_embedding.types import RunConfig, Structure

_RUNNING_OPS_SECONDS = 1.0  # for ops that had read their permit
_RESTART_SECONDS = 30.0  # of a chief that is restarted, with all workers, as synchronous or not
_POLL_SECONDS = 0.1
_STEP_SECONDS = 5.0  # in which a step may end, after a signal
_STOPPED = "A signal ended the wait for other tasks."


class Recovery(NamedTuple):
    """What a training on servers needs to survive faults.

    Attributes:
        hooks: hooks of its sessions.
        manager: makes what starts its sessions: see `StepSessionCreator`.
    """

    hooks: list[tf.compat.v1.train.SessionRunHook]
    manager: Callable[..., "ClusterSessionManager"]


@contextlib.contextmanager
def recovering(config: RunConfig, train_op: tf.Operation, is_stopping: Callable[[], bool], *,
               is_synchronous: bool) -> Iterator[Recovery]:
    """Prepares the graph of a training; yields what its sessions need in addition.

    If the training of a chief ends with an error, such as a loss that is NaN, what the servers
    hold may be the cause: the next chief restores the last checkpoint. An invalid id in the input
    of one task ends the training of all, with a message that names the task.

    Args:
        config: the RunConfig of a trainer in a cluster with servers.
        train_op: the op of a step.
        is_stopping: whether to end the training instead of waiting for other tasks.
        is_synchronous: whether this trainer trains synchronously.

    Raises:
        tf.errors.InvalidArgumentError: for an invalid id.
    """
    servers, jobs = servers_of(config), config.cluster_spec.as_dict()
    state = ServerState(
        [server.device for server in servers], f"{config.task_type}/{config.task_id}",
        [f"{job}/{number}" for job in TRAINERS for number in range(len(jobs.get(job, ())))],
        is_synchronous=is_synchronous)
    state.check_permits(train_op)
    try:
        with watching(servers) as watchdog:
            yield Recovery([watchdog], functools.partial(
                ClusterSessionManager, state, is_stopping))
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


class ClusterSession(StepSession):
    """Raises AbortedError, from which a MonitoredSession recovers, for a step without a permit.

    A synchronous step waits for other tasks within TensorFlow, where Python handles no signals. So
    another thread runs it, and the main thread ends a training that is to stop.
    """

    def __init__(self, state: ServerState, is_stopping: Callable[[], bool], target: str,
                 graph: tf.Graph, config: tf.compat.v1.ConfigProto | None):
        super().__init__(target, graph, config)
        self._state = state
        self._is_stopping = is_stopping
        self._threads = ThreadPoolExecutor(2, "runs")  # a step that was left, and what saves
        self._has_left = False

    def close(self) -> None:
        """Closes the session; ends a step that was left."""
        super().close()
        self._threads.shutdown()

    def run(self, *args: Any, **kwargs: Any) -> Structure:
        """Runs and returns what `Session.run` would."""
        try:
            if (not self._state.is_synchronous or self._has_left
                    or threading.current_thread() is not threading.main_thread()):
                return super().run(*args, **kwargs)
            return self._until_stopped(self._threads.submit(super().run, *args, **kwargs))
        except tf.errors.OpError as error:
            if not self._state.is_stopped_step(error):
                raise
            raise tf.errors.AbortedError(
                None, None, "The chief initializes or restores the variables: this step "
                "changed nothing, and a new session waits for the chief.") from None

    def _until_stopped(self, run: Future[Structure]) -> Structure:
        """Returns what a run does; leaves a step that others do not let end.

        Raises:
            tf.errors.OutOfRangeError: the training is to stop.
        """
        seconds = 0.0
        while wait([run], _POLL_SECONDS).not_done:  # in Python, which handles signals
            seconds += _POLL_SECONDS if self._is_stopping() else 0.0
            if seconds >= _STEP_SECONDS:
                self._has_left = True
                if self._state.end_own_step(self):
                    _log("this task stops: it leaves the step that waits for other tasks")
                    raise tf.errors.OutOfRangeError(None, None, _STOPPED)
                self._has_left, seconds = False, 0.0
        return run.result()


class ClusterSessionManager(StepSessionManager):
    """Keeps the variables on the servers where it can, and restores only while no worker trains."""

    def __init__(self, state: ServerState, is_stopping: Callable[[], bool], *args: object,
                 **kwargs: object):
        """Takes what the servers remember, whether to stop, and arguments of a SessionManager."""
        super().__init__(*args, **kwargs)
        self._state = state
        self._is_stopping = is_stopping
        self._has_started = False
        self._differs_since: float | None = None

    def new_session(self, master: str,
                    config: tf.compat.v1.ConfigProto | None) -> tf.compat.v1.Session:
        """Returns a session whose variables may not be initialized."""
        return ClusterSession(self._state, self._is_stopping, master, self._graph, config)

    def prepare_session(self, master: str, *args: object,
                        saver: Any = None,
                        checkpoint_dir: Any = None,
                        config: tf.compat.v1.ConfigProto | None = None,
                        **kwargs: object) -> tf.compat.v1.Session:
        """Starts the chief's session; initializes or restores if the servers lost a variable.

        Raises:
            tf.errors.InvalidArgumentError: if another task has ended the training.
        """
        session = self.new_session(master, config)
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

    def may_start(self, session: tf.compat.v1.Session) -> bool:
        """Whether a worker may start its steps, which it has a permit for then.

        Raises:
            tf.errors.InvalidArgumentError: if another task has ended the training.
            tf.errors.OutOfRangeError: if the training is to stop.
            ValueError: if the chief trains synchronously and this worker does not, or vice versa.
        """
        if self._is_stopping():
            raise tf.errors.OutOfRangeError(None, None, _STOPPED)
        self._check_failure(session)
        training = self._state.training(session)
        if (training is None or not super().may_start(session)
                or not self._trains_as_chief(session)):
            return False
        self._state.permit_steps(session)
        is_training = self._state.training(session) == training  # not stopped before the permit
        self._has_started |= is_training
        return is_training

    def _trains_as_chief(self, session: tf.compat.v1.Session) -> bool:
        of_chief, own = self._state.training_is_synchronous(session), self._state.is_synchronous
        if of_chief == own:
            self._differs_since = None
            return True
        self._differs_since = self._differs_since or time.monotonic()
        checks.check(
            time.monotonic() - self._differs_since < _RESTART_SECONDS, "synchronous",
            f"{of_chief}, as in the ClusterConfig of the chief", own,
            "Start all tasks with `run --synchronous`, or all without.")
        return False

    def _check_failure(self, session: tf.compat.v1.Session) -> None:
        failure = self._state.failure(session)
        if failure and self._has_started:  # else it ended a training before this one
            raise tf.errors.InvalidArgumentError(None, None, failure)

    def _is_kept(self, session: tf.compat.v1.Session, directory: str) -> bool:
        training = self._state.training(session)
        return (training is not None and training == training_of(directory)
                and self._state.training_is_synchronous(session) == self._state.is_synchronous
                and not self._state.has_unfinished_update(session) and super().may_start(session))

    def _keep(self, session: tf.compat.v1.Session, saver: tf.compat.v1.train.Saver,
              directory: str) -> None:
        self._state.permit_steps(session)
        checkpoints = tf.train.get_checkpoint_state(directory)
        if checkpoints:  # which a restore would make the saver remember
            saver.recover_last_checkpoints(checkpoints.all_model_checkpoint_paths)
        _log("the servers hold all variables of this training: the chief continues from there and "
             "restores no checkpoint. To return to a checkpoint, restart the servers.")


def _log(line: str) -> None:
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", line)
