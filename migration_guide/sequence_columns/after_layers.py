# SPDX-License-Identifier: Apache-2.0
"""Sequence columns: in a tf_keras model."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

WORDS, USERS = 50, 20


def feature_config():
    words = mid_level.TableConfig(WORDS, 4, combiner="mean", name="words")
    users = mid_level.TableConfig(USERS, 4, combiner="mean", name="users")
    return {"words": mid_level.FeatureConfig(words, max_sequence_length=3),
            "users": mid_level.FeatureConfig(users)}


def inputs_of(activations):
    # Positions behind the end of a sample are zeros, so that the sum needs no mask.
    return tf.concat([tf.reduce_sum(activations["words"], axis=1), activations["users"]], axis=1)


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


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = mid_level.TPUEmbeddingLayer(feature_config(), mid_level.Adagrad(0.1))
        self.dense = keras.layers.Dense(1, use_bias=False)

    def call(self, features):
        return self.dense(inputs_of(self.embedding(features)))[:, 0]


def main(model_dir, estimator_checkpoint, steps=20):
    model = Model()
    model.compile(keras.optimizers.SGD(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
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
