# SPDX-License-Identifier: Apache-2.0
"""Configs may be changed once an object was made of them: it has its own."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding_for_serving

from tpu_estimator_embedding import mid_level


def make(of):
    """Returns what `of(feature_config)` makes, the config, changed since, and its table."""
    table = mid_level.TableConfig(8, 2, tf.ones_initializer(), combiner="sum", name="words")
    feature_config = {"a": mid_level.FeatureConfig(table, output_shape=[2])}
    made = of(feature_config)
    feature = feature_config.pop("a")
    feature_config["b"] = feature
    feature.max_sequence_length, feature.output_shape = 5, tf.TensorShape([7])
    feature.table, table.combiner, table.dim = None, "mean", 3
    return made, table


def engine(feature_config):
    return mid_level.TPUEmbedding(feature_config, mid_level.SGD(1.0))


def from_engine(embedding, features):
    embedding.enqueue(features, training=False)
    return embedding.dequeue()


def layer(feature_config):
    return mid_level.TPUEmbeddingLayer(feature_config, mid_level.SGD(1.0))


def serving(feature_config):
    return mid_level.TPUEmbeddingForServing(feature_config, None)


@pytest.mark.parametrize("of, lookup", [
    (engine, from_engine),
    (lambda config: mid_level.TPUEmbeddingV2(config, mid_level.SGD(1.0), num_sc_per_chip=1),
     lambda embedding, features: embedding(features)[0]),
    (lambda config: mid_level.TPUEmbeddingV0(config, None),
     lambda embedding, features: embedding(features)),
    (serving, lambda embedding, features: embedding(features)),
    (layer, lambda layer, features: layer(features)),
    (lambda config: mid_level.PartialTPUEmbedding(config, "sgd", size_threshold=0),
     lambda layer, features: layer(features)),
    (lambda config: mid_level.PartialTPUEmbedding(config, "sgd"),
     lambda layer, features: layer(features))])
def test_changed_configs_do_not_matter(of, lookup):
    made, _ = make(of)
    activations = lookup(made, {"a": tf.SparseTensor([[0, 0], [0, 1], [1, 0]], [3, 4, 3], [2, 2])})
    np.testing.assert_array_equal(activations["a"], [[2, 2], [1, 1]])


@pytest.mark.parametrize("of", [engine, layer, serving])
def test_tables_are_found_by_the_programs_own_config(of):
    made, table = make(of)
    assert made.embedding_tables[table].shape == [8, 2]


def test_layer_is_saved_as_it_was_made():
    made, _ = make(layer)
    again = mid_level.TPUEmbeddingLayer.from_config(made.get_config())
    [config] = again.embedding_tables
    assert (config.dim, config.combiner) == (2, "sum")


def test_limits_of_sparse_cores_may_be_changed():
    limits = {"words": 256}
    table = mid_level.TableConfig(8, 2, tf.ones_initializer(), combiner="sum", name="words")
    embedding = mid_level.TPUEmbeddingV2(
        {"a": mid_level.FeatureConfig(table, output_shape=[2])}, mid_level.SGD(1.0),
        num_sc_per_chip=1, sparse_core_embedding_config=mid_level.SparseCoreEmbeddingConfig(
            disable_table_stacking=True, max_ids_per_table=limits))
    limits["words"] = 1
    activations, _ = embedding({"a": tf.constant([3, 4])})
    np.testing.assert_array_equal(activations["a"], np.ones([2, 2]))


@pytest.mark.parametrize("of", [
    engine, serving, lambda config: mid_level.TPUEmbeddingV0(config, None),
    lambda config: mid_level.TPUEmbeddingV2(config, mid_level.SGD(1.0), num_sc_per_chip=1)])
def test_tensorflow_looks_up_what_an_object_hands_out(of):
    table = mid_level.TableConfig(8, 2, tf.ones_initializer(), combiner="sum", name="words")
    embedding = of({"a": mid_level.FeatureConfig(table, output_shape=[2])})
    for lookup in (tpu_embedding_for_serving.cpu_embedding_lookup,
                   mid_level.serving_embedding_lookup):
        found = lookup({"a": tf.constant([3, 4])}, None, embedding.embedding_tables,
                       embedding._feature_config)
        np.testing.assert_array_equal(found["a"], np.ones([2, 2]))
