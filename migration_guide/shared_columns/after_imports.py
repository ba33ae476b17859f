# SPDX-License-Identifier: Apache-2.0
"""Shared columns: two features look up one table."""

import sys

import numpy as np
from tpu_estimator_embedding import (
    AdagradParameters,
    CrossShardOptimizer,
    EmbeddingConfigSpec,
    RunConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    shared_embedding_columns,
)
import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)
import tensorflow.compat.v1 as tf

ITEMS = 50


def columns():
    seen = tf.feature_column.categorical_column_with_identity("seen", ITEMS)
    bought = tf.feature_column.categorical_column_with_identity("bought", ITEMS)
    return shared_embedding_columns(
        [seen, bought], 4, combiner="sum", shared_embedding_collection_name="items")


def input_fn(params):
    rng = np.random.default_rng(1)
    seen, bought = rng.integers(0, ITEMS, [160, 3]), rng.integers(0, ITEMS, [160, 2])
    labels = (seen.sum(axis=1) % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(({"seen": seen, "bought": bought}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


def model_fn(features, labels, mode, params):
    inputs = tf.keras.layers.DenseFeatures(columns())(features)
    kernel = tf.get_variable("kernel", [8, 1])
    logits = tf.matmul(inputs, kernel)[:, 0]
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    spec = EmbeddingConfigSpec(
        feature_columns=columns(),
        optimization_parameters=AdagradParameters(0.1))
    estimator = TPUEstimator(
        model_fn, config=RunConfig(model_dir=sys.argv[1]), train_batch_size=8,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=20)


if __name__ == "__main__":
    main()
