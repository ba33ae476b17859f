# SPDX-License-Identifier: Apache-2.0
"""A training on servers: what its graph, its sessions and its hooks need to survive faults."""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.recovery.server_state import ServerState, forget_training
from tpu_estimator_embedding.estimator.recovery.servers import servers_of
from tpu_estimator_embedding.estimator.recovery.sessions import sessions_of
from tpu_estimator_embedding.estimator.recovery.stopped_steps import StoppedSteps
from tpu_estimator_embedding.estimator.recovery.watchdog import watching
from tpu_estimator_embedding.ops.assertion import sentence_of

_TRAINERS = ("chief", "master", "worker")


@contextlib.contextmanager
def recovering(config: Any, train_op: tf.Operation) -> Iterator[list[Any]]:
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
        [f"{job}/{number}" for job in _TRAINERS for number in range(len(jobs.get(job, ())))])
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
