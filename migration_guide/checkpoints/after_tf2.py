# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: a TF2 training loop goes on from the Estimator's."""

import sys

import numpy as np
import tensorflow as tf
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


def loss_of(activations, kernel, labels):
    inputs = tf.concat([activations["words"], activations["users"]], axis=1)
    logits = tf.matmul(inputs, kernel)[:, 0]
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


class Training:
    def __init__(self):
        self.feature_config = feature_config()
        self.embedding = mid_level.TPUEmbedding(self.feature_config, mid_level.Adagrad(0.1))
        self.embedding.build(8)
        self.kernel = tf.Variable(tf.fill([8, 1], 0.5), name="kernel")
        self.step = tf.Variable(0, dtype=tf.int64)
        self.optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
        self.optimizer.apply_gradients([(tf.zeros_like(self.kernel), self.kernel)])
        self.saved = tf.train.Checkpoint(embedding=self.embedding, variables={
            "global_step": self.step, "kernel": self.kernel,
            "kernel/Adagrad": self.optimizer.get_slot(self.kernel, "accumulator")})

    @tf.function
    def train_step(self, features, labels):
        self.embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = self.embedding.dequeue()
            tape.watch(activations)
            loss = loss_of(activations, self.kernel, labels)
        of_activations, of_kernel = tape.gradient(loss, (activations, self.kernel))
        self.embedding.apply_gradients(of_activations)
        self.optimizer.apply_gradients([(of_kernel, self.kernel)], global_step=self.step)

    def train(self, steps):
        for features, labels in input_fn({"batch_size": 8}).take(int(steps)):
            self.train_step(features, labels)


def main(model_dir, estimator_checkpoint, steps=20):
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/first/ckpt-20", "tf2")
    first = Training()
    first.saved.restore(f"{model_dir}/first/ckpt-20").assert_existing_objects_matched()
    first.train(steps)  # goes on
    first.saved.write(f"{model_dir}/first/ckpt-40")

    second = Training()  # starts from the trained words; their slots start over
    of_first, of_second = (
        {table.name: rows for table, rows in training.embedding.embedding_tables.items()}
        for training in (first, second))
    of_second["words"].assign(of_first["words"])
    second.train(steps)
    second.saved.write(f"{model_dir}/second/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
