# SPDX-License-Identifier: Apache-2.0
"""The variables of a TPUEmbedding: names, parts, slots, checkpoints."""

import numpy as np
import pytest
import tensorflow as tf

from tests.spec import oracle
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.compat.modules import tpu_embedding as te
from tpu_estimator_embedding.patches import patch, patch_table

# *Parameters, their tuple of slots, and name and initial value of each.
SLOTS = [
    (te.AdagradParameters(0.1, 0.3), te.AdagradSlotVariables, {"words/Adagrad": 0.3}),
    (te.AdagradMomentumParameters(0.1, 0.5), te.AdagradMomentumSlotVariables,
     {"words/AdagradMomentum/Accumulator": 0, "words/AdagradMomentum/Momentum": 0}),
    (te.ProximalAdagradParameters(0.1, 0.3), te.ProximalAdagradSlotVariables,
     {"words/ProximalAdagrad": 0.3}),
    (te.AdamParameters(0.1), te.AdamSlotVariables, {"words/Adam/m": 0, "words/Adam/v": 0}),
    (te.FtrlParameters(0.1, initial_accumulator_value=0.3), te.FtrlSlotVariable,
     {"words/Ftrl": 0.3, "words/Ftrl_1": 0}),
    (te.ProximalYogiParameters(0.1, initial_accumulator_value=0.3), te.ProximalYogiSlotVariables,
     {"words/ProximalYogi": 0.3, "words/ProximalYogi_1": 0}),
    (te.MomentumParameters(0.1, 0.5), te.MomentumSlotVariables, {"words/Momentum": 0}),
    (te.RMSPropParameters(0.1, 0.9, 0.5, 0.1), te.RMSPropSlotVariables,
     {"words/RMSProp/ms": 0, "words/RMSProp/mom": 0}),
    (te.FrequencyEstimatorParameters(0.1, 9.0, 2.0, 1.0), te.FrequencyEstimatorSlotVariables,
     {"words/FrequencyEstimator": 0}),
]


@pytest.fixture(autouse=True)
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def savers_that_know_layouts():
    with patch.applied(patch_table.SAVERS):
        yield


def make(optimizer=None, vocabulary_size=13, num_hosts=1, mode=te.TRAINING, strategy="div",
         **table_options):
    return te.TPUEmbedding(
        {"words": te.TableConfig(vocabulary_size, 1, **table_options)},
        {"title": te.FeatureConfig("words")}, num_hosts, mode, partition_strategy=strategy,
        optimization_parameters=optimizer, device_config=te.DeviceConfig(
            num_hosts, num_hosts, "/job:localhost"))


def values_of(parts):
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        return np.concatenate(session.run(parts))


@pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")
@pytest.mark.parametrize("optimizer, kind, slots", SLOTS,
                         ids=[type(optimizer).__name__ for optimizer, _, _ in SLOTS])
def test_slots(graph, optimizer, kind, slots):
    made = make(optimizer, num_hosts=5).create_variables_and_ops()
    own = made.slot_variables_by_table["words"]
    assert type(own) is kind
    for parts, (name, value) in zip(own, slots.items(), strict=True):
        assert [part.op.name for part in parts] == [f"{name}/part_{host}" for host in range(5)]
        assert (values_of(parts) == np.float32(value)).all()
    assert graph.get_collection("trainable_variables") == []


def test_table_has_a_part_for_each_host(graph):
    made = make(te.StochasticGradientDescentParameters(0.1), num_hosts=5)
    made = made.create_variables_and_ops()
    parts = made.embedding_variables_by_table["words"]
    assert [part.op.name for part in parts] == [f"words/part_{host}" for host in range(5)]
    assert [part.shape[0] for part in parts] == [3, 3, 3, 2, 2]
    assert made.slot_variables_by_table == {"words": None}
    assert graph.get_collection("variables") == parts
    assert graph.get_collection("local_variables") == []


def test_names_may_be_given():
    made = make(te.AdamParameters(0.1)).create_variables_and_ops(
        {"words": "tower/weights"}, {"words": te.AdamSlotVariableNames("first", "second")})
    slots = made.slot_variables_by_table["words"]
    assert made.embedding_variables_by_table["words"][0].op.name == "tower/weights/part_0"
    assert (slots.m[0].op.name, slots.v[0].op.name) == ("first/part_0", "second/part_0")


def test_a_table_without_slots_needs_no_names_of_slots():
    optimizer = te.StochasticGradientDescentParameters(0.1)
    for names in ({}, {"words": None}):
        with tf.Graph().as_default():
            made = make(optimizer).create_variables_and_ops(None, names)
            assert made.slot_variables_by_table == {"words": None}


@pytest.mark.parametrize("arguments, sentence", [
    (({"title": "weights"}, None),
     r"`embedding_variable_name_by_table` must have all tables \['words'\], or be None, "
     r"got \['title'\]. Missing: \['words'\]"),
    ((None, {"title": te.AdagradSlotVariableNames("a")}),
     r"`slot_variable_names_by_table` must have all tables \['words'\]"),
    ((None, {"words": te.AdamSlotVariableNames("m", "v")}),
     r"`slot_variable_names_by_table\['words'\]` must be a tuple with the fields "
     r"\('accumulator',\), got AdamSlot"),
    ((None, {"words": "words/Adagrad"}),
     r"`slot_variable_names_by_table\['words'\]` must be a tuple with the fields"),
])
def test_names_that_do_not_fit(graph, arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(te.AdagradParameters(0.1)).create_variables_and_ops(*arguments)
    assert graph.get_collection("variables") == []


def test_names_of_slots_for_a_table_without():
    with pytest.raises(ValueError, match=r"\['words'\]` must be None, it has no slots, got Adagr"):
        make(te.StochasticGradientDescentParameters(0.1)).create_variables_and_ops(
            None, {"words": te.AdagradSlotVariableNames("a")})


def test_inference_has_no_slots():
    engine = make(mode=te.INFERENCE)
    assert engine.create_variables_and_ops().slot_variables_by_table == {"words": None}
    assert isinstance(engine.optimization_parameters, te.StochasticGradientDescentParameters)
    assert engine.optimization_parameters.learning_rate == 1.0


def test_inference_has_the_slots_of_a_tables_own_optimizer():
    engine = make(mode=te.INFERENCE, optimization_parameters=te.AdagradParameters(0.1))
    slots = engine.create_variables_and_ops().slot_variables_by_table["words"]
    assert slots.accumulator[0].op.name == "words/Adagrad/part_0"


@pytest.mark.parametrize("source, target", [("div", "div"), ("mod", "mod"), ("mod", "div")])
@pytest.mark.usefixtures("savers_that_know_layouts")
def test_checkpoint_goes_to_another_number_of_hosts(tmp_path, source, target):
    path = str(tmp_path / "model")
    made = make(te.AdagradParameters(0.1), num_hosts=3, strategy=source)
    made = made.create_variables_and_ops()
    values = np.arange(13, dtype=np.float32)[:, np.newaxis]
    with tf.compat.v1.Session() as session:
        session.run(tf.compat.v1.global_variables_initializer())
        for part, rows in zip(made.embedding_variables_by_table["words"],
                              oracle.cut(values, 3, source), strict=True):
            part.load(rows, session)
        session.run(made.retrieve_ops())
        tf.compat.v1.train.Saver().save(session, path)
    assert dict(tf.train.list_variables(path)) == {
        "words": [13, 1], "words/Adagrad": [13, 1], TABLE_LAYOUTS_KEY: []}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        made = make(te.AdagradParameters(0.2), num_hosts=2, strategy=target)
        made = made.create_variables_and_ops()
        tf.compat.v1.train.Saver().restore(session, path)
        session.run(made.load_ops())
        restored = session.run(made.embedding_variables_by_table["words"])
    for part, rows in zip(restored, oracle.cut(values, 2, target), strict=True):
        np.testing.assert_array_equal(part, rows)


def test_properties_are_copies_sorted_by_name():
    tables = {name: te.TableConfig(10, 1) for name in ("words", "users")}
    features = {"title": te.FeatureConfig("words"), "author": te.FeatureConfig("users"),
                "body": te.FeatureConfig("words")}
    engine = te.TPUEmbedding(tables, features, 6, te.TRAINING, "", te.AdagradParameters(0.1))
    assert list(engine.table_to_config_dict) == ["users", "words"]
    assert list(engine.feature_to_config_dict) == ["author", "body", "title"]
    assert dict(engine.table_to_features_dict) == {"users": ["author"], "words": ["body", "title"]}
    for name in ("table_to_config_dict", "feature_to_config_dict", "table_to_features_dict",
                 "hosts"):
        getattr(engine, name).clear()
        assert getattr(engine, name)
    assert (engine.num_cores, engine.num_cores_per_host, engine.batch_size_per_core) == (1, 1, 6)


@pytest.mark.parametrize("arguments, hosts", [
    ({"master": ""}, ["/job:localhost/replica:0/task:0/device:CPU:0"]),
    ({"master": "local"}, ["/job:localhost/replica:0/task:0/device:CPU:0"]),
    ({"master": "grpc://host:1"}, ["/job:tpu_worker/replica:0/task:0/device:CPU:0"]),
    ({"master": "grpc://host:1", "master_job_name": "worker"},
     ["/job:worker/replica:0/task:0/device:CPU:0"]),
    ({"master": "grpc://host:1",
      "cluster_def": tf.train.ClusterSpec({"chief": ["host:1"]}).as_cluster_def()},
     ["/job:chief/replica:0/task:0/device:CPU:0"]),
    ({"device_config": te.DeviceConfig(2, 2, "/job:worker")},
     [f"/job:worker/replica:0/task:{task}/device:CPU:0" for task in range(2)]),
    ({"device_config": te.DeviceConfig(1, 2, "/job:worker"), "master_job_name": "ps"},
     ["/job:ps/replica:0/task:0/device:CPU:0"]),
])
def test_hosts(arguments, hosts):
    engine = te.TPUEmbedding(
        {"words": te.TableConfig(10, 1)}, {"title": te.FeatureConfig("words")}, 2, te.TRAINING,
        optimization_parameters=te.AdagradParameters(0.1), **arguments)
    assert engine.hosts == hosts


def test_cores_and_hosts_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_CORES", "4")
    monkeypatch.setenv("TPU_ESTIMATOR_EMBEDDING_HOSTS", "2")

    def engine(**arguments):
        return te.TPUEmbedding(
            {"words": te.TableConfig(10, 1)}, {"title": te.FeatureConfig("words")}, 8, te.TRAINING,
            optimization_parameters=te.AdagradParameters(0.1), **arguments)

    found = engine(master="")
    assert (found.num_cores, found.num_cores_per_host, found.batch_size_per_core) == (4, 2, 2)
    assert found.hosts == [f"/job:localhost/replica:0/task:{task}/device:CPU:0" for task in (0, 1)]
    assert engine(device_config=te.DeviceConfig(1, 2, "/job:worker")).num_cores == 2
