# SPDX-License-Identifier: Apache-2.0
"""Replicas: in a TF2 training loop under a strategy."""

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


def loss_of(activations, kernel, labels):
    inputs = tf.concat([activations["words"], activations["users"]], axis=1)
    logits = tf.matmul(inputs, kernel)[:, 0]
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels, logits))


def main(model_dir, estimator_checkpoint, steps=20):
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        embedding = mid_level.TPUEmbedding(feature_config(), mid_level.Adagrad(0.1))
        embedding.build(4)  # samples of one replica
        kernel = tf.Variable(tf.zeros([8, 1]), name="kernel")
        step = tf.Variable(0, dtype=tf.int64)
        optimizer = keras.optimizers.legacy.SGD(0.1)
        saved = tf.train.Checkpoint(
            embedding=embedding, variables={"global_step": step, "kernel": kernel})
    checkpoint.convert(estimator_checkpoint, f"{model_dir}/start", "tf2")
    saved.restore(f"{model_dir}/start").assert_existing_objects_matched()

    def replica_step(features, labels):
        embedding.enqueue(features)
        with tf.GradientTape() as tape:
            activations = embedding.dequeue()
            tape.watch(activations)
            # CrossShardOptimizer divided by the replicas: both updates add their gradients up.
            loss = loss_of(activations, kernel, labels) / strategy.num_replicas_in_sync
        of_activations, of_kernel = tape.gradient(loss, (activations, kernel))
        embedding.apply_gradients(of_activations)
        optimizer.apply_gradients([(of_kernel, kernel)])
        return loss

    @tf.function
    def train_step(features, labels):
        losses = strategy.run(replica_step, (features, labels))
        step.assign_add(1)
        return strategy.reduce("SUM", losses, axis=None)

    batches = iter(strategy.distribute_datasets_from_function(
        lambda context: input_fn({"batch_size": 4})))
    for _ in range(int(steps)):
        loss = train_step(*next(batches))
    print(f"loss {float(loss):.4f}")
    saved.write(f"{model_dir}/ckpt-20")


if __name__ == "__main__":
    main(*sys.argv[1:])
