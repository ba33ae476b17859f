# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: a tf_keras model goes on from the Estimator's."""

import sys

import numpy as np
import tensorflow as tf
import tf_keras as keras
from tpu_estimator_embedding import checkpoint, mid_level

WORDS, USERS = 50, 20


def feature_config():
    words = mid_level.TableConfig(WORDS, 4, combiner="mean", name="words")
    users = mid_level.TableConfig(
        USERS, 4, tf.compat.v1.constant_initializer(0.1), combiner="sum", name="users")
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
        self.embedding = mid_level.TPUEmbeddingLayer(feature_config(), mid_level.Adagrad(0.1))
        self.dense = keras.layers.Dense(
            1, use_bias=False, kernel_initializer=tf.constant_initializer(0.5))

    def call(self, features):
        activations = self.embedding(features)
        inputs = tf.concat([activations["words"], activations["users"]], axis=1)
        return self.dense(inputs)[:, 0]


def make_model():
    model = Model()
    model.compile(
        keras.optimizers.Adagrad(0.1), keras.losses.BinaryCrossentropy(from_logits=True))
    model(next(iter(input_fn({"batch_size": 8})))[0])  # makes the dense variables
    model.optimizer.build(model.trainable_variables)  # makes its slots
    [slot] = [one for one in model.optimizer.variables if "kernel" in one.name]
    return model, tf.train.Checkpoint(layer=model.embedding, variables={
        "global_step": model.optimizer.iterations, "kernel": model.dense.kernel,
        "kernel/Adagrad": slot})


def main(model_dir, estimator_checkpoint, steps=20):
    checkpoint.convert(
        estimator_checkpoint, f"{model_dir}/first/ckpt-20", "tpu-embedding-layer")
    first, saved = make_model()
    saved.restore(f"{model_dir}/first/ckpt-20").assert_existing_objects_matched()
    first.fit(input_fn({"batch_size": 8}), steps_per_epoch=int(steps), verbose=0)  # goes on
    saved.write(f"{model_dir}/first/ckpt-40")

    second, saved = make_model()  # starts from the trained words; their slots start over
    of_first, of_second = (
        {table.name: rows for table, rows in model.embedding.embedding_tables.items()}
        for model in (first, second))
    of_second["words"].assign(of_first["words"])
    second.fit(input_fn({"batch_size": 8}), steps_per_epoch=int(steps), verbose=0)
    saved.write(f"{model_dir}/second/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
