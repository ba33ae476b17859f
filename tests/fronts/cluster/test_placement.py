# SPDX-License-Identifier: Apache-2.0
"""Where a trainer of a cluster puts its tables and its ops, and whom it waits for."""

import json
import logging
import socket
import sys

import pytest
import tensorflow as tf
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tests.fronts.cluster import train as program
from tests.kernel_choice import choose_kernels
from tests.subprocesses import start
from tpu_estimator_embedding.checkpoint.program_savers import shard_savers
from tpu_estimator_embedding.estimator.cluster.tasks import (
    Cluster,
    check_is_trainer,
    cluster_of,
    with_device_filters,
)

pytestmark = pytest.mark.every_tensorflow

CLUSTER = {"chief": ["h:1"], "worker": ["h:2"], "ps": ["h:3", "h:4", "h:5"]}


def set_task(monkeypatch, job, number=0):
    monkeypatch.setenv("TF_CONFIG", json.dumps(
        {"cluster": CLUSTER, "task": {"type": job, "index": number}}))


@pytest.fixture
def new_estimator(tmp_path):
    tpu_estimator_embedding.install()
    return lambda **kwargs: program.new_estimator(str(tmp_path), "mod", **kwargs)


@pytest.mark.parametrize("job", ["ps", "evaluator"])
def test_train_of_a_task_that_does_not_train_is_refused_at_once(monkeypatch, new_estimator, job):
    set_task(monkeypatch, job)
    estimator = new_estimator()
    with pytest.raises(ValueError, match="^Train has been called wrong configuration. Please use "
                       rf"tf.estimator.train_and_evaluate .* This task is {job} 0 of TF_CONFIG"):
        estimator.train(program.input_fn, max_steps=1)


def test_workers_without_servers_train_nothing(monkeypatch, caplog, new_estimator):
    caplog.set_level(logging.INFO, logger="tensorflow")
    monkeypatch.delitem(CLUSTER, "ps")
    set_task(monkeypatch, "worker")
    with pytest.raises(ValueError, match="The cluster of worker 0 must have parameter servers.*"
                                         'got no ps task.* Add "ps" to "cluster"'):
        new_estimator().train(program.input_fn, max_steps=1)
    set_task(monkeypatch, "chief")
    check_is_trainer(new_estimator().config)
    assert "the chief trains alone, without worker 0: the cluster has no ps task" in caplog.text
    caplog.clear()
    set_task(monkeypatch, "worker")
    check_is_trainer(new_estimator().config.replace(device_fn=lambda op: "/job:chief"))
    assert "ps task" not in caplog.text


def graph_of(estimator):
    with tf.Graph().as_default() as graph, graph.device(estimator._device_fn):
        tf.compat.v1.train.create_global_step()
        spec_of(estimator)
    return graph


def spec_of(estimator):
    """Returns the spec of a training, whose input and model are built in the default graph."""
    call = estimator._call(tf.estimator.ModeKeys.TRAIN, checkpoint_path=None)
    return estimator._build(program.input_fn, call).spec


def tasks_of(graph, kinds):
    return {(spec.job, spec.task) for op in graph.get_operations() if op.type in kinds
            for spec in [tf.DeviceSpec.from_string(op.device)]}


def test_parts_lookups_and_updates_are_on_the_server_of_their_host(monkeypatch, new_estimator):
    set_task(monkeypatch, "worker")
    graph = graph_of(new_estimator())
    servers = {("ps", 0), ("ps", 1), ("ps", 2)}
    assert tasks_of(graph, {"TpuEmbeddingFlatLookUp"}) == servers
    assert tasks_of(graph, {"TpuEmbeddingUpdate"}) == servers
    for variable in ("words", "words/Adagrad", "items", "items/Adam/m", "items/Adam/v"):
        for host in range(3):
            handle = graph.get_operation_by_name(f"{variable}/part_{host}")
            assert tf.DeviceSpec.from_string(handle.device).task == host
            fill = graph.get_operation_by_name(f"{variable}/part_{host}/Assign").inputs[1].op
            assert tf.DeviceSpec.from_string(fill.device).task == host


def test_ids_are_read_and_prepared_in_the_task_itself(monkeypatch, new_estimator):
    set_task(monkeypatch, "worker")
    graph = graph_of(new_estimator())
    assert tasks_of(graph, {"TpuEmbeddingPrepareIds", "FIFOQueueV2", "IteratorV2"}) <= {
        ("worker", 0)}


def test_num_hosts_is_the_number_of_servers(monkeypatch, new_estimator):
    set_task(monkeypatch, "chief")
    assert new_estimator(num_hosts=3)._plan(training=True).num_hosts == 3
    assert new_estimator()._plan(training=False).num_hosts == 1  # evaluated in one process
    with pytest.raises(ValueError, match=r"`num_hosts` must be 3, the number of ps tasks in "
                                         r"TF_CONFIG, got 2\. Leave it out"):
        new_estimator(num_hosts=2)


def test_evaluators_have_their_tables_to_themselves(monkeypatch, new_estimator):
    set_task(monkeypatch, "evaluator")
    estimator = new_estimator()
    assert cluster_of(estimator.config) == Cluster((), "")
    assert estimator._plan(training=True).num_hosts == 1


@pytest.mark.parametrize("job", ["chief", "worker"])
def test_sessions_with_own_settings_wait_for_servers_only(monkeypatch, tmp_path, job):
    set_task(monkeypatch, job)
    tpu_estimator_embedding.install()
    settings = tf.compat.v1.ConfigProto(log_device_placement=True)
    config = tf.compat.v1.estimator.tpu.RunConfig(model_dir=str(tmp_path), session_config=settings)
    estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
        lambda features: None, config=config, train_batch_size=8)
    assert estimator._session_config.log_device_placement
    assert estimator._session_config.device_filters == ["/job:ps", f"/job:{job}/task:0"]
    assert not settings.device_filters
    plain = with_device_filters(config.replace(session_config=None)).session_config
    assert plain.device_filters == estimator._session_config.device_filters
    assert plain.allow_soft_placement
    own = tf.compat.v1.ConfigProto(device_filters=["/job:ps/task:1"])
    assert with_device_filters(config.replace(session_config=own)).session_config == own


@pytest.mark.parametrize("own_saver", [False, True])
def test_each_server_saves_and_restores_its_parts_of_one_step(monkeypatch, tmp_path, own_saver):
    set_task(monkeypatch, "chief")
    choose_kernels("native", monkeypatch)
    tpu_estimator_embedding.install()
    estimator = program.new_estimator(str(tmp_path), "mod")
    with tf.Graph().as_default() as graph, graph.device(estimator._device_fn):
        tf.compat.v1.train.create_global_step()
        spec = spec_of(estimator)
        saver = tf.compat.v1.train.Saver(sharded=not own_saver)
        scaffold = tf.compat.v1.train.Scaffold(saver=saver)
        before = set(graph.get_operations())
        shard_savers(scaffold, spec.training_hooks)
    of_saver = [op for op in graph.get_operations() if not own_saver or op not in before]
    everyone = {("ps", number) for number in range(3)}
    for kind in ("SaveV2", "RestoreV2"):
        ops = [op for op in of_saver if op.type == kind]
        assert {place(op) for op in ops} == everyone
        for op in ops:
            inputs = {place(tensor.op) for tensor in op.inputs if tensor.dtype == tf.float32}
            assert inputs <= {place(op)}
    snapshots = [op for op in of_saver if op.type == "TpuEmbeddingSnapshot"]
    assert {place(op) for op in snapshots} == everyone and len(snapshots) == 3
    assert all(len(op.inputs) == 5 for op in snapshots)  # two tables and their slots


def place(op):
    spec = tf.DeviceSpec.from_string(op.device)
    return spec.job, spec.task


SYNCHRONOUS = tpu_estimator_embedding.ClusterConfig(synchronous=True)


def test_synchronous_workers_refuse_statistics(monkeypatch, new_estimator):
    set_task(monkeypatch, "worker")
    model_fn = program.model_fn
    monkeypatch.setattr(program, "model_fn", lambda features, labels, mode, params: model_fn(
        features, labels, mode, params)._replace(
            training_hooks=[tpu_estimator_embedding.EmbeddingStatisticsHook()]))
    with pytest.raises(ValueError, match="EmbeddingStatisticsHook cannot measure workers that "
                                         "train synchronously. Leave it and --statistics out"):
        graph_of(new_estimator(cluster_config=SYNCHRONOUS))


def test_synchronous_workers_need_a_sum_of_gradients(monkeypatch, new_estimator):
    set_task(monkeypatch, "worker")
    estimator = new_estimator(cluster_config=SYNCHRONOUS)
    monkeypatch.setattr(program.tf.tpu, "CrossShardOptimizer", lambda optimizer: optimizer)
    with pytest.raises(ValueError, match="^CrossShardOptimizer must be used for model training on "
                                         "TPUs"):
        graph_of(estimator)


def sum_of_sums(gradient):
    sum_ = tf.compat.v1.tpu.cross_replica_sum
    return sum_(gradient / (1 + sum_(tf.reduce_sum(gradient))))


def sum_of_some(gradient):
    return tf.compat.v1.tpu.cross_replica_sum(gradient, group_assignment=[[0], [1]])


def exchange(gradient):
    return tpu_ops.collective_permute(gradient, [[0, 1], [1, 0]])


@pytest.mark.parametrize("summed", [sum_of_sums, sum_of_some, exchange])
def test_synchronous_workers_refuse_sums_of_sums_and_of_some(monkeypatch, new_estimator, summed):
    set_task(monkeypatch, "worker")
    estimator = new_estimator(cluster_config=SYNCHRONOUS)
    optimizer = program.tf.train.GradientDescentOptimizer

    class Optimizer(optimizer):
        def apply_gradients(self, grads_and_vars, *args, **kwargs):
            return super().apply_gradients(
                [(summed(gradient), variable) for gradient, variable in grads_and_vars],
                *args, **kwargs)

    monkeypatch.setattr(program.tf.tpu, "CrossShardOptimizer", lambda _: Optimizer(0.01))
    with pytest.raises(ValueError, match=r"Where workers train synchronously, cross_replica_sum "
                                         r"must sum gradients, over all replicas, got "
                                         r"\['.*'\]\. Normalize per worker, or train in one"):
        graph_of(estimator)


def test_training_on_servers_requires_the_kernels(monkeypatch, new_estimator):
    set_task(monkeypatch, "worker")
    choose_kernels("off", monkeypatch)
    with pytest.raises(RuntimeError, match="requires the native kernels.*build-kernels"):
        graph_of(new_estimator())


PROGRAM = """
import sys
import tensorflow as tf
import tpu_estimator_embedding
from tests.fronts.estimator.counting import input_of, new_estimator, run_config
tpu_estimator_embedding.install()
estimator = new_estimator(sys.argv[1], config=run_config())
tf.compat.v1.estimator.train_and_evaluate(
    estimator, tf.estimator.TrainSpec(input_of(range(8)), max_steps=2),
    tf.estimator.EvalSpec(input_of(range(8)), steps=1))
assert estimator.get_variable_value("global_step") == 2
"""


@pytest.mark.long
def test_a_chief_does_not_wait_for_an_evaluator_among_its_tasks(tmp_path):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    chief, evaluator = (f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
    for each in sockets:
        each.close()
    done = start([sys.executable, "-c", PROGRAM, tmp_path], timeout=120, TF_CONFIG=json.dumps({
        "cluster": {"chief": [chief], "evaluator": [evaluator]},
        "task": {"type": "chief", "index": 0}}))
    assert done.returncode == 0, done.stderr
