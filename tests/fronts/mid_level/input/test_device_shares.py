# SPDX-License-Identifier: Apache-2.0
"""A batch that comes device by device is one batch, or an error that says what is missing."""

import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level import SGD, FeatureConfig, TableConfig, TPUEmbedding
from tpu_estimator_embedding.mid_level.input.feature_input import DeviceShares

DEVICES = ["/job:localhost/replica:0/task:0/device:CPU:0", "/device:CPU:1"]


@pytest.fixture(name="shares")
def the_shares():
    return DeviceShares(DEVICES)


def test_device_that_has_its_ids_is_an_error_and_the_batch_continues(shares):
    shares.add("/TPU:1", ["b"], training=True)
    with pytest.raises(RuntimeError, match="got '/CPU:1' twice. Devices without ids: .*CPU:0"):
        shares.add("/CPU:1", ["c"], training=True)
    assert shares.add("/TPU:0", ["a"], training=True) == [["a"], ["b"]]


def test_shares_are_all_for_training_or_none(shares):
    shares.add("/TPU:1", ["b"], training=True)
    with pytest.raises(ValueError, match="`training` must be True, as for the other devices"):
        shares.add("/TPU:0", ["a"], training=False)


def test_unfinished_batch_is_reported_and_waits(shares):
    shares.add("/TPU:1", ["b"], training=True)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="called for every device, got no ids for .*CPU:0"):
            shares.check_complete()
    assert shares.add("/TPU:0", ["a"], training=True) == [["a"], ["b"]]
    shares.add("/TPU:1", ["b"], training=True)
    shares.drop()
    shares.check_complete()


def test_function_that_leaves_a_batch_unfinished_is_reported(shares):
    @tf.function
    def enqueue_half():
        shares.add("/TPU:1", [tf.constant(1)], training=True)

    enqueue_half()
    with pytest.raises(RuntimeError, match="must be called for every device"):
        shares.add("/TPU:0", [tf.constant(0)], training=True)
    assert shares.add("/TPU:0", ["a"], training=True) is None


def test_one_replica_has_one_device():
    table = TableConfig(3, 1, tf.zeros_initializer(), name="t")
    embedding = TPUEmbedding(FeatureConfig(table), SGD(1.0))
    for device in ("/TPU:0", "/CPU:0"):
        embedding.enqueue(tf.constant([1, 1]), device=device)
        embedding.apply_gradients(tf.ones_like(embedding.dequeue()))
    assert embedding.embedding_tables[table].numpy().tolist() == [[0.0], [-4.0], [0.0]]


def test_device_inside_a_strategy_is_refused():
    strategy = tf.distribute.OneDeviceStrategy("/device:CPU:0")
    with strategy.scope():
        embedding = TPUEmbedding(FeatureConfig(TableConfig(3, 1)), SGD(1.0))
    with pytest.raises(ValueError, match="`device` must be None inside strategy.run"):
        strategy.run(lambda: embedding.enqueue(tf.constant([1]), device="/TPU:0"))
