# SPDX-License-Identifier: Apache-2.0
"""Single ids in the Keras layers, and tables whose values are set."""


import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.optimizers import SGD
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class

VALUES = np.arange(40, dtype=np.float32).reshape([20, 2])


def config(rows, name):
    initializer = tf.compat.v1.constant_initializer(VALUES[:rows])
    return FeatureConfig(TableConfig(rows, 2, initializer, combiner="sum", name=name))


def test_scalars_look_up_and_train_one_row(keras):
    layer = embedding_layer_class(keras)({"a": config(20, "t"), "b": config(10, "u")}, SGD(1.0))
    with tf.GradientTape() as tape:
        activations = layer({"a": tf.constant(3), "b": tf.constant(5)})
        loss = sum(tf.reduce_sum(value) for value in activations.values())
    layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    assert {name: value.numpy().tolist() for name, value in activations.items()} == {
        "a": VALUES[3].tolist(), "b": VALUES[5].tolist()}
    trained = VALUES.copy()
    trained[3] -= 1
    [first, _] = layer.embedding_tables.values()
    np.testing.assert_array_equal(first, trained)


def test_scalars_are_no_batch_beside_others(keras):
    layer = embedding_layer_class(keras)({"a": config(20, "t"), "b": config(10, "u")}, SGD(1.0))
    with pytest.raises(ValueError, match="Input of feature 'a' must be of shape .batch"):
        layer({"a": tf.constant(3), "b": tf.constant([5])})


def test_scalars_in_small_and_large_tables(keras):
    layer = partial_layer_class(keras)({"small": config(5, "s"), "large": config(20, "l")},
                                       SGD(1.0), size_threshold=10)
    found = layer({"small": tf.constant(4), "large": tf.constant(7)})
    assert found["small"].numpy().tolist() == VALUES[4].tolist()
    assert found["large"].numpy().tolist() == VALUES[7].tolist()


def test_values_of_a_table_can_be_set(keras):
    features = {"a": config(20, "t")}
    layer = embedding_layer_class(keras)(features, SGD(1.0))
    layer.update_embedding_table(features["a"].table, tf.Variable(VALUES * 10))
    assert layer({"a": tf.constant([2])})["a"].numpy().tolist() == [(VALUES[2] * 10).tolist()]
    with pytest.raises(ValueError, match="`table` must be a TableConfig of the layer, got"):
        layer.update_embedding_table(config(20, "t").table, VALUES)
    with pytest.raises(ValueError, match="[Ss]hape"):
        layer.update_embedding_table(features["a"].table, VALUES[:3])
