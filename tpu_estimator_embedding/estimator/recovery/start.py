# SPDX-License-Identifier: Apache-2.0
"""Waits for the servers, and checks their kernels, before a trainer builds a graph."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.engine.step_ids import check_can_train_on_servers
from tpu_estimator_embedding.estimator.recovery.servers import Server, servers_of, wait_for
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


def meet_servers(config: Any, plan: EmbeddingPlan) -> None:
    """Waits until all servers answer, and checks that they can train the tables.

    Args:
        config: the RunConfig of a trainer in a cluster with servers.
        plan: the tables.

    Raises:
        RuntimeError: if this task or a server has no native kernels.
        ValueError: if the kernels do not support a table.
    """
    check_can_train_on_servers(plan)
    servers = servers_of(config)
    wait_for(servers)
    without = [server for server in servers if plan.tables and not _has_kernels(server)]
    if without:
        raise RuntimeError(
            "Training on parameter servers requires the native kernels, and "
            f"{', '.join(map(str, without))} has none; its log says why. Run `{load.COMMAND}` "
            "there and restart it.")


def _has_kernels(server: Server) -> bool:
    try:
        server.ask(_nothing)
    except tf.errors.FailedPreconditionError:  # the op ran
        return True
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError,
            tf.errors.UnimplementedError, tf.errors.InternalError):
        return False
    return True


def _nothing() -> Tensor:
    """Returns a snapshot of a variable that does not exist."""
    absent = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[1, 1],
                                    shared_name="tpu_estimator_embedding/absent")
    return load.native_ops().tpu_embedding_snapshot([absent])[0]
