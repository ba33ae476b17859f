# SPDX-License-Identifier: Apache-2.0
"""Columns: two embedding columns, each with its own table."""

import sys

import tensorflow.compat.v1 as tf

NUM_WORDS = 50


def columns():
    words = tf.feature_column.categorical_column_with_identity("words", NUM_WORDS)
    users = tf.feature_column.categorical_column_with_identity("users", NUM_WORDS)
    return [tf.tpu.experimental.embedding_column(
        words, 4, combiner="mean", initializer=tf.truncated_normal_initializer(stddev=0.1)),
        tf.tpu.experimental.embedding_column(users, 4)]


def input_fn(params):
    batch = params["batch_size"]
    ids = tf.data.Dataset.range(1000).batch(batch, drop_remainder=True)

    def example(row):
        words = tf.SparseTensor(
            tf.stack([tf.repeat(tf.range(batch, dtype=tf.int64), 2),
                      tf.tile(tf.constant([0, 1], tf.int64), [batch])], axis=1),
            tf.repeat(row, 2) * 7 % NUM_WORDS, [batch, 2])
        users = row[:, tf.newaxis] * 3 % NUM_WORDS
        return {"words": words, "users": users}, tf.cast(row % 2, tf.float32)

    return ids.map(example).repeat()


def model_fn(features, labels, mode, params):
    inputs = tf.feature_column.input_layer(features, columns())
    kernel = tf.get_variable("kernel", [8, 1], initializer=tf.glorot_uniform_initializer())
    logits = tf.matmul(inputs, kernel)[:, 0]
    loss = tf.losses.sigmoid_cross_entropy(labels, logits)
    optimizer = tf.tpu.CrossShardOptimizer(tf.train.AdamOptimizer(0.01))
    train_op = optimizer.minimize(loss, tf.train.get_global_step())
    return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=train_op)


def main():
    config = tf.estimator.tpu.RunConfig(model_dir=sys.argv[1])
    estimator = tf.estimator.tpu.TPUEstimator(
        model_fn=model_fn, config=config, train_batch_size=8,
        embedding_config_spec=tf.estimator.tpu.experimental.EmbeddingConfigSpec(
            feature_columns=columns(), clipping_limit=0.01,
            optimization_parameters=tf.tpu.experimental.AdamParameters(0.1, epsilon=1e-6)))
    estimator.train(input_fn, max_steps=20)
    print("trained to the end")


if __name__ == "__main__":
    main()
