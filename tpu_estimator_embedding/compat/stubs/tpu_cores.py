# SPDX-License-Identifier: Apache-2.0
"""The cores and hosts of this machine as a stub for a TPU, and their topology.

Environment variables, which `run --cores` and `run --hosts` set, define the numbers; programs that
leave `num_shards` unset then have as many replicas. Without them there is one host, with one core
per GPU or, if there are no GPUs, per logical CPU.

The cores of all hosts are numbered in the order in which TensorFlow numbers replicas: first the
cores of a chip, then chips along x, y and z. Host h has the cores from `h * cores_per_host` on, in
this order. A `DeviceAssignment` of as many replicas of one core as there are cores therefore puts
replica r on core r, so that a host's i-th replica has the ordinal i. Other assignments cannot:
`DeviceOrderMode.RING`, and AUTO where it forms rings, order replicas of several cores along a ring,
and fewer replicas than cores fill a corner of the mesh. There, `tpu_ordinal` and `host_device` of
the assignment name the core of each replica, and `core_of` computes its number from them.
"""

import itertools
import math

import tensorflow as tf
from tensorflow.core.protobuf.tpu import topology_pb2

from tpu_estimator_embedding import checks, settings

# The mesh of a TPU with as many cores, which upstream divides into replicas of several cores.
_MESHES = {1: (1, 1, 1, 1), 2: (1, 1, 1, 2), 4: (1, 2, 1, 2), 8: (2, 2, 1, 2), 16: (4, 2, 1, 2),
           32: (4, 4, 1, 2), 64: (8, 4, 1, 2), 128: (8, 8, 1, 2), 256: (16, 8, 1, 2),
           512: (16, 16, 1, 2)}


def count() -> int:
    """Returns the number of cores on all hosts of the stub, without initializing devices."""
    return settings.num_cores() or _num_devices("GPU") or _num_devices("CPU") or 1


def core_of(device: str, ordinal: int, *, num_cores: int | None = None,
            num_hosts: int | None = None) -> int:
    """Returns the number, over all hosts, of a core that a device and an ordinal name.

    Args:
        device: name of a device on the host of the core; without a task it is on host 0.
        ordinal: number of the core on its host; -1 on a device of type TPU means its index.
        num_cores: number of cores on all hosts; by default those of this machine as a stub.
        num_hosts: number of hosts; by default those of this machine as a stub.

    Raises:
        ValueError: if there is no such host, or it does not have such a core.

    >>> core_of("/job:worker/task:1/device:CPU:0", 2, num_cores=8, num_hosts=2)
    6
    """
    num_cores, num_hosts = num_cores or count(), num_hosts or settings.num_hosts()
    per_host = num_cores // num_hosts
    place = tf.DeviceSpec.from_string(device)
    task = place.task or 0
    if ordinal == -1 and place.device_type == "TPU":
        ordinal = place.device_index or 0
    checks.check(task < num_hosts, f"task of device {device!r}",
                 f"less than the number of hosts, {num_hosts}", task,
                 f"Set {settings.HOSTS.variable}, or run --hosts, to the number of hosts of the "
                 "program.")
    checks.check(0 <= ordinal < per_host, "device_ordinal",
                 f"in [0, {per_host}), the cores of a host", ordinal,
                 f"Set {settings.CORES.variable}, or run --cores, to the number of cores on all "
                 "hosts.")
    return task * per_host + ordinal


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
            f"{settings.CORES.variable}={len(found)}.")
    return found[:cores]


def topology(cores: int, hosts: int = 1) -> tf.tpu.experimental.Topology:
    """Returns the topology of hosts that have an equal part of the cores.

    >>> found = topology(8, hosts=2)
    >>> found.num_tasks, found.num_tpus_per_task, found.mesh_shape.tolist()
    (2, 4, [2, 2, 1, 2])
    >>> found.device_coordinates[0].tolist()
    [[0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0], [1, 0, 0, 1]]
    """
    shape = mesh(cores)
    # In the order of replicas, see above: the last loop of a product is its fastest.
    z_y_x_core = itertools.product(*(range(shape[axis]) for axis in (2, 1, 0, 3)))
    proto = topology_pb2.TopologyProto(
        mesh_shape=shape, num_tasks=hosts, num_tpu_devices_per_task=cores // hosts,
        device_coordinates=itertools.chain(*((x, y, z, core) for z, y, x, core in z_y_x_core)))
    proto.tpu_hardware_feature.embedding_feature = topology_pb2.TPUHardwareFeature.V1
    return tf.tpu.experimental.Topology(serialized=proto.SerializeToString())


def mesh(cores: int) -> list[int]:
    """Returns the shape `[x, y, z, core]` of a mesh with this number of cores.

    A number that is not a power of two repeats, along x, the mesh of its largest power of two.

    >>> mesh(8), mesh(24), mesh(3)
    ([2, 2, 1, 2], [6, 2, 1, 2], [3, 1, 1, 1])
    """
    repeated = math.gcd(cores, max(_MESHES))
    x, *others = _MESHES[repeated]
    return [cores // repeated * x, *others]


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
