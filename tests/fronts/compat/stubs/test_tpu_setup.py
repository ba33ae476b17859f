# SPDX-License-Identifier: Apache-2.0
"""Programs that set a TPU system up: without one they use this machine, with one that."""

import inspect
import json
import logging
import socket

import pytest
import tensorflow as tf
from tensorflow.python.distribute.cluster_resolver import tpu_cluster_resolver

import tpu_estimator_embedding
from tests import fake_tpu
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.stubs import tpu_setup, tpu_system
from tpu_estimator_embedding.patches import patch
from tpu_estimator_embedding.runtime import install_table

tpu_estimator_embedding.install()

v1 = tf.compat.v1
TPUClusterResolver = tf.distribute.cluster_resolver.TPUClusterResolver
RunConfig = v1.estimator.tpu.RunConfig


@pytest.fixture(autouse=True)
def a_process_that_knows_nothing(monkeypatch, caplog):
    caplog.set_level(logging.WARNING, logger="tensorflow")  # other tests may have raised it
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.setattr(tpu_system, "_logged", [])
    monkeypatch.setattr(tpu_system, "CONNECT_SECONDS", 0.3)
    monkeypatch.setenv("GCE_METADATA_HOST", f"localhost:{closed_port()}")
    for name in ("TF_CONFIG", "TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def closed_port():
    with socket.socket() as unused:
        unused.bind(("localhost", 0))
        return unused.getsockname()[1]


def closed_address():
    return f"grpc://localhost:{closed_port()}"


@pytest.fixture(scope="module", name="tpu_address")
def the_address_of_a_tpu():
    with fake_tpu.serving() as address:
        yield address


@pytest.mark.parametrize("arguments", [
    (), ("",), ("local",), ("my-tpu", "us-central1-b", "project"), (["my-tpu"],), (b"my-tpu",),
    ("grpc://localhost:1,grpc://localhost:2",)], ids=str)
def test_resolver_without_a_tpu_is_of_this_machine(arguments):
    resolver = TPUClusterResolver(*arguments)
    assert tpu_system.is_this_machine(resolver)
    assert resolver.master() == resolver.get_master() == ""
    assert not resolver.cluster_spec() and resolver.cluster_spec().as_dict() == {}
    assert resolver.num_accelerators() == {"TPU": 1}
    assert (resolver.task_type, resolver.task_id, resolver.rpc_layer) == ("worker", 0, None)
    assert (resolver.get_job_name(), resolver.environment) == ("worker", "")
    assert not tpu_system.is_present()


@pytest.mark.parametrize("variable", ["TPU_NAME", "KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS"])
def test_resolver_without_a_name_takes_that_of_the_environment(variable, monkeypatch,
                                                               tpu_address):
    monkeypatch.setenv(variable, tpu_address)
    assert TPUClusterResolver().master() == tpu_address
    monkeypatch.setenv(variable, closed_address())
    assert TPUClusterResolver().master() == ""


def test_cluster_of_this_machine_has_one_task():
    cluster = TPUClusterResolver("x", job_name="tpu_worker").cluster_spec()
    assert (cluster.num_tasks("tpu_worker"), cluster.task_indices("tpu_worker")) == (1, [0])
    assert not cluster and cluster == tf.train.ClusterSpec({})
    assert TPUClusterResolver("").cluster_spec().num_tasks("worker") == 1
    with pytest.raises(ValueError, match="^No such job in cluster: 'other'"):
        cluster.num_tasks("other")


def test_version_of_a_cloud_tpu_needs_no_change():
    client = TPUClusterResolver("x")._cloud_tpu_client
    assert client.configure_tpu_version("2.1.0", restart_type="ifNeeded") is None
    assert client.wait_for_healthy() is None


@pytest.mark.parametrize("cores", ["0", "-1", "eight"])
def test_number_of_cores_is_checked(monkeypatch, cores):
    monkeypatch.setenv(settings.CORES.variable, cores)
    with pytest.raises(ValueError, match=f"`TPU_ESTIMATOR_EMBEDDING_CORES` must be a positive .*, "
                                         f"got '{cores}'"):
        TPUClusterResolver("").num_accelerators()


def test_hosts_are_those_of_the_variable_everywhere(monkeypatch):
    monkeypatch.setenv(settings.CORES.variable, "16")
    monkeypatch.setenv(settings.HOSTS.variable, "4")
    resolver = TPUClusterResolver("", job_name="tpu_worker")
    assert resolver.num_accelerators() == {"TPU": 4}
    with tf.Graph().as_default(), v1.Session() as session:
        assert resolver.get_tpu_system_metadata()[:3] == (16, 4, 4)
        serialized = session.run(v1.tpu.initialize_system())
    topology = tf.tpu.experimental.Topology(serialized=serialized)
    assert (topology.num_tasks, topology.num_tpus_per_task) == (4, 4)
    assert resolver.cluster_spec().task_indices("tpu_worker") == [0, 1, 2, 3]
    assert tf.tpu.experimental.initialize_tpu_system(resolver).num_tasks == 4


def test_resolver_takes_every_argument_and_starts_no_coordinator():
    resolver = TPUClusterResolver(
        tpu="x", zone="z", project="p", job_name="tpu_worker", coordinator_name="coordinator",
        coordinator_address=None, credentials=None, service=object(), discovery_url="http://x")
    assert resolver.get_job_name() == "tpu_worker" and not resolver.cluster_spec()
    assert not hasattr(resolver, "_server")


def test_tpu_that_answers_is_tensorflows(tpu_address, caplog):
    resolver = TPUClusterResolver(tpu_address)
    assert not tpu_system.is_this_machine(resolver) and tpu_system.is_present()
    assert resolver.master() == tpu_address
    assert resolver.cluster_spec().as_dict() == {"worker": [tpu_address.removeprefix("grpc://")]}
    assert RunConfig(master=tpu_address).master == tpu_address
    config = RunConfig(cluster=resolver)
    assert config.master == tpu_address and config.session_config.cluster_def.job
    with tf.Graph().as_default() as graph:
        v1.tpu.initialize_system()
        v1.tpu.shutdown_system()
        v1.tpu.rewrite(lambda x: 2 * x, [tf.constant(1.0)])
    assert {"ConfigureDistributedTPU", "ShutdownDistributedTPU", "TPUReplicateMetadata"} <= {
        op.type for op in graph.get_operations()}
    assert v1.tpu.core(0) == "device:TPU_REPLICATED_CORE:0"
    assert "stands in" not in caplog.text


def test_name_is_looked_up_on_google_cloud_only(monkeypatch, tpu_address, caplog):
    monkeypatch.setattr(tpu_system, "is_on_google_cloud", lambda: True)
    monkeypatch.setattr(tpu_cluster_resolver.TPUClusterResolver, "master",
                        lambda self: tpu_address)
    assert not tpu_system.is_this_machine(TPUClusterResolver("name", "zone", "project"))

    def fail(self):
        raise RuntimeError("no such node")

    monkeypatch.setattr(tpu_cluster_resolver.TPUClusterResolver, "master", fail)
    assert tpu_system.is_this_machine(TPUClusterResolver("name", "zone", "project"))
    assert "at 'name' (RuntimeError: no such node); this machine" in caplog.text


def test_subclasses_and_instances_stay_resolvers():
    class Mine(TPUClusterResolver):
        def master(self, *arguments, **named):
            return super().master(*arguments, **named) or "mine"

    assert isinstance(Mine("x"), tpu_cluster_resolver.TPUClusterResolver)
    assert Mine("x").master() == "mine"
    assert v1.distribute.cluster_resolver.TPUClusterResolver is TPUClusterResolver


def test_connecting_and_initializing_do_nothing_and_say_so_once(caplog):
    resolver = TPUClusterResolver.connect("grpc://localhost:1")
    tf.config.experimental_connect_to_cluster(resolver)
    tf.config.experimental_connect_to_host(closed_address())
    topology = tf.tpu.experimental.initialize_tpu_system(resolver)
    assert (topology.num_tasks, topology.num_tpus_per_task) == (1, 1)
    assert resolver.tpu_hardware_feature is not None
    assert tf.tpu.experimental.initialize_tpu_system().mesh_shape.tolist() == [1, 1, 1, 1]
    tf.tpu.experimental.shutdown_tpu_system(resolver)
    tf.tpu.experimental.shutdown_tpu_system()
    messages = [record.getMessage() for record in caplog.records if "stands in" in record.msg % (
        record.args or ())]
    assert messages == ["tpu_estimator_embedding: no TPU answers at grpc://localhost:1; "
                        "this machine stands in for it."]
    assert float(tf.constant(1.0) + 1) == 2  # eager operations go on


def test_topology_in_a_function_is_serialized():
    serialized = tf.function(tf.tpu.experimental.initialize_tpu_system)()
    assert tf.tpu.experimental.Topology(serialized=serialized.numpy()).num_tasks == 1


def test_system_is_initialized_in_a_session():
    from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as embedding_pb2
    with tf.Graph().as_default(), v1.Session() as session:
        start = v1.tpu.initialize_system()
        embedding = v1.tpu.initialize_system(embedding_pb2.TPUEmbeddingConfiguration(), "worker")
        stop = v1.tpu.shutdown_system(job="worker")
        for serialized in session.run([start, embedding, stop])[:2]:
            assert tf.tpu.experimental.Topology(serialized=serialized).num_tasks == 1


def test_core_places_nothing():
    with tf.Graph().as_default(), tf.device(v1.tpu.core(3)):
        assert tf.constant(1.0).device == ""


def test_scopes_and_outside_compilation_mean_what_they_say():
    with tf.Graph().as_default(), v1.Session() as session, v1.tpu.bfloat16_scope():
        doubled = v1.tpu.outside_compilation(lambda x: 2 * x, tf.constant(3.0))
        assert session.run(doubled) == 6.0


# RunConfig.


@pytest.mark.parametrize("arguments", [
    {"master": "grpc://localhost:1"}, {"master": "grpc://localhost:1", "evaluation_master": "x"},
    {"master": "", "evaluation_master": "grpc://localhost:1"}, {"cluster": "grpc://localhost:1"}])
def test_run_config_without_a_tpu_is_of_this_machine(arguments):
    if "cluster" in arguments:
        arguments = {"cluster": TPUClusterResolver(arguments["cluster"])}
    config = RunConfig(tpu_config=v1.estimator.tpu.TPUConfig(num_shards=4), **arguments)
    assert (config.master, config.evaluation_master) == (
        "", "x" if arguments.get("evaluation_master") == "x" else "")
    assert config.cluster is arguments.get("cluster") and config.tpu_config.num_shards == 4
    assert config.replace(model_dir="y").master == "" and not config.cluster_spec


def test_master_of_the_environment_is_probed_too(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"session_master": closed_address()}))
    assert RunConfig().master == RunConfig().evaluation_master == ""


def test_cluster_of_the_environment_stays(monkeypatch):
    cluster = {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": cluster, "task": {"type": "worker", "index": 0}}))
    config = RunConfig()
    assert config.master == "grpc://localhost:3" and config.num_ps_replicas == 1
    assert config.cluster_spec.as_dict() == cluster


def test_server_without_tpus_stays_the_master():
    server = tf.distribute.Server.create_local_server()
    assert RunConfig(master=server.target).master == server.target


def test_server_that_waits_for_its_cluster_stays_the_master(monkeypatch):
    with socket.socket() as waiting:
        waiting.bind(("localhost", 0))
        waiting.listen()
        target = f"grpc://localhost:{waiting.getsockname()[1]}"
        assert RunConfig(master=target).master == target


def test_session_of_a_tpu_that_is_not_there_is_of_this_machine(monkeypatch):
    for target in ("grpc://localhost:1", b"grpc://localhost:1", "", None):
        with tf.Graph().as_default(), v1.Session(target) as session:
            assert session.run([v1.tpu.initialize_system(), tf.constant(1)])[1] == 1
            assert session.list_devices()
    waiting_for = []
    initialize = tpu_setup.creating_session(
        lambda self, target, graph, config: waiting_for.append(target))
    config = v1.ConfigProto()
    config.cluster_def.job.add(name="worker")
    initialize(None, "grpc://localhost:1", config=config)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"ps": ["localhost:1"]}}))
    initialize(None, "grpc://localhost:1")
    assert waiting_for == ["grpc://localhost:1"] * 2


@pytest.mark.parametrize("value, waits", [
    ('{"cluster": {}}', True), ('{"cluster"', True), ("", False), ("{}", False), ("{", False),
    ('{"task": {"type": "worker", "index": 0}}', False)])
def test_session_waits_where_tf_config_names_a_cluster(monkeypatch, value, waits):
    """A wrong value is no error: it is one where a RunConfig is made."""
    targets = []
    initialize = tpu_setup.creating_session(
        lambda self, target, graph, config: targets.append(target))
    monkeypatch.setenv("TF_CONFIG", value)
    initialize(None, "grpc://localhost:1")
    assert targets == ["grpc://localhost:1" if waits else ""]


def test_session_of_a_server_is_of_the_server():
    server = tf.distribute.Server.create_local_server()
    with tf.Graph().as_default(), v1.Session(server.target) as session:
        assert session.sess_str == server.target.encode()


def test_estimator_trains_with_the_resolver_of_a_tpu_that_is_not_there(tmp_path):
    def model_fn(features, labels, mode, params):
        weight = v1.get_variable("weight", initializer=0.0)
        loss = tf.reduce_mean((weight * features["x"] - labels) ** 2)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(0.5))
        return v1.estimator.tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))

    def input_fn(params):
        assert params["context"].num_replicas == 2
        return tf.data.Dataset.from_tensors(([1.0, 1.0], [2.0, 2.0])).map(
            lambda x, y: ({"x": x}, y)).repeat()

    estimator = v1.estimator.tpu.TPUEstimator(
        model_fn, train_batch_size=2, config=RunConfig(
            cluster=TPUClusterResolver("my-tpu"), model_dir=str(tmp_path),
            tpu_config=v1.estimator.tpu.TPUConfig(num_shards=2)))
    estimator.train(input_fn, steps=1)
    assert estimator.get_variable_value("weight") == 2.0


# The stubs have TensorFlow's signatures.


@pytest.mark.parametrize("row", [
    row for row in install_table.TPU_SYSTEM
    if row in patch.originals() and patch.originals()[row].attribute != patch.NOTHING],
    ids=lambda row: row.path)
def test_parameters_are_tensorflows(row):
    own = inspect.signature(patch.current_attribute(row), follow_wrapped=False).parameters
    theirs = inspect.signature(patch.originals()[row].attribute).parameters
    passes_on = [name for name, parameter in own.items()
                 if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)]
    named = [name for name in own if name not in passes_on]
    assert list(theirs)[:len(named)] == named
    assert passes_on or len(named) == len(theirs)
