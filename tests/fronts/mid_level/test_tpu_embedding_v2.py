# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingV2 against the NumPy oracle: activations, tables and slots in every step."""

import contextlib
import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import many_ids, one_id_each, random_gradients
from tests.fronts.mid_level.oracle_configs import OPTIMIZERS, to_feature_config, to_input
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Oracle, Table
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

BATCH_SIZE, STEPS = 8, 3


def new_oracle(optimizer, combiner="mean"):
    """Two features share a table; two more tables, of which one has its width but for padding."""
    rng = np.random.default_rng(4)
    tables = [Table(name, rng.uniform(-1, 1, shape).astype(np.float32), of_table, optimizer)
              for name, shape, of_table in (("shared", [11, 5], combiner), ("short", [9, 3], "sum"),
                                            ("wide", [40, 12], "sqrtn"))]
    features = [Feature("title", "shared"), Feature("body", "shared"), Feature("user", "short"),
                Feature("word", "wide")]
    return Oracle(tables, features)


def one_weighted_id_each(rng, batch_size, vocabulary_size, weighted):
    return [[entry._replace(weight=float(rng.integers(1, 17)) / 8 if weighted else 1.0)]
            for [entry] in one_id_each(rng, batch_size, vocabulary_size)]


def new_batch(rng, oracle, make):
    return {name: make(rng, BATCH_SIZE, len(oracle.tables[feature.table].values))
            for name, feature in oracle.features.items()}


def check_tables(embedding, config, oracle, tolerance):
    for feature in config.values():
        table = oracle.tables[feature.table.name]
        found = embedding.variables[feature.table]
        assert found.keys() == {"parameters", *table.slots}
        for slot, values in {"parameters": table.values, **table.slots}.items():
            np.testing.assert_allclose(found[slot], values, **tolerance,
                                       err_msg=f"{table.name} {slot}")


def train_beside_oracle(oracle, make, kind, *, steps=STEPS, weighted=False, function=False,
                        tolerance=None, embedding_options=None):
    """Trains both on the same batches; compares activations, tables and slots in each step."""
    tolerance = tolerance or {"rtol": 1e-5, "atol": 4e-6}
    rng = np.random.default_rng(7)
    config = to_feature_config(oracle, BATCH_SIZE)
    embedding = TPUEmbeddingV2(config, **(embedding_options or {}))

    def step(features, weights, gradients):
        activations, preserved = embedding(features, weights)
        embedding.apply_gradients(gradients, preserved)
        return activations

    if function:
        step = tf.function(step, reduce_retracing=True)
    for number in range(steps):
        batch = new_batch(rng, oracle, make)
        pairs = {name: to_input(samples, kind, weighted=weighted)
                 for name, samples in batch.items()}
        expected = oracle.activations(batch)
        gradients = random_gradients(rng, expected)
        activations = step({name: pair[0] for name, pair in pairs.items()},
                           {name: pair[1] for name, pair in pairs.items()} if weighted else None,
                           {name: tf.constant(gradient) for name, gradient in gradients.items()})
        for name, values in expected.items():
            np.testing.assert_allclose(activations[name], values, **tolerance, err_msg=name)
        oracle.apply(batch, gradients, number)
        check_tables(embedding, config, oracle, tolerance)
    return embedding


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_equals_the_oracle(name):
    train_beside_oracle(new_oracle(OPTIMIZERS[name]), many_ids, "ragged",
                        tolerance={"rtol": 2e-5, "atol": 4e-6})


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("kind, weighted", [
    (kind, weighted) for kind in ("sparse", "ragged", "dense") for weighted in (False, True)])
def test_every_input_and_combiner_equals_the_oracle(combiner, kind, weighted):
    make = functools.partial(one_weighted_id_each if kind == "dense" else many_ids,
                             weighted=weighted)
    train_beside_oracle(new_oracle(CASES["Adagrad"], combiner), make, kind, weighted=weighted,
                        steps=2)


@pytest.mark.slow
@pytest.mark.parametrize("chips, cores", [(2, 4), (4, 2), (1, 1)])
def test_layouts_compute_alike(chips, cores):
    embedding = train_beside_oracle(
        new_oracle(CASES["Adam"]), many_ids, "ragged", function=True,
        embedding_options={"num_chips": chips, "num_sc_per_chip": cores})
    assert len(embedding.embedding_tables["shared_short"].variables) == chips
    assert set(embedding.embedding_tables) == {"shared_short", "wide"}


def test_dense_ids_that_differ_in_rank_fill_the_output_shape():
    oracle = new_oracle(CASES["SGD"])
    config = to_feature_config(oracle, BATCH_SIZE)
    config["title"].output_shape = tf.TensorShape([2, 4])
    embedding = TPUEmbeddingV2(config)
    batch = {name: [[Entry(k % 5)] for k in range(BATCH_SIZE)] for name in config}
    ids = {name: tf.constant([k % 5 for k in range(BATCH_SIZE)]) for name in config}
    activations, _ = embedding({**ids, "title": tf.reshape(ids["title"], [2, 4])})
    expected = oracle.activations(batch)
    assert activations["title"].shape == [2, 4, 5]
    np.testing.assert_allclose(tf.reshape(activations["title"], [8, 5]), expected["title"],
                               rtol=1e-6)
    np.testing.assert_allclose(activations["body"], expected["body"], rtol=1e-6)


def test_sparse_ids_of_rank_3_are_combined_over_the_last_dimension():
    oracle = new_oracle(CASES["SGD"], "sum")
    config = {"title": to_feature_config(oracle, BATCH_SIZE)["title"]}
    config["title"].output_shape = tf.TensorShape([2, 4])
    values = oracle.tables["shared"].values
    sparse = tf.SparseTensor([[0, 1, 0], [0, 1, 2], [1, 3, 1]], [3, 4, 5], [2, 4, 3])
    activations, _ = TPUEmbeddingV2(config)({"title": sparse})
    expected = np.zeros([2, 4, 5])
    expected[0, 1], expected[1, 3] = values[3] + values[4], values[5]
    np.testing.assert_allclose(activations["title"], expected, rtol=1e-6)


@contextlib.contextmanager
def recording_summaries(path):
    with tf.summary.create_file_writer(str(path)).as_default(), tf.summary.record_if(True):
        yield


def sequential_context(path):
    utils = pytest.importorskip("tensorflow.python.tpu.embedding_context_utils")
    return utils.SequentialEmbeddingContext()


@pytest.mark.slow
@pytest.mark.parametrize("context", [recording_summaries, sequential_context])
@pytest.mark.parametrize("wrap", [lambda step: step, tf.function])
def test_pipelining_is_off_where_a_program_asks_for_it(context, wrap, tmp_path):
    table = TableConfig(2, 1, tf.compat.v1.zeros_initializer(), name="row")
    embedding = TPUEmbeddingV2(FeatureConfig(table, output_shape=[4]), SGD(1.0), True)

    def step():
        activations, preserved = embedding(tf.constant([0, 1, 1, 1]))
        embedding.apply_gradients(-tf.ones_like(activations), preserved)
        return activations[0, 0]

    pipelined = wrap(step)
    seen = [float(pipelined()), float(pipelined())]
    with context(tmp_path):
        sequential = wrap(lambda: step())
        seen += [float(sequential()), float(sequential())]
    assert seen + [float(pipelined()), float(pipelined())] == [0, 0, 2, 3, 4, 4]
