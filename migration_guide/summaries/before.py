# SPDX-License-Identifier: Apache-2.0
"""Summaries: a host call writes two scalars in every step."""

import sys

import numpy as np
import tensorflow.compat.v1 as tf
import tensorflow.compat.v2 as tf2
from tensorflow.python.tpu import tpu_embedding

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
    return tf.estimator.tpu.experimental.EmbeddingConfigSpec(
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


def host_call_fn(step, loss, norm):
    writer = tf2.summary.create_file_writer(f"{sys.argv[1]}/summaries")
    with writer.as_default(), tf2.summary.record_if(True):
        tf2.summary.scalar("training/loss", loss[0], step=step[0])
        tf2.summary.scalar("training/norm_of_kernel", norm[0], step=step[0])
        return tf.summary.all_v2_summary_ops()


def model_fn(features, labels, mode, params):
    inputs = tf.concat([features["words"], features["users"]], axis=1)
    kernel = tf.get_variable("kernel", [8, 1])
    logits = tf.matmul(inputs, kernel)[:, 0]
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    step = tf.train.get_global_step()
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.GradientDescentOptimizer(0.1))
    host_call = (host_call_fn, [tf.reshape(value, [1]) for value in (step, loss, tf.norm(kernel))])
    return tf.estimator.tpu.TPUEstimatorSpec(
        mode, loss=loss, train_op=optimizer.minimize(loss, step), host_call=host_call)


def main():
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn, config=tf.estimator.tpu.RunConfig(model_dir=sys.argv[1], tf_random_seed=1),
        train_batch_size=8, embedding_config_spec=embedding_config_spec())
    estimator.train(input_fn, max_steps=20)


if __name__ == "__main__":
    main()
