# SPDX-License-Identifier: Apache-2.0
"""One model, trained for 20 steps by every front door: the tables are the same."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.config.feature_config import FeatureConfig as V1FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import AdagradParameters
from tpu_estimator_embedding.config.table_config import TableConfig as V1TableConfig
from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec
from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator  # restores modules
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.tpu_embedding_v2 import TPUEmbeddingV2

from tensorflow_estimator.python.estimator.tpu.tpu_config import RunConfig  # isort: skip
from tensorflow_estimator.python.estimator.tpu.tpu_estimator import (  # isort: skip
    TPUEstimatorSpec,
)

v1 = tf.compat.v1

STEPS, BATCH_SIZE, ROWS, DIM = 20, 4, 12, 3
RATE, KERNEL_RATE = 0.25, 0.1
RNG = np.random.default_rng(0)
START = RNG.uniform(-1, 1, [ROWS, DIM]).astype(np.float32)
KERNEL = RNG.uniform(-1, 1, [DIM, 1]).astype(np.float32)
IDS = RNG.integers(0, ROWS, [STEPS, BATCH_SIZE, 2])
LABELS = RNG.uniform(-1, 1, [STEPS, BATCH_SIZE, 1]).astype(np.float32)


def dataset():
    return tf.data.Dataset.from_tensor_slices((IDS, LABELS)).map(
        lambda ids, labels: ({"words": tf.sparse.from_dense(ids + 1)}, labels)).map(
        lambda features, labels: ({"words": tf.SparseTensor(
            features["words"].indices, features["words"].values - 1, [BATCH_SIZE, 2])}, labels))


def loss_of(activations, kernel, labels):
    return tf.reduce_mean(tf.square(activations @ kernel - labels))


def feature_config():
    table = mid_level.TableConfig(ROWS, DIM, v1.constant_initializer(START), combiner="mean",
                                  name="words")
    return table, {"words": mid_level.FeatureConfig(table, output_shape=[BATCH_SIZE])}


def by_estimator(folder):
    def model_fn(features, labels, mode, params):
        kernel = v1.get_variable("kernel", initializer=KERNEL)
        loss = loss_of(features["words"], kernel, labels)
        optimizer = v1.tpu.CrossShardOptimizer(v1.train.GradientDescentOptimizer(KERNEL_RATE))
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, v1.train.get_global_step()))

    estimator = TPUEstimator(
        model_fn, folder, RunConfig(), use_tpu=True, train_batch_size=BATCH_SIZE,
        embedding_config_spec=EmbeddingConfigSpec(
            table_to_config_dict={
                "words": V1TableConfig(ROWS, DIM, v1.constant_initializer(START))},
            feature_to_config_dict={"words": V1FeatureConfig("words")},
            optimization_parameters=AdagradParameters(RATE)))
    estimator.train(lambda params: dataset(), steps=STEPS)
    return (estimator.get_variable_value("words"), estimator.get_variable_value("words/Adagrad"),
            estimator.get_variable_value("kernel"))


def train(lookup, update):
    """Trains the model by functions that look up, and that take the gradients."""
    kernel = tf.Variable(KERNEL)

    @tf.function
    def step(features, labels):
        activations, context = lookup(features)
        with tf.GradientTape() as tape:
            tape.watch(activations)
            loss = loss_of(activations["words"], kernel, labels)
        gradients, of_kernel = tape.gradient(loss, (activations, kernel))
        update(gradients, context)
        kernel.assign_sub(KERNEL_RATE * of_kernel)

    for features, labels in dataset():
        step(features, labels)
    return kernel.numpy()


def by_tpu_embedding():
    table, config = feature_config()
    embedding = mid_level.TPUEmbedding(config, mid_level.Adagrad(RATE))

    def lookup(features):
        embedding.enqueue(features)
        return embedding.dequeue(), None

    kernel = train(lookup, lambda gradients, _: embedding.apply_gradients(gradients))
    return (embedding.embedding_tables[table].numpy(),
            embedding._trackable_children()["words/accumulators"].numpy(), kernel)


def by_tpu_embedding_v2():
    table, config = feature_config()
    embedding = TPUEmbeddingV2(config, mid_level.Adagrad(RATE))
    kernel = train(embedding, embedding.apply_gradients)
    variables = embedding.variables[table]
    return np.array(variables["parameters"]), np.array(variables["accumulators"]), kernel


def by_partial_tpu_embedding():
    layer = partial_layer_class(tf.keras)(
        {"words": mid_level.FeatureConfig(feature_config()[0])}, mid_level.Adagrad(RATE),
        size_threshold=0)
    kernel = tf.Variable(KERNEL)

    @tf.function
    def step(features, labels):
        with tf.GradientTape() as tape:
            loss = loss_of(layer(features)["words"], kernel, labels)
        _, of_kernel = tape.gradient(loss, (layer.trainable_variables, kernel))
        kernel.assign_sub(KERNEL_RATE * of_kernel)

    for features, labels in dataset():
        step(features, labels)
    [table] = layer.tpu_embedding.embedding_tables.values()
    [slot] = [variable for variable in layer.tpu_embedding.variables
              if "accumulators" in variable.name]
    return table.numpy(), slot.numpy(), kernel.numpy()


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    return by_estimator(str(tmp_path_factory.mktemp("model")))


@pytest.mark.parametrize("way", [
    by_tpu_embedding, by_tpu_embedding_v2, by_partial_tpu_embedding])
def test_tables_are_those_of_the_estimator(way, expected):
    assert abs(expected[0] - START).max() > 0.1
    for found, values in zip(way(), expected, strict=True):
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6)
