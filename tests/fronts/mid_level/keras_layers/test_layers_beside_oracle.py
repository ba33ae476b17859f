# SPDX-License-Identifier: Apache-2.0
"""The Keras layers against the NumPy oracle: activations, tables and slots in every step."""


import numpy as np
import pytest
import tensorflow as tf

from tests.batches import many_ids, one_id_each, random_gradients, with_holes
from tests.fronts.mid_level.oracle_configs import OPTIMIZERS, to_feature_config, to_input
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Oracle, Table
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

BATCH_SIZE, STEPS = 6, 3
KINDS = {"dense": ("dense", 0), "sparse": ("sparse", 0), "ragged": ("ragged", 0),
         "words": ("sparse", 3), "turns": ("ragged", 2)}  # kind of input, length of sequence
SGD, ADAGRAD = CASES["SGD"], CASES["Adagrad"]
TOLERANCE = {"rtol": 2e-5, "atol": 4e-6}


def new_oracle(optimizer, small_optimizer=None, combiner="mean"):
    """Two tables, each with a feature of every kind."""
    rng = np.random.default_rng(4)
    return Oracle(
        [Table(name, rng.uniform(-1, 1, shape).astype(np.float32), combiner, of_table)
         for name, shape, of_table in (("small", [11, 2], small_optimizer or optimizer),
                                       ("large", [40, 3], optimizer))],
        [Feature(f"{table}_{kind}", table, length) for table in ("small", "large")
         for kind, (_, length) in KINDS.items()])


def new_batch(rng, oracle, **options):
    batch = {}
    for name, feature in oracle.features.items():
        rows, kind = len(oracle.tables[feature.table].values), name.split("_")[1]
        batch[name] = (one_id_each(rng, BATCH_SIZE, rows) if kind == "dense" else
                       many_ids(rng, BATCH_SIZE, rows, **options))
        if kind == "words":
            batch[name] = with_holes(rng, batch[name], 5)
    return batch


def to_inputs(batch, weighted=False):
    """Returns ids and weights of every feature; weights only of what is combined."""
    pairs = {name: to_input(samples, KINDS[name.split("_")[1]][0], weighted=weighted and
                            name.split("_")[1] != "dense") for name, samples in batch.items()}
    return ({name: ids for name, (ids, _) in pairs.items()},
            {name: weights for name, (_, weights) in pairs.items()})


def step_beside_oracle(layer, oracle, rng, step, *, weighted=False, update=None, **options):
    """Takes a step of both and compares activations; the layer's gradients go to `update`."""
    batch = new_batch(rng, oracle, weighted=weighted, **options)
    features, weights = to_inputs(batch, weighted)
    expected = oracle.activations(batch)
    upstream = random_gradients(rng, expected)
    with tf.GradientTape() as tape:
        activations = layer(features, weights) if weighted else layer(features)
        loss = tf.add_n([tf.reduce_sum(activations[name] * values)
                         for name, values in upstream.items()])
    variables = layer.trainable_variables
    gradients = tape.gradient(loss, variables)
    if update:
        update(zip(gradients, variables, strict=True))
    else:
        getattr(layer, "tpu_embedding", layer).apply_gradients(gradients)
    for name, values in expected.items():
        np.testing.assert_allclose(activations[name], values, **TOLERANCE, err_msg=name)
    oracle.apply(batch, upstream, step)


def check_tables(found, oracle, names=("small", "large")):
    """Compares name of table, or of table/slot, -> variable with the oracle's."""
    expected = {name: values for table in names for name, values in (
        (table, oracle.tables[table].values),
        *((f"{table}/{slot}", values) for slot, values in oracle.tables[table].slots.items()))}
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, **TOLERANCE, err_msg=name)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_layer_trains_every_optimizer_on_every_input(keras, name):
    oracle, rng = new_oracle(OPTIMIZERS[name]), np.random.default_rng(7)
    layer = embedding_layer_class(keras)(to_feature_config(oracle), None)
    for step in range(STEPS):
        step_beside_oracle(layer, oracle, rng, step)
        check_tables(layer._tables.variables, oracle)


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_layer_weighs_ids(keras, combiner):
    oracle, rng = new_oracle(ADAGRAD, combiner=combiner), np.random.default_rng(7)
    layer = embedding_layer_class(keras)(to_feature_config(oracle), None)
    for step in range(STEPS):
        step_beside_oracle(layer, oracle, rng, step, weighted=True, padded=step == 2)
        check_tables(layer._tables.variables, oracle)


def partial_layer(keras, oracle, threshold):
    """Returns a layer on the oracle's tables, where `small` has 11 rows and `large` 40."""
    return partial_layer_class(keras)(to_feature_config(oracle), None, size_threshold=threshold)


def test_both_sides_train_on_every_input(keras):
    oracle, rng = new_oracle(ADAGRAD, SGD), np.random.default_rng(7)
    layer = partial_layer(keras, oracle, threshold=20)
    optimizer = keras.optimizers.SGD(SGD.learning_rate)
    small = layer.keras_embedding_layers["small_dense"]
    for step in range(STEPS):
        step_beside_oracle(layer, oracle, rng, step, update=optimizer.apply_gradients)
        check_tables(layer.tpu_embedding._tables.variables, oracle, ["large"])
        check_tables({"small": tf.convert_to_tensor(small.embeddings)}, oracle, ["small"])


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_small_tables_alone_follow_the_combiner(keras, combiner):
    oracle, rng = new_oracle(ADAGRAD, combiner=combiner), np.random.default_rng(7)
    layer = partial_layer(keras, oracle, threshold=None)
    optimizer = keras.optimizers.Adagrad(ADAGRAD.learning_rate, ADAGRAD.hyperparameters[
        "initial_accumulator"])

    def update(pairs):  # dense, as Keras 3 squares each gradient of a repeated id by itself
        optimizer.apply_gradients([(tf.convert_to_tensor(gradient), variable)
                                   for gradient, variable in pairs])

    for step in range(STEPS):
        step_beside_oracle(layer, oracle, rng, step, update=update)
        tables = [layer.keras_embedding_layers[f"{name}_dense"].embeddings
                  for name in ("small", "large")]
        slots = {tuple(slot.shape): slot for slot in optimizer._accumulators}
        check_tables({name: tf.convert_to_tensor(value) for name, value in (
            ("small", tables[0]), ("small/accumulators", slots[tuple(tables[0].shape)]),
            ("large", tables[1]), ("large/accumulators", slots[tuple(tables[1].shape)]))}, oracle)


@pytest.mark.long
def test_ids_of_both_types_train_as_those_of_one(keras):
    oracle, rng = new_oracle(ADAGRAD), np.random.default_rng(7)
    features, _ = to_inputs(new_batch(rng, oracle))
    mixed = {name: tf.cast(ids, tf.int32) if name.startswith("small") else ids
             for name, ids in features.items()}
    layers = [embedding_layer_class(keras)(to_feature_config(oracle), None) for _ in range(2)]

    @tf.function
    def step(layer, ids):
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(value**2) for value in layer(ids).values()])
        layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))

    for layer, ids in zip(layers, (features, mixed), strict=True):
        layer(ids)
        step(layer, ids)
    for name, variable in layers[0]._tables.variables.items():
        np.testing.assert_array_equal(variable, layers[1]._tables.variables[name], err_msg=name)
