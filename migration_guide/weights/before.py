# SPDX-License-Identifier: Apache-2.0
"""Weights: every id has its own weight."""

import sys

import numpy as np
import tensorflow.compat.v1 as tf
from tensorflow.python.tpu import tpu_embedding

WORDS, USERS = 50, 20


def embedding_config_spec():
    tables = {
        "words": tpu_embedding.TableConfig(WORDS, 4, combiner="mean"),
        "users": tpu_embedding.TableConfig(USERS, 4, combiner="sum"),
    }
    features = {
        "words": tpu_embedding.FeatureConfig("words", weight_key="importance"),
        "users": tpu_embedding.FeatureConfig("users"),
    }
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
        table_to_config_dict=tables, feature_to_config_dict=features,
        optimization_parameters=tpu_embedding.AdagradParameters(0.1))


def input_fn(params):
    rng = np.random.default_rng(1)
    words, users = rng.integers(0, WORDS, [160, 3]), rng.integers(0, USERS, [160, 1])
    labels = (words.sum(axis=1) % 2).astype(np.float32)
    importance = rng.uniform(0.5, 2.0, [160, 3]).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(
        ({"words": words, "importance": importance, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(values).to_sparse()
                                   for name, values in features.items()}, labels))


def model_fn(features, labels, mode, params):
    inputs = tf.concat([features["words"], features["users"]], axis=1)
    kernel = tf.get_variable("kernel", [8, 1])
    logits = tf.matmul(inputs, kernel)[:, 0]
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(model_dir=sys.argv[1]), train_batch_size=8,
        embedding_config_spec=embedding_config_spec())
    estimator.train(input_fn, max_steps=20)


if __name__ == "__main__":
    main()
