# SPDX-License-Identifier: Apache-2.0
"""Ops on the hosts of a TPU run on this machine where it stands in for them, and only there."""

import json
import threading

import pytest
import tensorflow as tf
from tensorflow.python.framework import function

import tpu_estimator_embedding
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system

tpu_estimator_embedding.install()

v1 = tf.compat.v1

FOREIGN = "/job:worker/replica:0/task:1/device:CPU:0"


@pytest.fixture(autouse=True)
def a_stand_in_for_four_hosts(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.setattr(tpu_system, "_logged", [])
    monkeypatch.setenv(settings.CORES.variable, "16")
    monkeypatch.setenv(settings.HOSTS.variable, "4")
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture(name="no_stand_in")
def a_program_that_asks_for_no_tpu(monkeypatch):
    monkeypatch.delenv(settings.CORES.variable)
    monkeypatch.delenv(settings.HOSTS.variable)


def run(fetches):
    with v1.Session() as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


def is_refused(session, fetches):
    try:
        session.run(fetches)
    except tf.errors.InvalidArgumentError as error:
        return "available devices are" in str(error) or "assign a device" in str(error)
    return False


def dataset():
    values = tf.data.Dataset.range(1, 4).interleave(
        lambda x: tf.data.Dataset.range(x, 2 * x).map(lambda y: y + 1), cycle_length=2)
    return v1.data.make_one_shot_iterator(values.batch(6)).get_next()


def function_with_a_device_inside():
    @tf.function
    def double(x):
        with tf.device("/job:tpu_worker/task:3"):
            return 2 * x

    return double(tf.constant(2.0))


def defun_with_a_device_inside():
    @function.Defun(tf.float32)
    def double(x):
        with tf.device("/job:tpu_worker/task:3"):
            return 2 * x

    return double(tf.constant(2.0))


def gradient_of_a_condition_in_a_function():
    weight = v1.get_variable("weight", initializer=3.0, use_resource=True)

    @tf.function
    def product(x):
        return tf.cond(x > 0, lambda: x * weight, lambda: weight)

    return tf.gradients(product(tf.constant(2.0)), weight)[0]


def variable_of_version_1():
    return v1.get_variable("weight", initializer=3.0, use_resource=False) + 1


def queue():
    values = tf.queue.FIFOQueue(3, [tf.float32])
    with tf.control_dependencies([values.enqueue(1.0)]):
        return values.dequeue()


@pytest.mark.parametrize("device", [
    FOREIGN, "/task:1", "/job:tpu_worker/task:3", "/replica:0/task:2/device:CPU:0",
    "/job:worker/task:0", "/job:worker/task:0/device:TPU:5"])
def test_op_of_any_host_runs_here(device):
    with tf.Graph().as_default():
        with tf.device(device):
            total = tf.constant(1) + 2
        assert run(total) == 3


@pytest.mark.parametrize("build, expected", [
    (dataset, [2, 3, 4, 4, 5, 6]), (function_with_a_device_inside, 4.0),
    (defun_with_a_device_inside, 4.0),
    (gradient_of_a_condition_in_a_function, 2.0), (variable_of_version_1, 4.0), (queue, 1.0),
    (lambda: v1.while_loop(lambda i: i < 5, lambda i: i + 1, [tf.constant(0)]), 5),
    (lambda: tf.map_fn(lambda x: x + 1, tf.constant([1, 2])), [2, 3]),
    (lambda: v1.py_func(lambda: 3.0, [], tf.double), 3.0)])
def test_whatever_is_built_on_a_host_runs_here(build, expected):
    with tf.Graph().as_default():
        with tf.device(FOREIGN):
            result = build()
        found = run(result)
    assert getattr(found, "tolist", lambda: found)() == expected


def test_device_says_the_host_until_a_session_has_the_op():
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device(FOREIGN):
            first = tf.constant(1)
        assert first.device == FOREIGN
        assert session.run(first) == 1 and first.device == "/device:CPU:0"
        with tf.device("/job:localhost/task:0/device:CPU:0"):
            second = first + 1
        with tf.device(FOREIGN):
            third = second + 1
        assert session.run(third) == 3
        assert second.device == "/job:localhost/task:0/device:CPU:0"
        assert v1.Session().run(third) == 3


def test_program_of_16_cores_feeds_the_replicas_of_each_host():
    with tf.Graph().as_default(), v1.Session() as session:
        topology = session.run(v1.tpu.initialize_system(job="worker"))
        assignment = tf.tpu.experimental.DeviceAssignment.build(topology, num_replicas=16)
        cores = {}
        for host in range(4):
            for replica in assignment.lookup_replicas(host, 0):
                with tf.device(assignment.host_device(replica, job="worker")):
                    op = tf.constant(replica)
                ordinal = assignment.tpu_ordinal(replica)
                cores[tpu_cores.core_of(op.device, ordinal)] = op
        assert session.run(cores) == {core: core for core in range(16)}


@pytest.mark.long
def test_ops_that_a_thread_adds_meanwhile_run_here():
    with tf.Graph().as_default() as graph, v1.Session() as session:
        stop = threading.Event()
        added = []

        def add():
            with graph.as_default(), tf.device(FOREIGN):
                while not stop.is_set():
                    added.append(tf.constant(len(added)))

        thread = threading.Thread(target=add)
        thread.start()
        try:
            while len(added) < 300:
                if added:
                    assert session.run(added[-1]) >= 0
        finally:
            stop.set()
            thread.join()


def test_device_stays_where_nothing_stands_in_for_a_tpu(no_stand_in):
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device(FOREIGN):
            constant = tf.constant(1)
        assert is_refused(session, constant) and constant.device == FOREIGN


def test_initialized_system_stands_in_for_one_host(no_stand_in):
    with tf.Graph().as_default():
        system = v1.tpu.initialize_system(job="worker")
        with tf.device("/job:worker/task:0/device:CPU:0"):
            one = tf.constant(1)
        assert run([system, one])[1] == 1


def test_session_with_a_cluster_keeps_devices(monkeypatch):
    server = tf.distribute.Server.create_local_server()
    for target, cluster in ((server.target, ""), ("", json.dumps({"cluster": {"ps": ["a:1"]}}))):
        monkeypatch.setenv("TF_CONFIG", cluster)
        with tf.Graph().as_default(), v1.Session(target) as session:
            with tf.device(FOREIGN):
                constant = tf.constant(1)
            assert is_refused(session, constant) and constant.device == FOREIGN


@pytest.mark.parametrize("value", ["{}", "{", '{"task": {"type": "worker", "index": 0}}'])
def test_session_without_a_cluster_has_devices_of_this_machine(monkeypatch, value):
    monkeypatch.setenv("TF_CONFIG", value)
    with tf.Graph().as_default(), v1.Session() as session:
        with tf.device(FOREIGN):
            constant = tf.constant(1)
        assert session.run(constant) == 1


def test_function_of_an_eager_program_keeps_devices():
    @tf.function
    def one():
        with tf.device("/job:worker/task:1"):
            return tf.constant(1, name="one")

    graph = one.get_concrete_function().graph
    assert graph.get_operation_by_name("one").device == "/job:worker/task:1"
