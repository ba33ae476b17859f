# SPDX-License-Identifier: Apache-2.0
"""Evaluation: in a TF2 training loop, functions beside the training step."""

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
    rows = tf.data.Dataset.from_tensor_slices(({"words": words, "users": users}, labels))
    return rows.repeat().batch(params["batch_size"], drop_remainder=True).map(
        lambda features, labels: ({name: tf.RaggedTensor.from_tensor(ids).to_sparse()
                                   for name, ids in features.items()}, labels))


def logits_of(activations, kernel):
    inputs = tf.concat([activations["words"], activations["users"]], axis=1)
    return tf.matmul(inputs, kernel)[:, 0]


def loss_of(logits, labels):
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


def main(model_dir, estimator_checkpoint, steps=20):
    embedding = mid_level.TPUEmbedding(feature_config(), mid_level.Adagrad(0.1))
    embedding.build(8)
    kernel = tf.Variable(tf.zeros([8, 1]), name="kernel")
    step = tf.Variable(0, dtype=tf.int64)
    optimizer = tf.compat.v1.train.AdagradOptimizer(0.1)
    optimizer.apply_gradients([(tf.zeros_like(kernel), kernel)])  # makes its slot
    saved = tf.train.Checkpoint(embedding=embedding, variables={
        "global_step": step, "kernel": kernel,
        "kernel/Adagrad": optimizer.get_slot(kernel, "accumulator")})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tf2")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    @tf.function
    def train_step(features, labels):
        embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            loss = loss_of(logits_of(activations, kernel), labels)
        of_activations, of_kernel = tape.gradient(loss, (activations, kernel))
        embedding.apply_gradients(of_activations)
        optimizer.apply_gradients([(of_kernel, kernel)], global_step=step)
        return loss

    @tf.function
    def predict_step(features):
        embedding.enqueue(features, training=False)  # no gradients will follow
        return logits_of(embedding.dequeue(), kernel)

    for features, labels in input_fn({"batch_size": 8}).take(int(steps)):
        train_step(features, labels)
    saved.write(f"{model_dir}/ckpt-20")

    losses, accuracy = [], keras.metrics.BinaryAccuracy(threshold=0.0)
    for features, labels in input_fn({"batch_size": 8}).take(10):
        logits = predict_step(features)
        losses.append(float(loss_of(logits, labels)))
        accuracy.update_state(labels, logits)
    print(f"loss {np.mean(losses):.6f}, accuracy {float(accuracy.result()):.4f}")
    for features, _ in input_fn({"batch_size": 8}).take(1):
        print("logits", " ".join(f"{logit:.5f}" for logit in predict_step(features).numpy()))


if __name__ == "__main__":
    main(*sys.argv[1:])
