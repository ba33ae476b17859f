# SPDX-License-Identifier: Apache-2.0
"""Lookups for serving: those of TensorFlow's function, and exports that need no package."""

import sys

import numpy as np
import pytest
import tensorflow as tf

from tests import subprocesses
from tpu_estimator_embedding.mid_level import (
    SGD,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingForServing,
    serving_embedding_lookup,
)

upstream = tf.tpu.experimental.embedding
VALUES = np.random.default_rng(0).uniform(-1, 1, [10, 2]).astype(np.float32)

DENSE = tf.constant([[1, 2], [3, 4]])
SPARSE = tf.SparseTensor([[0, 0], [0, 1], [0, 2], [2, 0], [2, 1]], [1, 2, 1, 3, -1], [3, 3])
PLAIN = tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1, 2, 3], [3, 3])
CUBE = tf.SparseTensor([[0, 0, 0], [1, 1, 0], [1, 1, 2]], [1, 2, 3], [2, 2, 3])
RAGGED = tf.ragged.constant([[1, 2, 1], [], [3]])


def lookup(words, function, value, weights, combiner, **options):
    table = words.TableConfig(10, 2, combiner=combiner, name="words")
    feature = words.FeatureConfig(table, **options)
    return function({"a": [value]}, None if weights is None else {"a": [weights]},
                    {table: tf.Variable(VALUES)}, {"a": [feature]})["a"][0]


def like(ids, values):
    if isinstance(ids, tf.SparseTensor):
        return tf.SparseTensor(ids.indices, tf.constant(values), ids.dense_shape)
    return ids.with_values(tf.constant(values))


@pytest.mark.parametrize("value, weights, options", [
    (DENSE, None, {}),
    (SPARSE, None, {}), (SPARSE, like(SPARSE, [1.0, 2.0, -1.0, 0.5, 3.0]), {}),
    (PLAIN, None, {"validate_weights_and_indices": False}),
    (PLAIN, like(PLAIN, [1.0, -2.0, 0.5]), {"validate_weights_and_indices": False}),
    (PLAIN, None, {"max_sequence_length": 2}), (PLAIN, None, {"max_sequence_length": 5}),
    (CUBE, None, {}),
    (RAGGED, None, {}), (RAGGED, like(RAGGED, [1.0, 2.0, 3.0, 4.0]), {}),
    (RAGGED, None, {"max_sequence_length": 2}),
    (RAGGED, None, {"output_shape": [3, 1]}), (RAGGED, None, {"output_shape": [3, 2]}),
])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_lookups_are_those_of_tensorflow(value, weights, options, combiner):
    from tpu_estimator_embedding import mid_level
    expected = lookup(upstream, upstream.serving_embedding_lookup, value, weights, combiner,
                      **options)
    found = lookup(mid_level, serving_embedding_lookup, value, weights, combiner, **options)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("length", [0, 2])
@pytest.mark.parametrize("kind", ["dense", "sparse", "ragged", "weighted"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_negative_ids_are_dropped_as_in_training(kind, length, combiner):
    ids = tf.ragged.constant([[-1, 1, 2], [-2], [3, -1, 4]])
    value = {"dense": tf.constant([-1, 1, 3]), "sparse": ids.to_sparse()}.get(kind, ids)
    weights = like(ids, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]) if kind == "weighted" else None
    if length and kind in ("dense", "weighted"):
        pytest.skip("a sequence is neither dense nor weighted")
    table = TableConfig(10, 2, tf.constant_initializer(VALUES), combiner=combiner)
    features = {"a": FeatureConfig(table, max_sequence_length=length)}
    trained = TPUEmbedding(features, SGD(0.1))
    trained.enqueue({"a": value}, None if weights is None else {"a": weights}, training=False)
    served = serving_embedding_lookup({"a": value}, None if weights is None else {"a": weights},
                                      trained.embedding_tables, features)
    np.testing.assert_allclose(served["a"], trained.dequeue()["a"], rtol=1e-6, atol=1e-7)


def test_negative_ids_are_errors_where_they_are_not_validated():
    table = TableConfig(10, 2)
    features = {"a": FeatureConfig(table, validate_weights_and_indices=False)}
    with pytest.raises(tf.errors.InvalidArgumentError, match="-1 is not in"):
        serving_embedding_lookup({"a": tf.ragged.constant([[-1]])}, None,
                                 {table: tf.Variable(VALUES)}, features)


@pytest.mark.parametrize("value, weights, options, message", [
    (PLAIN, like(PLAIN, ["1"] * 3), {},
     "^Cast string to float is not supported. Weights of feature 'a/0' must be numbers, floats"),
    (tf.SparseTensor([[0]], [1], [2]), None, {}, "Rank of the sparse input of feature 'a/0'"),
])
def test_what_cannot_be_looked_up(value, weights, options, message):
    from tpu_estimator_embedding import mid_level
    with pytest.raises(ValueError, match=message):
        lookup(mid_level, serving_embedding_lookup, value, weights, "sum", **options)


def test_some_of_the_features_may_be_looked_up():
    table = TableConfig(10, 2)
    feature = FeatureConfig(table)
    found = serving_embedding_lookup({"b": DENSE}, None, {table: tf.Variable(VALUES)},
                                     {"a": feature, "b": feature})
    assert list(found) == ["b"] and found["b"].shape == [2, 2, 2]


def test_unknown_features_are_refused():
    table = TableConfig(10, 2)
    with pytest.raises(ValueError, match=r"`inputs` must have features of feature_config only, "
                                         r"\['a'\], got \['b'\]"):
        serving_embedding_lookup({"b": DENSE}, None, {}, {"a": FeatureConfig(table)})


def test_layouts_of_sparse_cores_are_refused():
    with pytest.raises(ValueError, match="`experimental_sparsecore_restore_info` must be None"):
        TPUEmbeddingForServing(FeatureConfig(TableConfig(3, 1)), None, {"num_tpu_devices": 8})


LOAD = """
import sys
import tensorflow as tf
loaded = tf.saved_model.load(sys.argv[1])
outputs = loaded.signatures["serving_default"](ids=tf.constant([1, 2]))
print(outputs["activations"].numpy().tolist(), loaded.embedding.words.shape,
      "tpu_estimator_embedding" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [TPUEmbedding, TPUEmbeddingForServing])
def test_exports_load_without_the_package(kind, tmp_path):
    table = TableConfig(10, 2, tf.ones_initializer(), name="words")
    config = {"ids": FeatureConfig(table)}
    module = tf.Module()
    module.embedding = kind(config, SGD(0.5))
    if kind is TPUEmbedding:
        module.embedding.enqueue({"ids": tf.constant([1])})
        module.embedding.apply_gradients(module.embedding.dequeue())

    @tf.function(input_signature=[tf.TensorSpec([None], tf.int64, "ids")])
    def serve(ids):
        tables = module.embedding.embedding_tables
        return {"activations": serving_embedding_lookup({"ids": ids}, None, tables,
                                                        config)["ids"]}

    tf.saved_model.save(module, tmp_path, signatures=serve)
    if kind is TPUEmbeddingForServing:  # one process that imports TensorFlow is enough
        loaded = tf.saved_model.load(tmp_path)
        assert loaded.embedding.words.shape == [10, 2]
        return
    program = tmp_path / "load.py"
    program.write_text(LOAD.replace("tf.constant([1, 2])", "tf.constant([1, 2], tf.int64)"))
    done = subprocesses.start([sys.executable, program, tmp_path], cwd=tmp_path, PYTHONPATH="")
    assert done.stdout == "[[0.5, 0.5], [1.0, 1.0]] (10, 2) False\n", done.stderr


def test_tables_that_lack_one_are_refused():
    table, other = TableConfig(10, 2, name="words"), TableConfig(10, 2, name="other")
    with pytest.raises(TypeError, match="`tables` must be a mapping of TableConfigs to variables, "
                                        "got None.*`embedding_tables`"):
        serving_embedding_lookup({"a": DENSE}, None, None, {"a": FeatureConfig(table)})
    with pytest.raises(ValueError, match="`tables` must have the table of feature 'a', TableConfig"
                       ".*'words'.*, got .*'other'"):
        serving_embedding_lookup({"a": DENSE}, None, {other: tf.Variable(VALUES)},
                                 {"a": FeatureConfig(table)})
