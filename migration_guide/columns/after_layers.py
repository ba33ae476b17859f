# SPDX-License-Identifier: Apache-2.0
"""Columns: in a tf_keras model, a table for each column."""

import sys

import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

NUM_WORDS = 50


def feature_config():
    words = mid_level.TableConfig(
        NUM_WORDS, 4, tf.compat.v1.truncated_normal_initializer(stddev=0.1), combiner="mean",
        name="words")
    users = mid_level.TableConfig(NUM_WORDS, 4, combiner="mean", name="users")
    return {"words": mid_level.FeatureConfig(words), "users": mid_level.FeatureConfig(users)}


def input_fn(params):
    batch = params["batch_size"]
    ids = tf.data.Dataset.range(1000).batch(batch, drop_remainder=True)

    def example(row):
        words = tf.SparseTensor(
            tf.stack([tf.repeat(tf.range(batch, dtype=tf.int64), 2),
                      tf.tile(tf.constant([0, 1], tf.int64), [batch])], axis=1),
            tf.repeat(row, 2) * 7 % NUM_WORDS, [batch, 2])
        # The Estimator took a 0 in a dense tensor for padding.
        users = tf.sparse.from_dense(row[:, tf.newaxis] * 3 % NUM_WORDS)
        return {"words": words, "users": users}, tf.cast(row % 2, tf.float32)

    return ids.map(example).repeat()


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = mid_level.TPUEmbeddingLayer(
            feature_config(), mid_level.Adam(0.1, epsilon=1e-6, clipvalue=0.01))
        self.dense = keras.layers.Dense(1, use_bias=False)

    def call(self, features):
        activations = self.embedding(features)
        # input_layer concatenated the columns in the order of their names.
        inputs = tf.concat([activations["users"], activations["words"]], axis=1)
        return self.dense(inputs)[:, 0]


def main(model_dir, estimator_checkpoint, steps=20):
    model = Model()
    # Legacy Keras optimizers compute as those of tf.train; the epsilon was theirs, too.
    model.compile(keras.optimizers.legacy.Adam(0.01, epsilon=1e-8),
                  keras.losses.BinaryCrossentropy(from_logits=True))
    batches = input_fn({"batch_size": 8})
    model(next(iter(batches))[0])  # makes the dense variables

    saved = tf.train.Checkpoint(layer=model.embedding, variables={
        "global_step": model.optimizer.iterations, "kernel": model.dense.kernel})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tpu-embedding-layer")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    model.fit(batches, steps_per_epoch=int(steps), verbose=2)
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
