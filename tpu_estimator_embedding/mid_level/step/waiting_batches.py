# SPDX-License-Identifier: Apache-2.0
"""The batches on their way from enqueue over dequeue to apply_gradients.

They wait in queues that live as long as the object, as a TPU's do, so that the three calls
may stand in one `tf.function`, in several, or in none. Where a TPU would wait for ever,
there is an error.
"""

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import StepIds
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.mid_level.runtime_checks import require
from tpu_estimator_embedding.types import Tensor

CAPACITY = 16  # batches that may be enqueued before they are dequeued

_NO_GRADIENTS = (
    "`apply_gradients` must be called for every batch that was enqueued with training=True and "
    "dequeued, before the next enqueue or dequeue. The batch without gradients is dropped. Pass "
    "training=False to enqueue if no gradients will follow.")
_FULL = (f"`enqueue` must be followed by dequeue, got {CAPACITY} batches that wait to be "
         "dequeued.")
_EMPTY = "`dequeue` must come after enqueue, got no batch that waits."
_NOT_TRAINING = (
    "`apply_gradients` must come, once, after the dequeue of a batch that was enqueued with "
    "training=True.")


class WaitingBatches:
    """Batches that were enqueued, and the one that was looked up and waits for gradients."""

    def __init__(self, batch: StepIds):
        """Makes queues for batches like `batch`, a nest of tensors of any values."""
        self._enqueued = TensorQueue(
            (batch, tf.constant(False), tf.constant(False)), capacity=CAPACITY)
        self._looked_up = TensorQueue((batch, tf.constant(False)), capacity=1)

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch.

        Args:
            batch: the ids.
            training: whether gradients will follow.
            is_optional: whether they may be missing: the lookup is then one for inference.

        Raises:
            RuntimeError: if one that was looked up misses its gradients, or too many wait.
        """
        with (tf.control_dependencies(self._drop_and_complain()),
              tf.control_dependencies(require(
                  self._enqueued.queue.size() < CAPACITY, _FULL, RuntimeError))):
            self._enqueued.enqueue((batch, tf.constant(training), tf.constant(is_optional)))

    def dequeue(self) -> tuple[StepIds, Tensor, Tensor]:
        """Returns the first batch, whether gradients will follow, and whether they must."""
        with (tf.control_dependencies(self._drop_and_complain()),
              tf.control_dependencies(require(
                  self._enqueued.queue.size() > 0, _EMPTY, RuntimeError))):
            return self._enqueued.dequeue()

    def hold(self, batch: StepIds, is_optional: Tensor) -> tf.Operation | None:
        """Keeps a batch that was looked up until its gradients come."""
        return self._looked_up.enqueue((batch, is_optional))

    def release(self) -> StepIds:
        """Returns the batch whose gradients have come.

        Raises:
            RuntimeError: if there is none.
        """
        with tf.control_dependencies(require(
                self._looked_up.queue.size() > 0, _NOT_TRAINING, RuntimeError)):
            batch, _ = self._looked_up.dequeue()
            return batch

    def _drop_and_complain(self) -> list[tf.Operation]:
        """Drops a batch without gradients, so that the program may go on after the error."""
        is_missing = tf.cond(self._looked_up.queue.size() > 0, self._drop,
                             lambda: tf.constant(False))
        return require(tf.logical_not(is_missing), _NO_GRADIENTS, RuntimeError)

    def _drop(self) -> Tensor:
        """Drops the batch; returns whether its gradients are missed."""
        _, is_optional = self._looked_up.dequeue()
        return tf.logical_not(is_optional)
