# SPDX-License-Identifier: Apache-2.0
"""Evaluation: metrics of a metric function, and predictions."""

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
    }
    return EmbeddingConfigSpec(
        table_to_config_dict=tables, feature_to_config_dict=features,
        optimization_parameters=tpu_embedding.AdagradParameters(0.1))


def input_fn(params):
    rng = np.random.default_rng(1)
    words, users = rng.integers(0, WORDS, [160, 3]), rng.integers(0, USERS, [160, 1])
    labels = (words.sum(axis=1) % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(({"words": words, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


def metric_fn(labels, logits):
    return {"accuracy": tf.metrics.accuracy(labels, logits > 0)}


def model_fn(features, labels, mode, params):
    inputs = tf.concat([features["words"], features["users"]], axis=1)
    kernel = tf.get_variable("kernel", [8, 1])
    logits = tf.matmul(inputs, kernel)[:, 0]
    if mode == tf_estimator.ModeKeys.PREDICT:
        return TPUEstimatorSpec(mode, predictions={"logits": logits})
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    if mode == tf_estimator.ModeKeys.EVAL:
        return TPUEstimatorSpec(
            mode, loss=loss, eval_metrics=(metric_fn, [labels, logits]))
    optimizer = CrossShardOptimizer(tf.train.AdagradOptimizer(0.1))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    estimator = TPUEstimator(
        model_fn, config=RunConfig(model_dir=sys.argv[1], tf_random_seed=1),
        train_batch_size=8, eval_batch_size=8, predict_batch_size=8,
        embedding_config_spec=embedding_config_spec())
    estimator.train(input_fn, max_steps=20)
    metrics = estimator.evaluate(input_fn, steps=10)
    print(f"loss {metrics['loss']:.6f}, accuracy {metrics['accuracy']:.4f}")
    predictions = estimator.predict(lambda params: input_fn(params).take(1))
    print("logits", " ".join(f"{prediction['logits']:.5f}" for prediction in predictions))


if __name__ == "__main__":
    main()
