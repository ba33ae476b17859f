# SPDX-License-Identifier: Apache-2.0
"""The queues of one core: enqueued batches, and the received batch whose gradients are due.

    enqueue ─▶ waiting ─ receive ─▶ due ─ take_due ─▶ gradients
    enqueue ───────────────▶ backward only ─ take_backward_only ─▶ gradients

Batches are received in the order in which they were enqueued, also across sessions. Receiving
blocks until there is a batch. Calls that would block forever on a TPU raise
InvalidArgumentError: sending gradients of a batch for inference, and receiving a batch while
gradients are due.
"""

from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.types import Tensor
from tpu_estimator_embedding.v1_engine.core_ids import CoreIds, Share, example_ids
from tpu_estimator_embedding.v1_engine.modes import BatchMode

_BATCHES_WAITING = 100  # enqueueing blocks while the queue is full, as on a TPU


class Batch(NamedTuple):
    """One core's share of a batch.

    Attributes:
        ids: the ids of the share.
        trains: scalar bool, whether gradients are due after the batch was received.
    """

    ids: CoreIds
    trains: Tensor


class CoreQueue:
    """Keeps the batches of one core in order."""

    def __init__(self, core: int, share: Share):
        """Creates empty queues for the batches of one core."""
        self._core = core
        with tf.Graph().as_default():
            batch = Batch(example_ids(share), tf.compat.v1.placeholder(tf.bool, []))
        self._waiting = TensorQueue(batch, capacity=_BATCHES_WAITING)
        self._due = TensorQueue(batch, capacity=1)
        self._backward_only = TensorQueue(batch.ids, capacity=_BATCHES_WAITING)

    def enqueue(self, ids: CoreIds, mode: BatchMode) -> tf.Operation:
        """Returns the op that enqueues a batch; it blocks while the queue is full."""
        if mode != BatchMode.BACKWARD_PASS_ONLY:
            return self._waiting.enqueue(Batch(ids, tf.constant(mode == BatchMode.TRAINING)))
        nothing_waits = assert_that(
            tf.equal(self._waiting.queue.size(), 0),
            "mode_override='backward_pass_only' must be enqueued after all earlier batches were "
            f"received, got batches of core {self._core} that were not received.")
        with tf.control_dependencies(nothing_waits):
            return self._backward_only.enqueue(ids)

    def receive(self) -> Batch:
        """Dequeues the next batch; blocks until there is one."""
        with tf.control_dependencies([self._drop_inference_batch()]):
            number_due = self._due.queue.size() + self._backward_only.queue.size()
        nothing_due = assert_that(
            tf.equal(number_due, 0),
            f"Gradients of the previous batch must be sent before core {self._core} receives "
            "another one, got none. Run the op that generate_send_gradients_op returned together "
            "with the activations, or enqueue with mode_override='inference'.")
        with tf.control_dependencies(nothing_due):
            return self._waiting.dequeue()

    def set_due(self, batch: Batch) -> tf.Operation:
        """Returns the op that stores `batch` as the one whose gradients are due."""
        return self._due.enqueue(batch)

    def take_due(self) -> CoreIds:
        """Dequeues the ids of the received batch."""
        batch = self._due.dequeue()
        is_expected = assert_that(
            batch.trains,
            f"Gradients must be sent for training batches only, got gradients of core "
            f"{self._core} for a batch for inference. Leave out generate_send_gradients_op, or "
            "the mode_override of generate_enqueue_ops.")
        with tf.control_dependencies(is_expected):
            return tf.nest.map_structure(
                lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf, batch.ids)

    def take_backward_only(self) -> CoreIds:
        """Dequeues the ids of the next backward-pass-only batch; blocks until there is one."""
        return self._backward_only.dequeue()

    def _drop_inference_batch(self) -> Tensor:
        """Drops the received batch if it was for inference, because no gradients are due."""
        def drop_or_put_back() -> Tensor:
            batch = self._due.dequeue()
            return tf.cond(batch.trains, lambda: after(self._due.enqueue(batch)),
                           lambda: tf.constant(True))

        return tf.cond(self._due.queue.size() > 0, drop_or_put_back, lambda: tf.constant(True))
