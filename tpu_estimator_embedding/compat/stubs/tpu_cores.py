# SPDX-License-Identifier: Apache-2.0
"""The number of cores of this machine as a stub for a TPU, and their topology.

An environment variable, which `run --cores` sets, defines the number; programs that leave
`num_shards` unset then have as many replicas. Without it there is one core per GPU or, if there
are no GPUs, per logical CPU.
"""

import itertools
import os

import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2

from tpu_estimator_embedding import checks

VARIABLE = "TPU_ESTIMATOR_EMBEDDING_CORES"

# The mesh of a TPU with as many cores, which upstream divides into replicas of several cores.
_MESHES = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 4: (1, 2, 1, 2), 8: (2, 2, 1, 2), 16: (4, 2, 1, 2),
           32: (4, 4, 1, 2), 64: (8, 4, 1, 2), 128: (8, 8, 1, 2)}


def chosen() -> int | None:
    """Returns the number of cores in the environment variable; None if it is not set.

    Raises:
        ValueError: if it is not a positive int.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    checks.check(text.isdecimal() and int(text) > 0, VARIABLE, "a positive number of cores", text)
    return int(text)


def count() -> int:
    """Returns the number of cores of the stub, without initializing devices."""
    return chosen() or _num_devices("GPU") or _num_devices("CPU") or 1


def devices(cores: int) -> list[str]:
    """Returns a device of this machine for each core; creates logical CPUs if necessary.

    Raises:
        RuntimeError: if TensorFlow has already initialized fewer devices.
    """
    kind = "GPU" if _num_devices("GPU") else "CPU"
    if kind == "CPU" and _num_devices(kind) < cores:
        _make_cpus(cores)
    found = [device.name for device in tf.config.list_logical_devices(kind)]
    if len(found) < cores:
        raise RuntimeError(
            f"{cores} cores need as many devices, but TensorFlow has initialized {len(found)} "
            f"{kind}. Create the strategy before anything else uses TensorFlow, or set "
            f"{VARIABLE}={len(found)}.")
    return found[:cores]


def topology(cores: int) -> tf.tpu.experimental.Topology:
    """Returns the topology of one host.

    >>> topology(8).num_tasks, topology(8).num_tpus_per_task, topology(8).mesh_shape.tolist()
    (1, 8, [2, 2, 1, 2])
    """
    shape = mesh(cores)
    places = list(itertools.product(*map(range, shape)))
    proto = topology_pb2.TopologyProto(
        mesh_shape=shape, num_tasks=1, num_tpu_devices_per_task=cores,
        device_coordinates=itertools.chain(*places))
    proto.tpu_hardware_feature.embedding_feature = topology_pb2.TPUHardwareFeature.V1
    return tf.tpu.experimental.Topology(serialized=proto.SerializeToString())


def mesh(cores: int) -> list[int]:
    """Returns the shape `[x, y, z, core]` of a mesh with this number of cores."""
    return list(_MESHES.get(cores, (cores, 1, 1, 1)))


def _num_devices(kind: str) -> int:
    """Returns the number of logical devices, without initializing them."""
    physical = tf.config.list_physical_devices(kind)
    return sum(len(tf.config.get_logical_device_configuration(device) or [device])
               for device in physical)


def _make_cpus(cores: int) -> None:
    [cpu] = tf.config.list_physical_devices("CPU")
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * cores)
    except RuntimeError:  # TensorFlow has initialized its devices; `devices` counts them
        return
