# SPDX-License-Identifier: Apache-2.0
"""Laws of the topology: TensorFlow's assignments of replicas find every core, in order."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.stubs import tpu_cores

AUTO, RING, MESH = tf.tpu.experimental.DeviceOrderMode
COUNTS = (*range(1, 25), 32, 48, 64, 96, 127, 128, 256, 384, 512)
SHAPES = {2: [1, 1, 1, 2], 4: [1, 2, 1, 2], 8: [2, 2, 1, 2]}  # those that TPUEstimator uses


def splits(cores):
    """The numbers of hosts, up to 8, over which cores can be split."""
    return [hosts for hosts in range(1, 9) if cores % hosts == 0]


def places(assignment, logical_core=0):
    """Task and ordinal of every replica, as its assignment gives them."""
    found = []
    for replica in range(assignment.num_replicas):
        spec = tf.DeviceSpec.from_string(assignment.host_device(replica, logical_core))
        found.append((spec.task, int(assignment.tpu_ordinal(replica, logical_core))))
    return found


@pytest.mark.parametrize("cores", COUNTS)
def test_core_of_every_place_is_unique_and_known(cores):
    for hosts in splits(cores):
        topology = tpu_cores.topology(cores, hosts)
        assert (topology.num_tasks, topology.num_tpus_per_task) == (hosts, cores // hosts)
        assert np.prod(topology.mesh_shape) == cores and topology.missing_devices.size == 0
        for task, ordinal in itertools.product(range(hosts), range(cores // hosts)):
            coordinates = topology.device_coordinates[task, ordinal]
            assert topology.task_ordinal_at_coordinates(coordinates) == task
            assert topology.tpu_device_ordinal_at_coordinates(coordinates) == ordinal
        again = tf.tpu.experimental.Topology(mesh_shape=topology.mesh_shape,
                                             device_coordinates=topology.device_coordinates)
        assert again.missing_devices.size == 0


@pytest.mark.parametrize("mode", [AUTO, MESH])
@pytest.mark.parametrize("cores", COUNTS)
def test_replica_is_on_the_core_of_its_number(cores, mode):
    for hosts in splits(cores):
        assignment = tf.tpu.experimental.DeviceAssignment.build(
            tpu_cores.topology(cores, hosts), num_replicas=cores, device_order_mode=mode)
        per_host = cores // hosts
        assert places(assignment) == [divmod(replica, per_host) for replica in range(cores)]
        assert [assignment.lookup_replicas(host, 0) for host in range(hosts)] == [
            list(range(host * per_host, (host + 1) * per_host)) for host in range(hosts)]


@pytest.mark.parametrize("mode", [AUTO, RING, MESH])
@pytest.mark.parametrize("cores, of_replica", [
    (cores, of_replica) for cores in COUNTS for of_replica in SHAPES if cores % of_replica == 0])
def test_dense_and_embedding_half_of_a_replica_get_the_same_samples(cores, of_replica, mode):
    for hosts in splits(cores)[:3]:
        check_both_halves(cores, hosts, of_replica, mode)


def check_both_halves(cores, hosts, of_replica, mode):
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        tpu_cores.topology(cores, hosts), computation_shape=SHAPES[of_replica],
        num_replicas=cores // of_replica, device_order_mode=mode)
    numbers = []
    for replica, logical in itertools.product(range(cores // of_replica), range(of_replica)):
        dense = (assignment.host_device(replica, logical, job="worker"),
                 assignment.tpu_ordinal(replica, logical))
        core = tpu_cores.core_of(*dense, num_cores=cores, num_hosts=hosts)
        task, ordinal = divmod(core, cores // hosts)
        assert replica in assignment.lookup_replicas(task, logical)
        assert dense == (f"/job:worker/task:{task}/device:CPU:0", ordinal)
        numbers.append(core)
    assert sorted(numbers) == list(range(cores))


@pytest.mark.parametrize("replicas", range(1, 16))
def test_fewer_replicas_than_cores_are_on_different_cores(replicas):
    assignment = tf.tpu.experimental.DeviceAssignment.build(
        tpu_cores.topology(16, 4), num_replicas=replicas)
    cores = {tpu_cores.core_of(f"/task:{task}", ordinal, num_cores=16, num_hosts=4)
             for task, ordinal in places(assignment)}
    assert len(cores) == replicas


def test_core_of_a_device_is_that_of_the_variables(monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "16")
    monkeypatch.setenv(settings.HOSTS.variable, "4")
    assert [tpu_cores.core_of(device, ordinal) for device, ordinal in (
        ("", 3), ("/device:CPU:0", 0), ("/job:tpu_worker/task:3", 2),
        ("/job:worker/replica:0/task:1/device:CPU:0", 1),
        ("/task:2/device:TPU:1", -1))] == [3, 0, 14, 5, 9]


@pytest.mark.parametrize("device, ordinal, sentence", [
    ("", 2, r"`device_ordinal` must be in \[0, 2\), the cores of a host, got 2\. .*run --cores"),
    ("", -1, r"`device_ordinal` must be in \[0, 2\), the cores of a host, got -1\."),
    ("/task:2", 0, r"Task of device '/task:2' must be less than the number of hosts, 2, got 2\. "
                   "Set TPU_ESTIMATOR_EMBEDDING_HOSTS, or run --hosts")])
def test_core_that_no_host_has_is_refused(device, ordinal, sentence, monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "4")
    monkeypatch.setenv(settings.HOSTS.variable, "2")
    with pytest.raises(ValueError, match=sentence):
        tpu_cores.core_of(device, ordinal)
