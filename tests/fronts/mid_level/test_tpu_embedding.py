# SPDX-License-Identifier: Apache-2.0
"""TPUEmbedding against the NumPy oracle: activations, tables and slots in every step."""


import numpy as np
import pytest
import tensorflow as tf

from tests.batches import many_ids, one_id_each, random_gradients, with_holes
from tests.fronts.mid_level.oracle_configs import OPTIMIZERS, to_feature_config, to_input
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Optimizer, Oracle, Table
from tpu_estimator_embedding.mid_level.tpu_embedding import TPUEmbedding

BATCH_SIZE, STEPS = 8, 3
KINDS = {"dense": "dense", "sparse": "sparse", "ragged": "ragged", "words": "sparse",
         "turns": "ragged"}


def new_oracle(optimizer, combiner="mean"):
    """Every kind of input, two of them sequences; two tables, both shared."""
    rng = np.random.default_rng(4)
    tables = [Table(name, rng.uniform(-1, 1, shape).astype(np.float32), combiner, optimizer)
              for name, shape in (("small", [11, 5]), ("large", [40, 3]))]
    return Oracle(tables, [Feature("dense", "small"), Feature("sparse", "large"),
                           Feature("ragged", "large"), Feature("words", "small", 3),
                           Feature("turns", "large", 2)])


def new_batch(rng, oracle, **options):
    sizes = {name: len(oracle.tables[feature.table].values)
             for name, feature in oracle.features.items()}
    batch = {name: many_ids(rng, BATCH_SIZE, sizes[name], **options) for name in KINDS}
    batch["dense"] = one_id_each(rng, BATCH_SIZE, sizes["dense"])
    batch["words"] = with_holes(rng, batch["words"], 6)
    return batch


def to_inputs(batch, weighted=()):
    pairs = {name: to_input(samples, KINDS[name], weighted=name in weighted)
             for name, samples in batch.items()}
    return ({name: pair[0] for name, pair in pairs.items()},
            {name: pair[1] for name, pair in pairs.items()})


def values_of(embedding):
    """Returns the value of every table and slot, by the name it is saved under."""
    return {name: variable.numpy()
            for name, variable in embedding._trackable_children().items()}


def check_tables(embedding, oracle, tolerance):
    expected = {name: values for table in oracle.tables.values() for name, values in (
        (table.name, table.values),
        *((f"{table.name}/{slot}", values) for slot, values in table.slots.items()))}
    found = values_of(embedding)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, **tolerance, err_msg=name)


def train_beside_oracle(oracle, *, steps=STEPS, weighted=(), function=False, tolerance=None,
                        optimizer=None, **batch_options):
    """Trains both on the same batches; compares activations, tables and slots in each step."""
    tolerance = tolerance or {"rtol": 1e-5, "atol": 2e-6}
    rng = np.random.default_rng(7)
    embedding = TPUEmbedding(to_feature_config(oracle), optimizer)

    def step(features, weights, gradients):
        embedding.enqueue(features, weights if weighted else None)
        activations = embedding.dequeue()
        embedding.apply_gradients(gradients)
        return activations

    if function:
        step = tf.function(step, reduce_retracing=True)
    embedding.build(per_replica_batch_size=BATCH_SIZE)
    for number in range(steps):
        batch = new_batch(rng, oracle, weighted=bool(weighted), **batch_options)
        batch = {name: [[entry if name in weighted else entry._replace(weight=1.0)
                         for entry in entries] for entries in samples]
                 for name, samples in batch.items()}
        features, weights = to_inputs(batch, weighted)
        expected = oracle.activations(batch)
        gradients = random_gradients(rng, expected)
        activations = step(features, weights if weighted else {}, {
            name: tf.constant(gradient) for name, gradient in gradients.items()})
        for name, values in expected.items():
            np.testing.assert_allclose(activations[name], values, **tolerance, err_msg=name)
        oracle.apply(batch, gradients, number)
        check_tables(embedding, oracle, tolerance)
    return embedding


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_and_input_equals_the_oracle(name):
    train_beside_oracle(new_oracle(OPTIMIZERS[name]), tolerance={"rtol": 2e-5, "atol": 4e-6})


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_every_combiner_with_weights_equals_the_oracle(combiner):
    # Weights of words and turns scale their positions under "sum", and cancel otherwise.
    train_beside_oracle(new_oracle(CASES["Adagrad"], combiner), steps=2,
                        weighted=("sparse", "ragged", "words", "turns"))


def test_negative_ids_are_padding():
    train_beside_oracle(new_oracle(CASES["SGD"]), steps=2, padded=True)


def test_none_is_a_gradient_of_zeros():
    oracle = new_oracle(CASES["AdagradMomentum"])
    embedding = TPUEmbedding(to_feature_config(oracle), None)
    rng = np.random.default_rng(0)
    for step in range(2):
        batch = new_batch(rng, oracle)
        embedding.enqueue(to_inputs(batch)[0])
        gradients = random_gradients(rng, oracle.activations(batch))
        embedding.dequeue()
        given = {name: tf.constant(gradient) for name, gradient in gradients.items()}
        if step == 1:  # the momenta of the ids of `ragged` decay and move their rows
            gradients["ragged"] = np.zeros_like(gradients["ragged"])
            with pytest.warns(UserWarning, match="gradient of feature 'ragged' is None"):
                embedding.apply_gradients({**given, "ragged": None})
        else:
            embedding.apply_gradients(given)
        oracle.apply(batch, gradients, step)
        check_tables(embedding, oracle, {"rtol": 1e-5, "atol": 2e-6})


def test_learning_rates_are_read_in_every_step():
    rate = tf.Variable(0.5)
    oracle = new_oracle(Optimizer("SGD", lambda step: 0.5 / 2 ** step))
    config = to_feature_config(oracle)
    for feature in config.values():
        feature.table.optimizer.learning_rate = lambda: rate
    embedding = TPUEmbedding(config, None)

    @tf.function
    def step(features):
        embedding.enqueue(features)
        activations = embedding.dequeue()
        embedding.apply_gradients(activations)

    rng = np.random.default_rng(0)
    for number in range(3):
        batch = new_batch(rng, oracle)
        embedding.build(per_replica_batch_size=BATCH_SIZE)
        gradients = oracle.activations(batch)
        step(to_inputs(batch)[0])
        oracle.apply(batch, gradients, number)
        rate.assign(rate / 2)
    check_tables(embedding, oracle, {"rtol": 1e-5, "atol": 2e-6})


def test_inference_looks_up_without_touching_tables():
    oracle = new_oracle(CASES["Adagrad"])
    embedding = TPUEmbedding(to_feature_config(oracle), None)
    batch = new_batch(np.random.default_rng(0), oracle)
    for _ in range(2):
        embedding.enqueue(to_inputs(batch)[0], training=False)
        activations = embedding.dequeue()
        for name, values in oracle.activations(batch).items():
            np.testing.assert_allclose(activations[name], values, rtol=1e-5, atol=1e-6)
    check_tables(embedding, oracle, {"rtol": 0, "atol": 0})


@pytest.mark.parametrize("make", [lambda a, b: [a, (b,)], lambda a, b: {"x": {"y": a}, "z": b}])
def test_structures_come_back(make):
    oracle = new_oracle(CASES["SGD"])
    config = to_feature_config(oracle)
    embedding = TPUEmbedding(make(config["dense"], config["words"]), None)
    words = tf.sparse.from_dense([[1, 2], [3, 4]])
    embedding.enqueue(make(tf.constant([1, 2]), words), training=False)
    activations = embedding.dequeue()
    tf.nest.assert_same_structure(activations, make(1, 2))
    shapes = [list(values.shape) for values in tf.nest.flatten(activations)]
    assert shapes == [[2, 5], [2, 3, 5]]


def test_single_feature_is_a_structure():
    oracle = new_oracle(CASES["SGD"])
    embedding = TPUEmbedding(to_feature_config(oracle)["dense"], None)
    embedding.enqueue(tf.constant([1, 2]))
    assert embedding.dequeue().shape == [2, 5]
    embedding.apply_gradients(tf.ones([2, 5]))
