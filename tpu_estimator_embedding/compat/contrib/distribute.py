# SPDX-License-Identifier: Apache-2.0
"""The strategies of `tf.contrib.distribute`, which count GPUs and batches per replica.

`make_dataset_iterator` gives each replica a whole batch of the dataset. The strategies of
`tf.distribute` split each batch over the replicas instead.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import tensorflow as tf

Value = TypeVar("Value")


class _BatchPerReplica:
    make_input_fn_iterator: Callable[..., "tf.compat.v1.data.Iterator"]

    def make_dataset_iterator(self, dataset: tf.data.Dataset) -> "tf.compat.v1.data.Iterator":
        """Returns an iterator that gives each replica a batch of the dataset."""
        return self.make_input_fn_iterator(lambda context: dataset)


class MirroredStrategy(_BatchPerReplica, tf.compat.v1.distribute.MirroredStrategy):
    """One replica per GPU of this machine, or one on the CPU.

    Args:
        devices: names of the devices; None means all GPUs.
        num_gpus: the number of GPUs to use; None means all.
        num_gpus_per_worker: another name of `num_gpus`.
        cross_device_ops: how to add up over devices.
        auto_shard_dataset: must be false; it was for several machines.
        cross_tower_ops: another name of `cross_device_ops`.

    Raises:
        ValueError: if two names of an argument are given, `devices` and a number are,
            or there are fewer GPUs.
    """

    def __init__(self, devices: Sequence[str] | None = None, num_gpus: int | None = None,
                 num_gpus_per_worker: int | None = None,
                 cross_device_ops: tf.distribute.CrossDeviceOps | None = None,
                 auto_shard_dataset: bool = False,
                 cross_tower_ops: tf.distribute.CrossDeviceOps | None = None) -> None:
        if auto_shard_dataset:
            raise ValueError("`auto_shard_dataset` must be False, got True. Use dataset.shard, "
                             "and MultiWorkerMirroredStrategy for several machines.")
        gpus = _either("num_gpus", num_gpus, "num_gpus_per_worker", num_gpus_per_worker)
        ops = _either("cross_device_ops", cross_device_ops, "cross_tower_ops", cross_tower_ops)
        if devices is not None and gpus is not None:
            raise ValueError("Must only specify one of `devices` and `num_gpus_per_worker`. Got "
                             f"{devices!r} and {gpus!r}.")
        super().__init__(devices if gpus is None else _first_gpus(gpus), ops)


class ParameterServerStrategy(_BatchPerReplica,
                              tf.compat.v1.distribute.experimental.ParameterServerStrategy):
    """Variables on parameter servers; the Estimator sets the cluster, by TF_CONFIG.

    Args:
        num_gpus_per_worker: number of GPUs that each worker uses.
    """

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        super().__init__(_resolver(num_gpus_per_worker))


class CollectiveAllReduceStrategy(_BatchPerReplica,
                                  tf.compat.v1.distribute.experimental.MultiWorkerMirroredStrategy):
    """Variables on all workers, in step; the Estimator sets the cluster, by TF_CONFIG.

    Args:
        num_gpus_per_worker: number of GPUs that each worker uses.
    """

    def __init__(self, num_gpus_per_worker: int = 0) -> None:
        super().__init__(cluster_resolver=_resolver(num_gpus_per_worker))


def _resolver(gpus: int) -> tf.distribute.cluster_resolver.ClusterResolver:
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({}), num_accelerators={"GPU": gpus})


def _either(first: str, value: Value | None, second: str, other: Value | None) -> Value | None:
    if value is not None and other is not None:
        raise ValueError(f"You cannot specify both `{first}` and `{second}`. "
                         f"Got {value!r} and {other!r}.")
    return other if value is None else value


def _first_gpus(number: int) -> list[str]:
    found = len(tf.config.list_logical_devices("GPU"))
    if number > found:
        raise ValueError(f"`num_gpus` must be at most the number of GPUs, {found}, got {number}. "
                         "Omit it to use all GPUs, or the CPU if there are none.")
    return [f"/device:GPU:{index}" for index in range(number)] or ["/device:CPU:0"]
