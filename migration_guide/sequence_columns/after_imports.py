# SPDX-License-Identifier: Apache-2.0
"""Sequence columns: activations of each of the last words."""

import sys

import numpy as np
from tpu_estimator_embedding import (
    AdagradParameters,
    CrossShardOptimizer,
    EmbeddingConfigSpec,
    RunConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    embedding_column,
)
import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)
import tensorflow.compat.v1 as tf

WORDS, USERS = 50, 20


def columns():
    words = tf.feature_column.sequence_categorical_column_with_identity("words", WORDS)
    users = tf.feature_column.categorical_column_with_identity("users", USERS)
    return (embedding_column(words, 4, max_sequence_length=3),
            embedding_column(users, 4))


def input_fn(params):
    rng = np.random.default_rng(1)
    words, users = rng.integers(0, WORDS, [160, 4]), rng.integers(0, USERS, [160, 1])
    lengths = rng.integers(1, 5, 160)
    labels = (words[:, 0] % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices((words, lengths, users, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda words, lengths, users, labels: ({
            "words": tf.RaggedTensor.from_tensor(words, lengths).to_sparse(),
            "users": tf.RaggedTensor.from_tensor(users).to_sparse()}, labels))


def model_fn(features, labels, mode, params):
    of_words, of_users = columns()
    sequence, lengths = tf.keras.experimental.SequenceFeatures([of_words])(features)
    mask = tf.sequence_mask(lengths, 3, tf.float32)[:, :, tf.newaxis]
    inputs = tf.concat([tf.reduce_sum(sequence * mask, axis=1),
                        tf.feature_column.input_layer(features, [of_users])], axis=1)
    kernel = tf.get_variable("kernel", [8, 1])
    logits = tf.matmul(inputs, kernel)[:, 0]
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    spec = EmbeddingConfigSpec(
        feature_columns=list(columns()),
        optimization_parameters=AdagradParameters(0.1))
    estimator = TPUEstimator(
        model_fn, config=RunConfig(model_dir=sys.argv[1]), train_batch_size=8,
        embedding_config_spec=spec)
    estimator.train(input_fn, max_steps=20)


if __name__ == "__main__":
    main()
