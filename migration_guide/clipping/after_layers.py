# SPDX-License-Identifier: Apache-2.0
"""Clipping: in a tf_keras model, an argument of the optimizers."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

WORDS, USERS = 50, 20


def feature_config():
    words = mid_level.TableConfig(
        WORDS, 4, combiner="mean", name="words", optimizer=mid_level.Adagrad(0.1, clipvalue=0.005))
    users = mid_level.TableConfig(
        USERS, 4, combiner="sum", name="users", optimizer=mid_level.SGD(
            0.5, clip_weight_min=-0.2, clip_weight_max=0.2, clipvalue=(-0.01, 0.02)))
    return {"words": mid_level.FeatureConfig(words), "users": mid_level.FeatureConfig(users)}


def input_fn(params):
    rng = np.random.default_rng(1)
    words, users = rng.integers(0, WORDS, [160, 3]), rng.integers(0, USERS, [160, 1])
    labels = (words.sum(axis=1) % 2).astype(np.float32)
    rows = tf.data.Dataset.from_tensor_slices(({"words": words, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = mid_level.TPUEmbeddingLayer(feature_config(), None)
        self.dense = keras.layers.Dense(1, use_bias=False)

    def call(self, features):
        activations = self.embedding(features)
        inputs = tf.concat([activations["words"], activations["users"]], axis=1)
        return self.dense(inputs)[:, 0]


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
