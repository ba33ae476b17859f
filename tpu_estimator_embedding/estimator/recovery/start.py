# SPDX-License-Identifier: Apache-2.0
"""Waits for the servers, and checks their kernels, before a trainer builds a graph."""

import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.recovery.servers import Server, servers_of, wait_for
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import Tensor


def meet_servers(config: Any) -> None:
    """Waits until all servers answer; uses TF ops in this process if one has no kernels.

    Args:
        config: the RunConfig of a trainer in a cluster with servers.

    Raises:
        RuntimeError: if native kernels were asked for and a server has none.
    """
    servers = servers_of(config)
    wait_for(servers)
    if load.native_ops() is not None:
        _fall_back([server for server in servers if not _has_kernels(server)])


def _fall_back(without: Sequence[Server]) -> None:
    if not without:
        return
    names = ", ".join(map(str, without))
    if load.choice() == "native":
        raise RuntimeError(
            f"`{load.VARIABLE}=native` must find native kernels on every server, and {names} has "
            f"none. Run `{load.COMMAND}` there and restart it, or unset the variable here.")
    os.environ[load.VARIABLE] = "off"  # for the rest of this process
    tf.compat.v1.logging.warning(
        "tpu_estimator_embedding: this task trains with TF ops, several times slower: %s has no "
        "native kernels. Its log says why. `%s` compiles them there; then restart it.", names,
        load.COMMAND)


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
