# SPDX-License-Identifier: Apache-2.0
"""`tf.distribute.TPUStrategy` over the devices of this machine, where there is no TPU."""

from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stand_ins import tpu_system

_Tensors = Any  # a nest of tensors


class _ThisMachine(tf.distribute.MirroredStrategy):
    """One replica for each GPU, or else for each logical CPU; with a TPU, TensorFlow's own.

    Several CPUs are asked for by `tf.config.set_logical_device_configuration`, before
    anything runs. What a TPU's strategy splits over the cores of a replica stays whole:
    a replica has one device.
    """

    _upstream: type[tf.distribute.Strategy]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if tpu_system.is_present():
            return cls._upstream(*args, **kwargs)
        return super().__new__(cls)

    def __init__(self, tpu_cluster_resolver: Any, device_assignment: Any) -> None:
        checks.check(device_assignment is None, "device_assignment", "None without a TPU",
                     device_assignment, "Every replica has one device of this machine.")
        devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
        super().__init__([device.name for device in devices])
        self._resolver = tpu_cluster_resolver

    @property
    def cluster_resolver(self) -> Any:
        """The resolver that the strategy was made with."""
        return self._resolver

    def experimental_assign_to_logical_device(self, tensor: _Tensors,
                                              logical_device_id: int) -> _Tensors:
        """Returns the tensor; the only logical device of a replica is 0."""
        checks.check_one_of("logical_device_id", (0,), logical_device_id)
        return tensor

    def experimental_split_to_logical_devices(self, tensor: _Tensors,
                                              partition_dimensions: Any) -> _Tensors:
        """Returns the tensor; over one logical device there is nothing to split."""
        checks.check(partition_dimensions is None or set(partition_dimensions) <= {1},
                     "partition_dimensions", "1 throughout without a TPU", partition_dimensions)
        return tensor

    def experimental_replicate_to_logical_devices(self, tensor: _Tensors) -> _Tensors:
        """Returns the tensor."""
        return tensor


class TPUStrategy(_ThisMachine):
    """`tf.distribute.TPUStrategy`."""

    _upstream = tpu_strategy.TPUStrategyV2

    def __init__(self, tpu_cluster_resolver: Any = None,
                 experimental_device_assignment: Any = None,
                 experimental_spmd_xla_partitioning: bool = False) -> None:
        # SPMD splits the tensors of a replica over its cores; with one it changes nothing.
        del experimental_spmd_xla_partitioning
        super().__init__(tpu_cluster_resolver, experimental_device_assignment)


class ExperimentalTPUStrategy(_ThisMachine):
    """`tf.distribute.experimental.TPUStrategy`."""

    _upstream = tpu_strategy.TPUStrategy

    def __init__(self, tpu_cluster_resolver: Any = None, device_assignment: Any = None) -> None:
        super().__init__(tpu_cluster_resolver, device_assignment)
