# SPDX-License-Identifier: Apache-2.0
"""Copies an object of a strategy with two replicas, and trains both."""

import copy

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2)

from tpu_estimator_embedding.mid_level import (  # noqa: E402
    SGD,
    FeatureConfig,
    TableConfig,
    TPUEmbedding,
    TPUEmbeddingV0,
)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
table = TableConfig(4, 1, tf.zeros_initializer(), name="words")


def step(embedding):
    def replica():
        embedding.enqueue([tf.constant([1, 2])])
        embedding.apply_gradients([tf.ones_like(embedding.dequeue()[0])])
    tf.function(lambda: strategy.run(replica))()


with strategy.scope():
    embedding = TPUEmbedding([FeatureConfig(table)], SGD(1.0))
embedding.build(2)
step(embedding)
for copied in (copy.deepcopy(embedding), copy.deepcopy(copy.deepcopy(embedding))):
    step(copied)
    np.testing.assert_array_equal(copied.embedding_tables[table][:, 0], [0, -4, -4, 0])
    np.testing.assert_array_equal(embedding.embedding_tables[table][:, 0], [0, -2, -2, 0])
    assert copied.embedding_tables[table]._distribute_strategy is strategy

with strategy.scope():
    plain = TPUEmbeddingV0([FeatureConfig(table)], None)
    plain.build()
    copied = copy.deepcopy(plain)
copied.embedding_tables[table].assign(tf.ones([4, 1]))
assert type(copied.embedding_tables[table]) is type(plain.embedding_tables[table])
np.testing.assert_array_equal(plain.embedding_tables[table], tf.zeros([4, 1]))
