# SPDX-License-Identifier: Apache-2.0
"""Pipelining: in a TF2 training loop."""

import sys

import numpy as np
import tensorflow as tf
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
    rows = tf.data.Dataset.from_tensor_slices(({"words": words, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


def loss_of(activations, kernel, labels):
    inputs = tf.concat([activations["words"], activations["users"]], axis=1)
    logits = tf.matmul(inputs, kernel)[:, 0]
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


def main(model_dir, estimator_checkpoint, steps=20):
    embedding = mid_level.TPUEmbedding(
        feature_config(), mid_level.Adagrad(0.1), pipeline_execution_with_tensor_core=True)
    embedding.build(8)
    kernel = tf.Variable(tf.zeros([8, 1]), name="kernel")
    step = tf.Variable(0, dtype=tf.int64)
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    saved = tf.train.Checkpoint(
        embedding=embedding, variables={"global_step": step, "kernel": kernel})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tf2")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    @tf.function
    def train_step(features, labels):
        embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = loss_of(activations, kernel, labels)
        of_activations, of_kernel = tape.gradient(loss, (activations, kernel))
        embedding.apply_gradients(of_activations)
        optimizer.apply_gradients([(of_kernel, kernel)], global_step=step)
        return loss

    for features, labels in input_fn({"batch_size": 8}).take(int(steps)):
        loss = train_step(features, labels)
    print(f"loss {float(loss):.4f}")
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
