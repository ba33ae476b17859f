# SPDX-License-Identifier: Apache-2.0
"""Initialization and shutdown of a TPU system; without a TPU they do nothing."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import remote
from tensorflow.python.tpu import tpu, tpu_name_util, tpu_strategy_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding import settings, tf_config
from tpu_estimator_embedding.channels import channel
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.low_level import configured_tables
from tpu_estimator_embedding.types import Tensor

_tensorflow_initialize = tpu_strategy_util.initialize_tpu_system_impl
_tensorflow_shutdown = tpu_strategy_util.shutdown_tpu_system_impl
_tensorflow_configure = tpu_ops.configure_distributed_tpu
_tensorflow_configure_embedding = tpu_ops.configure_tpu_embedding
_tensorflow_shutdown_op = tpu_ops.shutdown_distributed_tpu
_tensorflow_connect_to_host = remote.connect_to_remote_host
_tensorflow_system_device = tpu._tpu_system_device_name
_tensorflow_core = tpu_name_util.core


@functools.wraps(_tensorflow_initialize)
def initialize_tpu_system_impl(cluster_resolver: object = None,
                               *arguments: object) -> tf.tpu.experimental.Topology | Tensor:
    """Returns the topology of this machine; in a `tf.function`, the serialized topology."""
    if tpu_system.is_present():
        return _tensorflow_initialize(cluster_resolver, *arguments)
    tpu_system.log_stub()
    topology = tpu_cores.topology(tpu_cores.count(), settings.num_hosts())
    if tf.inside_function():
        return tf.constant(topology.serialized())
    if hasattr(cluster_resolver, "set_tpu_topology"):
        cluster_resolver.set_tpu_topology(topology.serialized())
    return topology


@functools.wraps(_tensorflow_shutdown)
def shutdown_tpu_system_impl(cluster_resolver: object = None, *arguments: object) -> None:
    """Does nothing, because there is no TPU system to shut down."""
    if tpu_system.is_present():
        _tensorflow_shutdown(cluster_resolver, *arguments)


# The ops of `tf.compat.v1.tpu.initialize_system` and `shutdown_system` in a graph.


@functools.wraps(_tensorflow_configure)
def configure_distributed_tpu(*arguments: Any, **named: Any) -> Tensor:
    """Returns the serialized topology of this machine, a string tensor; empties all channels."""
    if tpu_system.is_present():
        return _tensorflow_configure(*arguments, **named)
    tpu_system.log_stub()
    configured_tables.configure(tf.compat.as_bytes(named.get("embedding_config") or b""))
    topology = tpu_cores.topology(tpu_cores.count(), settings.num_hosts())
    with tf.control_dependencies(_emptied_channels("initialized")):
        return tf.constant(topology.serialized(), name=named.get("name"))


@functools.wraps(_tensorflow_configure_embedding)
def configure_tpu_embedding(config: bytes, name: str | None = None) -> tf.Operation:
    """Chooses the tables that ops without a TPUEmbedding use."""
    if tpu_system.is_present():
        return _tensorflow_configure_embedding(config, name=name)
    configured_tables.configure(tf.compat.as_bytes(config))
    return tf.no_op(name=name)


@functools.wraps(_tensorflow_shutdown_op)
def shutdown_distributed_tpu(*arguments: Any, **named: Any) -> tf.Operation:
    """Empties all channels; there is no TPU system to shut down."""
    if tpu_system.is_present():
        return _tensorflow_shutdown_op(*arguments, **named)
    return tf.group(*_emptied_channels("shut down"), name=named.get("name"))


def _emptied_channels(event: str) -> list[tf.Operation]:
    return [channel.reset(f"The TPU system was {event}.")] if channel.are_available() else []


@functools.wraps(_tensorflow_system_device)
def _tpu_system_device_name(job: str | None) -> str:
    """Returns the device of the ops above; without a TPU, "", which does not constrain them."""
    return _tensorflow_system_device(job) if tpu_system.is_present() else ""


@functools.wraps(_tensorflow_core)
def core(num: int) -> str:
    """Returns the device of a core; without a TPU, ""."""
    return _tensorflow_core(num) if tpu_system.is_present() else ""


@functools.wraps(_tensorflow_connect_to_host)
def connect_to_remote_host(remote_host: str | Sequence[str] | None = None,
                           job_name: str = "worker") -> None:
    """Connects to a server; if none answers, this machine stands in for it."""
    hosts = tf.nest.flatten(remote_host) if remote_host else []
    if hosts and not tpu_system.is_listening(hosts[0]):
        tpu_system.log_stub(hosts[0])
        return
    _tensorflow_connect_to_host(remote_host, job_name)


def creating_session(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a `BaseSession.__init__` that replaces a target where no server answers by "".

    A session with a cluster, its own or that of TF_CONFIG, waits until the cluster starts.
    """
    @functools.wraps(original)
    def initialize_session(self: tf.compat.v1.Session, target: str | bytes | None,
                           graph: tf.Graph | None = None,
                           config: tf.compat.v1.ConfigProto | None = None) -> None:
        has_cluster = config is not None and config.cluster_def.job
        if target and not has_cluster and not tf_config.names_cluster():
            target = tpu_system.or_this_machine(tf.compat.as_str(target))
        original(self, target, graph, config)

    return initialize_session
