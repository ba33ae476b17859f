# SPDX-License-Identifier: Apache-2.0
"""The batches of a function: first in, first out, never those of another function."""

import pytest
import tensorflow as tf

from tpu_estimator_embedding.mid_level.execution.waiting_batches import FunctionBatches


@pytest.fixture
def batches():
    return FunctionBatches()


def enqueue(batches, batch, training=True, is_optional=False):
    batches.enqueue(batch, training, is_optional=is_optional)


def lookup(batches):
    batch = batches.dequeue()
    batches.hold(batch)
    return batch.ids


def test_batches_are_in_order_and_released_once(batches):
    enqueue(batches, "first")
    enqueue(batches, "second", training=False)
    assert lookup(batches) == "first"
    assert batches.release() == "first"
    assert lookup(batches) == "second"
    with pytest.raises(RuntimeError, match="`apply_gradients` must come, once, after"):
        batches.release()


def test_functions_do_not_see_the_batches_of_others(batches):
    enqueue(batches, "eager")
    with tf.Graph().as_default():
        with pytest.raises(RuntimeError, match="`dequeue` must come after enqueue.* in one func"):
            batches.dequeue()
        enqueue(batches, "mine")
        with tf.Graph().as_default(), pytest.raises(RuntimeError, match="`dequeue` must come aft"):
            batches.dequeue()
        assert lookup(batches) == "mine"
        assert batches.release() == "mine"
    assert lookup(batches) == "eager"


def test_batches_without_gradients_are_dropped_with_an_error(batches):
    enqueue(batches, "first")
    lookup(batches)
    with pytest.raises(RuntimeError, match="must be called for every batch"):
        enqueue(batches, "second")
    enqueue(batches, "second", is_optional=True)
    lookup(batches)
    enqueue(batches, "third")
    assert lookup(batches) == "third"


def test_at_most_16_batches_wait(batches):
    for number in range(16):
        enqueue(batches, number)
    with pytest.raises(RuntimeError, match="`enqueue` must be followed by dequeue, got 16"):
        enqueue(batches, 16)
