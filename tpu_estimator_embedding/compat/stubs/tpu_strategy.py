# SPDX-License-Identifier: Apache-2.0
"""`tf.distribute.TPUStrategy` over the devices of this machine, if there is no TPU."""

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.distribute import mirrored_strategy, tpu_strategy
from tensorflow.python.tpu.tpu_hardware_feature import HardwareFeature

from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.types import Structure

_Resolver: TypeAlias = tf.distribute.cluster_resolver.TPUClusterResolver
_Assignment: TypeAlias = tf.tpu.experimental.DeviceAssignment


class TPUExtended(mirrored_strategy.MirroredExtended):
    """Mirrors variables on every replica, except those colocated with an unmirrored variable.

    All replicas share the tables of TPUEmbedding. Keras' legacy optimizers create the slots of a
    table under the strategy, colocated with it; all replicas share these too.
    """

    def _validate_colocate_with_variable(self, colocate_with_variable: tf.Variable) -> None:
        if not _is_of(self, colocate_with_variable):
            super()._validate_colocate_with_variable(colocate_with_variable)

    def _create_variable(self, next_creator: Callable[..., tf.Variable],
                         **kwargs: Any) -> tf.Variable:
        table: Any = kwargs.get("colocate_with")
        if not _is_of(self, table):
            return super()._create_variable(next_creator, **kwargs)
        del kwargs["colocate_with"]
        with tf.device(table.device):
            return next_creator(**kwargs)


def _is_of(extended: TPUExtended, variable: object) -> bool:
    """Whether the variable belongs to the strategy and all replicas share it."""
    return (isinstance(variable, tf.Variable) and extended.variable_created_in_scope(variable)
            and not isinstance(variable, tf.distribute.DistributedValues))



class _ThisMachine(tf.distribute.MirroredStrategy):
    """One replica per core that this machine stands in for; with a TPU, TensorFlow's strategy.

    A core is a GPU or, without GPUs, a logical CPU; `tpu_cores` defines their number. Tensors that
    a TPU splits over the cores of a replica are not split, because a replica has one device here.
    """

    _upstream: type[tf.distribute.Strategy]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present():
            return cls._upstream(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, tpu_cluster_resolver: _Resolver | None,
                 device_assignment: _Assignment | None) -> None:
        cores = tpu_cores.count()
        devices = tpu_cores.devices(device_assignment.num_replicas if device_assignment else cores)
        # Like MirroredStrategy, with another `extended`.
        tf.distribute.Strategy.__init__(self, TPUExtended(self, devices=devices))
        self._resolver = tpu_cluster_resolver
        self._cores_per_replica = getattr(device_assignment, "num_cores_per_replica", 1)
        # The properties of a TPUStrategy's `extended` that programs and Keras 2 read.
        self.extended.tpu_hardware_feature = HardwareFeature(
            topology_pb2.TopologyProto.FromString(
                tpu_cores.topology(cores).serialized()).tpu_hardware_feature)
        self.extended.num_hosts = 1
        self.extended.num_replicas_per_host = self.num_replicas_in_sync
        self.extended.steps_per_run = 1

    @property
    def cluster_resolver(self) -> _Resolver | None:
        """The resolver that was passed to the strategy."""
        return self._resolver

    def experimental_assign_to_logical_device(self, tensor: Structure,
                                              logical_device_id: int) -> Structure:
        """Returns the tensor; the logical devices of a replica are one device of this machine.

        Raises:
            ValueError: if a replica does not have the logical device.
        """
        if not 0 <= logical_device_id < self._cores_per_replica:
            raise ValueError(
                "`logical_core_id` to assign must be lower then total number of logical devices "
                f"per replica. Received logical device id {logical_device_id} but there are only "
                f"total of {self._cores_per_replica} logical devices in replica.")
        return tensor

    def experimental_split_to_logical_devices(
            self, tensor: Structure, partition_dimensions: Sequence[int] | None) -> Structure:
        """Returns the tensor.

        Raises:
            ValueError: if the number of parts is not the number of logical devices per replica.
        """
        parts = math.prod(partition_dimensions or [1])
        if parts not in (1, self._cores_per_replica):
            raise ValueError(
                "Product of `partition_dimensions` must be equal to the number of logical devices "
                f"per replica: {self._cores_per_replica}, got {partition_dimensions!r}.")
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: Structure) -> Structure:
        """Returns the tensor."""
        return tensor


class TPUStrategy(_ThisMachine):
    """`tf.distribute.TPUStrategy`."""

    _upstream = tpu_strategy.TPUStrategyV2

    def __init__(self, tpu_cluster_resolver: _Resolver | None = None,
                 experimental_device_assignment: _Assignment | None = None,
                 experimental_spmd_xla_partitioning: bool = False) -> None:
        # SPMD splits the tensors of a replica over its cores; with one core it has no effect.
        del experimental_spmd_xla_partitioning
        super().__init__(tpu_cluster_resolver, experimental_device_assignment)


class ExperimentalTPUStrategy(_ThisMachine):
    """`tf.distribute.experimental.TPUStrategy`."""

    _upstream = tpu_strategy.TPUStrategy

    def __init__(self, tpu_cluster_resolver: _Resolver | None = None,
                 device_assignment: _Assignment | None = None) -> None:
        super().__init__(tpu_cluster_resolver, device_assignment)
