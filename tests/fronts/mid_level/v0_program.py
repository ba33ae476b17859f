# SPDX-License-Identifier: Apache-2.0
"""Trains TPUEmbeddingV0 as TensorFlow documents it, on 1 and 2 cores; prints the tables."""

import sys

import tpu_estimator_embedding
from tpu_estimator_embedding.compat.stubs import tpu_cores

tpu_estimator_embedding.install()

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.python.tpu.tpu_embedding_v1 import TPUEmbeddingV0  # noqa: E402

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)
tpu = tf.tpu.experimental.embedding
IDS = np.random.default_rng(0).integers(0, 10, [12, 3])

resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
tf.tpu.experimental.initialize_tpu_system(resolver)
strategy = tf.distribute.TPUStrategy(resolver)
table = tpu.TableConfig(10, 2, tf.ones_initializer(), combiner="sum", name="t")
with strategy.scope():
    embedding = TPUEmbeddingV0({"bag": tpu.FeatureConfig(table), "one": tpu.FeatureConfig(table)},
                               None)
    embedding.build()
    optimizer = tf.keras.optimizers.Adagrad(0.5)
share = 4 // strategy.num_replicas_in_sync
dataset = strategy.experimental_distribute_dataset(
    tf.data.Dataset.from_tensor_slices(IDS).batch(4).map(
        lambda ids: {"bag": tf.sparse.from_dense(ids), "one": ids[:, 0]}))


@tf.function
def train(iterator):
    def step(features):
        tables = list(embedding.embedding_tables.values())
        with tf.GradientTape() as tape:
            activations = embedding(features)
            loss = tf.reduce_sum(activations["bag"] ** 2) + tf.reduce_sum(activations["one"])
        optimizer.apply_gradients(zip(tape.gradient(loss, tables), tables, strict=True))

    for _ in range(3):
        strategy.run(step, args=(next(iterator),))


train(iter(dataset))
[table] = embedding.embedding_tables.values()
print(strategy.num_replicas_in_sync, tpu_cores.count(), embedding.__class__.__module__)
print(np.array2string(table.numpy(), precision=4, floatmode="fixed"), file=sys.stdout)
