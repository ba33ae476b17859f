# SPDX-License-Identifier: Apache-2.0
"""Programs whose only configuration is a message, beside the oracle."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import training_loop
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding
from tests.batches import many_ids, with_holes
from tests.fronts.low_level.ops_only_program import (
    FEATURES,
    TABLES,
    VOCABULARIES,
    OpsOnly,
    config,
    gradient_of,
    random_tables,
)
from tests.spec import oracle
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.stubs import tpu_system

tpu_estimator_embedding.install()

v1 = tf.compat.v1

SHARE = 3  # samples of a core
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


@pytest.fixture(autouse=True)
def a_machine_without_a_tpu(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.delenv(settings.HOSTS.variable, raising=False)
    monkeypatch.setenv(settings.CORES.variable, "1")  # ops on the hosts of a TPU run here


def random_batch(rng, size):
    words = VOCABULARIES["words"]
    return {"history": with_holes(rng, many_ids(rng, size, words), last_position=4),
            "shop": many_ids(rng, size, VOCABULARIES["shops"], weighted=True),
            "clicked": many_ids(rng, size, words, weighted=True, padded=True)}


class Beside:
    """A program of ops and the oracle of the same tables."""

    def __init__(self, optimizer, *, cores=1, rates=None, dimensions=(4, 3), seed=5, **options):
        self.rng = np.random.default_rng(seed)
        self.cores = cores
        tables = random_tables(self.rng, optimizer, dimensions)
        self.program = OpsOnly(config(tables, SHARE, cores=cores, **options), tables, rates)
        self.oracle = oracle.Oracle(tables, FEATURES, num_cores=cores)

    def step(self, number, apply=True):
        batch = random_batch(self.rng, SHARE * self.cores)
        expected = self.oracle.activations(batch)
        found = self.program.train(batch, number)
        for feature, of_cores in zip(FEATURES, zip(*found, strict=True), strict=True):
            np.testing.assert_allclose(np.concatenate(of_cores), expected[feature.name],
                                       err_msg=feature.name, **TOLERANCE)
        update = batch, {name: gradient_of(value) for name, value in expected.items()}, number
        if apply:
            self.oracle.apply(*update)
        return update

    def check_tables(self):
        found = self.program.retrieve()
        for name, table in self.oracle.tables.items():
            for value, expected in {"parameters": table.values, **table.slots}.items():
                parts = oracle.cut(expected, self.program.proto.num_hosts, self.program.strategy)
                for own, part in zip(found[name][value], parts, strict=True):
                    np.testing.assert_allclose(own, part, err_msg=f"{name} {value}", **TOLERANCE)


@pytest.mark.parametrize("cores, hosts, strategy", [(1, 1, "div"), (2, 2, "mod")])
@pytest.mark.parametrize("case", CASES)
def test_every_optimizer_loads_trains_and_retrieves(case, cores, hosts, strategy):
    options = {"cores": cores, "hosts": hosts, "strategy": strategy}
    optimizer = CASES[case]
    if optimizer.kind == "FrequencyEstimator":  # its learning rate is the step
        optimizer = dataclasses.replace(optimizer, hyperparameters={
            **optimizer.hyperparameters, "weight_exponent": 1.0})
        options |= {"tags": dict.fromkeys(TABLES, 0), "rates": lambda step: [step],
                    "dimensions": (1, 1)}
    pair = Beside(optimizer, **options)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


@pytest.mark.parametrize("cores, hosts, strategy", [(2, 1, "div"), (2, 2, "div"), (4, 2, "mod")])
def test_cores_and_hosts(cores, hosts, strategy):
    pair = Beside({"words": CASES["Adam"], "shops": CASES["FTRL"]}, cores=cores, hosts=hosts,
                  strategy=strategy)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


@pytest.mark.parametrize("cores", [1, 2])
def test_learning_rates_are_those_of_the_tags(cores):
    def of_words(step):
        return 0.5 / (1.0 + step)

    def of_shops(step):
        return 0.125 * (1.0 + step)

    pair = Beside({"words": dataclasses.replace(CASES["Adagrad"], learning_rate=of_words),
                   "shops": dataclasses.replace(CASES["SGD"], learning_rate=of_shops)},
                  cores=cores, tags={"words": 1, "shops": 0},
                  rates=lambda step: [of_shops(step), of_words(step)])
    for step in range(3):
        pair.step(step)
    pair.check_tables()


def test_limits_decay_and_accumulation_are_those_of_the_message():
    limited = dataclasses.replace(
        CASES["Adagrad"], gradient_limits=(-0.25, 0.5), weight_limits=(-0.75, 0.875), decay=0.125,
        multiply_decay_by_learning_rate=True)
    pair = Beside({"words": limited, "shops": dataclasses.replace(
        CASES["Momentum"], accumulate=False)}, cores=2)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


@pytest.mark.slow
def test_retrieving_in_another_session_applies_the_delayed_update():
    pair = Beside(CASES["Adagrad"], cores=2, pipelined=True)
    first = pair.step(0, apply=False)
    second = pair.step(1, apply=False)
    pair.oracle.apply(*first)
    pair.oracle.apply(*second)
    pair.check_tables()
    third = pair.step(2, apply=False)
    pair.oracle.apply(*third)
    pair.check_tables()


def test_loading_in_another_session_drops_the_delayed_update():
    pair = Beside(CASES["Adagrad"], pipelined=True)
    pair.step(0, apply=False)
    pair.program.load(pair.oracle.tables.values())
    pair.check_tables()


def as_features_by_number(proto):
    """The message as TensorFlow 1.x has it: tables say how many features they have."""
    del proto.feature_descriptor[:]
    proto.table_descriptor[0].num_features = 4  # three positions and one more feature
    proto.table_descriptor[1].num_features = 1
    return proto


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_features_that_tables_count(cores):
    rng = np.random.default_rng(7)
    tables = random_tables(rng, CASES["Adagrad"])
    program = OpsOnly(as_features_by_number(config(tables, SHARE, cores=cores)), tables)
    reference = oracle.Oracle(tables, FEATURES, num_cores=cores)
    batch = random_batch(rng, SHARE * cores)
    expected = reference.activations(batch)
    words, shops = (np.concatenate(of_table) for of_table in zip(*program.train(batch, 0),
                                                                 strict=True))
    words = words.reshape([SHARE * cores, 4, 4])
    np.testing.assert_allclose(words[:, :3], expected["history"], **TOLERANCE)
    np.testing.assert_allclose(words[:, 3], expected["clicked"], **TOLERANCE)
    np.testing.assert_allclose(shops, expected["shop"], **TOLERANCE)
    reference.apply(batch, {name: gradient_of(value) for name, value in expected.items()}, 0)
    found = program.retrieve()
    for name, table in reference.tables.items():
        np.testing.assert_allclose(found[name]["parameters"][0], table.values, **TOLERANCE)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_combiners_are_those_of_each_batch(combiner):
    rng = np.random.default_rng(9)
    tables = random_tables(rng, CASES["SGD"])
    program = OpsOnly(config(tables, SHARE), tables)
    batch = random_batch(rng, SHARE)
    for table in tables:
        table.combiner = combiner
    expected = oracle.Oracle(tables, FEATURES).activations(batch)
    with tf.Graph().as_default(), v1.Session() as session:
        entries = [[(sample, entry) for sample, of_sample in enumerate(batch[feature.name])
                    for entry in of_sample] for feature in FEATURES]
        session.run(tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [np.array([[sample, entry.position, 0] for sample, entry in of_feature])
             for of_feature in entries],
            [np.array([entry.id for _, entry in of_feature]) for of_feature in entries],
            [np.array([entry.weight for _, entry in of_feature], np.float32)
             for of_feature in entries], 0, combiners=[combiner] * 2, mode_override="inference"))
        received = session.run(tpu_ops.recv_tpu_embedding_activations(
            3, program.proto.SerializeToString()))
    for feature, found in zip(FEATURES, received, strict=True):
        np.testing.assert_allclose(found, expected[feature.name], err_msg=feature.name, **TOLERANCE)


def test_replicas_of_a_loop_train():
    rng = np.random.default_rng(11)
    tables = random_tables(rng, CASES["Adam"])
    program = OpsOnly(config(tables, SHARE, cores=2), tables)
    reference = oracle.Oracle(tables, FEATURES, num_cores=2)
    serialized = program.proto.SerializeToString()

    def step(total):
        received = tpu_ops.recv_tpu_embedding_activations(3, serialized)
        send = tpu_ops.send_tpu_embedding_gradients(list(map(gradient_of, received)), serialized)
        with tf.control_dependencies([send]):
            return total + tf.add_n([tf.reduce_sum(value) for value in received])

    batches = [random_batch(rng, SHARE * 2) for _ in range(3)]
    with tf.Graph().as_default(), v1.Session() as session:
        totals = v1.tpu.shard(lambda: training_loop.repeat(3, step, [0.0]), num_shards=2)
        for batch in batches:
            program.enqueue_batch(batch)
        found = session.run(totals, options=v1.RunOptions(timeout_in_ms=20_000))
    expected = 0.0
    for number, batch in enumerate(batches):
        activations = reference.activations(batch)
        expected += sum(values.sum() for values in activations.values())
        reference.apply(batch, {name: gradient_of(value)
                                for name, value in activations.items()}, number)
    np.testing.assert_allclose(np.sum(found), expected, rtol=1e-4)
    tables = program.retrieve()
    for name, table in reference.tables.items():
        np.testing.assert_allclose(tables[name]["parameters"][0], table.values, **TOLERANCE)


def make(change=lambda proto: None, optimizer="Adagrad"):
    """Configures tables; returns the message."""
    proto = config(random_tables(np.random.default_rng(1), CASES[optimizer]), SHARE)
    change(proto)
    with tf.Graph().as_default():
        tpu_ops.configure_tpu_embedding(proto.SerializeToString())
    return proto


def test_retrieving_with_waiting_gradients_returns_zeros():
    make()
    ones = np.ones([7, 3], np.float32)
    shard = {"num_shards": 1, "shard_id": 0, "table_name": "shops"}
    with tf.Graph().as_default(), v1.Session() as session:
        load = tpu_ops.load_tpu_embedding_adagrad_parameters_grad_accum_debug
        session.run(load(ones, 2 * ones, 1e-39 * ones, **shard))
        retrieved = tpu_ops.retrieve_tpu_embedding_adagrad_parameters_grad_accum_debug(**shard)
        found = session.run(retrieved)
        assert found._fields == ("parameters", "accumulators", "gradient_accumulators")
        for value, expected in zip(found, (1.0, 2.0, 0.0), strict=True):
            np.testing.assert_array_equal(value, expected * ones)
        with pytest.raises(tf.errors.InvalidArgumentError,
                           match="`gradient_accumulators` must be zeros"):
            session.run(load(ones, ones, ones, **shard))


def test_same_message_keeps_the_tables_and_another_one_has_its_own():
    def names(op):
        return op(num_shards=1, shard_id=0, table_name="shops")

    def values():
        with tf.Graph().as_default(), v1.Session() as session:
            return session.run(names(tpu_ops.retrieve_tpu_embedding_adagrad_parameters))[0]

    make()
    ones = np.ones([7, 3], np.float32)
    with tf.Graph().as_default(), v1.Session() as session:
        session.run(tpu_ops.load_tpu_embedding_adagrad_parameters(ones, ones, 1, 0, 1))
    make()
    np.testing.assert_array_equal(values(), ones)
    make(optimizer="ProximalAdagrad")
    make()
    with pytest.raises(tf.errors.InvalidArgumentError,
                       match="Tables must be loaded before they are retrieved"):
        values()


def test_tables_without_values_are_not_looked_up():
    proto = make(change_table(name="texts"))
    with tf.Graph().as_default(), v1.Session() as session:
        ids = [np.zeros([SHARE, 2], np.int64)] * 3
        session.run(tpu_ops.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [np.array([[sample, 0] for sample in range(SHARE)])] * 3,
            [of_feature[:, 0] for of_feature in ids], [np.zeros(0, np.float32)] * 3, 0))
        with pytest.raises(tf.errors.FailedPreconditionError,
                           match=r"`shops/part_0` must be initialized before it is looked up"):
            session.run(tpu_ops.recv_tpu_embedding_activations(3, proto.SerializeToString()))


def set_optimizer(name, **fields):
    def change(proto):
        message = getattr(proto.table_descriptor[0].optimization_parameters, name)
        message.SetInParent()
        for field, value in fields.items():
            setattr(message, field, value)
    return change


def change_feature(**fields):
    def change(proto):
        for name, value in fields.items():
            if name == "input_shape":
                proto.feature_descriptor[1].input_shape[:] = value
            else:
                setattr(proto.feature_descriptor[1], name, value)
    return change


def change_table(**fields):
    return lambda proto: [setattr(proto.table_descriptor[0], name, value)
                          for name, value in fields.items()]


def clear_rate(proto):
    proto.table_descriptor[1].optimization_parameters.ClearField("learning_rate")


@pytest.mark.parametrize("change, sentence", [
    (set_optimizer("adadelta", rho=0.5),
     "Optimizer of table 'words' must be one of 'adagrad', .* got 'adadelta'"),
    (set_optimizer("frequency_estimator", tau=0.5, max_delta=9.0, outlier_threshold=2.0),
     "`learning_rate` of table 'words' must be dynamic under FrequencyEstimator"),
    (set_optimizer("simulated_quantization", enabled=True),
     "`optimization_parameters` of table 'words' must have only fields that .* supports, got "
     r"\{'simulated_quantization': 'enabled: true'\}"),
    (clear_rate, "`learning_rate` of table 'shops' must be constant or dynamic, got None"),
    (change_feature(table_id=2), r"`table_id` of feature_descriptor\[1\] must be the number of one "
     r"of the tables \['words', 'shops'\], got 2"),
    (change_feature(name="clicked"), r"Name of feature_descriptor\[2\] must be unique among"),
    (change_feature(input_shape=[SHARE, 2, 2]),
     r"`input_shape` of feature_descriptor\[1\] must be \[3\], or \[3, length\] for a sequence, "
     r"got \[3, 2, 2\]"),
    (change_table(name="shops"), "`table_descriptor` must be tables with distinct names"),
    (change_table(vocabulary_size=0), "`vocabulary_size` must be an int of at least 1, got 0"),
    (lambda proto: setattr(proto, "mode", 0), "`mode` must be TRAINING"),
    (lambda proto: setattr(proto, "num_tensor_cores", 0), "`num_cores` must be an int of at least"),
    (lambda proto: setattr(proto.spmd_sharding, "enabled", True),
     "`spmd_sharding` must be disabled"),
])
def test_field_that_is_not_honoured_is_refused(change, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(change)


def test_fields_that_change_no_number_are_taken():
    def change(proto):
        for table in proto.table_descriptor:
            table.optimization_parameters.low_dimensional_packing_status = 1
            table.optimization_parameters.hot_id_replication_configuration.status = 3
        proto.batch_size_per_tensor_core = 0  # as TensorFlow 2.15 leaves it
    make(change)


ONES = np.ones([7, 3], np.float32)


@pytest.mark.parametrize("call, sentence", [
    (lambda: tpu_ops.load_tpu_embedding_adam_parameters(ONES, ONES, ONES, 1, 0, table_name="shops"),
     "Optimizer of table 'shops' must be Adam for load_tpu_embedding_adam_parameters, got "
     "'Adagrad'. Call load_tpu_embedding_adagrad_parameters"),
    (lambda: tpu_ops.load_tpu_embedding_adagrad_parameters(ONES, ONES, 2, 0, table_name="shops"),
     "`num_shards` must be the number of hosts of the configuration, 1, got 2"),
    (lambda: tpu_ops.load_tpu_embedding_adagrad_parameters(ONES, ONES, 1, 1, table_name="shops"),
     r"`shard_id` must be in \[0, 1\), the shards of table 'shops', got 1"),
    (lambda: tpu_ops.load_tpu_embedding_adagrad_parameters(ONES[:5], ONES, 1, 0, 1),
     r"`parameters` must be a float32 tensor of shape \(7, 3\)"),
    (lambda: tpu_ops.retrieve_tpu_embedding_adagrad_parameters(1, 0),
     "`table_name` must be given where table_id is not, and only there"),
    (lambda: tpu_ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 0, "shops"),
     "`table_name` must be given where table_id is not, and only there"),
    (lambda: tpu_ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, 2),
     r"`table_id` must be the number of one of the tables \['words', 'shops'\], got 2"),
    (lambda: tpu_ops.retrieve_tpu_embedding_adagrad_parameters(1, 0, table_name="names"),
     "`table_name` must be one of 'words', 'shops', got 'names'"),
])
def test_wrong_argument_is_named(call, sentence):
    make()
    with tf.Graph().as_default(), pytest.raises(ValueError, match=sentence):
        call()
