# SPDX-License-Identifier: Apache-2.0
"""Weights: in a tf_keras model, beside the ids."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

WORDS, USERS = 50, 20


def feature_config():
    words = mid_level.TableConfig(WORDS, 4, combiner="mean", name="words")
    users = mid_level.TableConfig(USERS, 4, combiner="sum", name="users")
    return {"words": mid_level.FeatureConfig(words), "users": mid_level.FeatureConfig(users)}


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


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = mid_level.TPUEmbeddingLayer(feature_config(), mid_level.Adagrad(0.1))
        self.dense = keras.layers.Dense(1, use_bias=False)

    def call(self, features):
        ids = {"words": features["words"], "users": features["users"]}
        activations = self.embedding(ids, {"words": features["importance"], "users": None})
        inputs = tf.concat([activations["words"], activations["users"]], axis=1)
        return self.dense(inputs)[:, 0]


def main(model_dir, estimator_checkpoint, steps=20):
    model = Model()
    model.compile(
        keras.optimizers.Adagrad(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    batches = input_fn({"batch_size": 8})
    model(next(iter(batches))[0])  # makes the dense variables

    model.optimizer.build(model.trainable_variables)  # makes its slots
    [slot] = [one for one in model.optimizer.variables if "kernel" in one.name]
    saved = tf.train.Checkpoint(layer=model.embedding, variables={
        "global_step": model.optimizer.iterations, "kernel": model.dense.kernel,
        "kernel/Adagrad": slot})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tpu-embedding-layer")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    model.fit(batches, steps_per_epoch=int(steps), verbose=2)
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
