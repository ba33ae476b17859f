# SPDX-License-Identifier: Apache-2.0
"""Keras 3: a shared table, weights of ids, batch normalization and metrics."""

import sys

import numpy as np
from tpu_estimator_embedding import (
    CrossShardOptimizer,
    EmbeddingConfigSpec,
    RunConfig,
    TPUEstimator,
    TPUEstimatorSpec,
    tf_estimator,
)
import tensorflow.compat.v1 as tf
from tpu_estimator_embedding.tf_tpu import tpu_embedding

WORDS, USERS = 50, 20


def embedding_config_spec():
    tables = {
        "words": tpu_embedding.TableConfig(WORDS, 4, combiner="mean"),
        "users": tpu_embedding.TableConfig(USERS, 4, combiner="sum"),
    }
    features = {
        "words": tpu_embedding.FeatureConfig("words"),
        "users": tpu_embedding.FeatureConfig("users"),
        "friends": tpu_embedding.FeatureConfig("users", weight_key="closeness"),
    }
    return EmbeddingConfigSpec(
        table_to_config_dict=tables, feature_to_config_dict=features,
        optimization_parameters=tpu_embedding.AdagradParameters(0.1))


def input_fn(params):
    rng = np.random.default_rng(1)
    words = rng.integers(0, WORDS, [160, 3])
    rows = {"words": words, "users": rng.integers(0, USERS, [160, 1]),
            "friends": rng.integers(0, USERS, [160, 2]),
            "closeness": rng.random([160, 2], np.float32), "age": rng.random([160, 1], np.float32)}
    labels = (words.sum(axis=1) % 2).astype(np.float32)

    def with_sparse_ids(features, labels):
        return {name: values if name == "age" else tf.RaggedTensor.from_tensor(values).to_sparse()
                for name, values in features.items()}, labels

    return tf.data.Dataset.from_tensor_slices((rows, labels)).repeat().batch(
        params["batch_size"], drop_remainder=True).map(with_sparse_ids)


def metric_fn(labels, probabilities):
    predicted = tf.round(probabilities)
    return {"auc": tf.metrics.auc(labels, probabilities),
            "accuracy": tf.metrics.accuracy(labels, predicted),
            "mean": tf.metrics.mean(probabilities)}


def model_fn(features, labels, mode, params):
    is_training = mode == tf_estimator.ModeKeys.TRAIN
    net = tf.concat([features["words"], features["users"], features["friends"], features["age"]],
                    axis=1)
    net = tf.layers.dense(net, params["hidden"], activation=tf.nn.relu, name="hidden")
    net = tf.layers.batch_normalization(net, momentum=0.9, training=is_training)
    logits = tf.squeeze(tf.layers.dense(net, 1), axis=1)
    probabilities = tf.sigmoid(logits)
    if mode == tf_estimator.ModeKeys.PREDICT:
        return TPUEstimatorSpec(
            mode, predictions={"probabilities": probabilities})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        return TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, probabilities]))
    optimizer = CrossShardOptimizer(tf.train.AdagradOptimizer(params["rate"]))
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def make_estimator(model_dir):
    return TPUEstimator(
        model_fn, config=RunConfig(model_dir=model_dir), train_batch_size=8,
        eval_batch_size=8, predict_batch_size=8, params={"hidden": 8, "rate": 0.05},
        embedding_config_spec=embedding_config_spec())


def main():
    estimator = make_estimator(sys.argv[1])
    estimator.train(input_fn, max_steps=20)
    print(estimator.evaluate(input_fn, steps=5))


if __name__ == "__main__":
    main()
