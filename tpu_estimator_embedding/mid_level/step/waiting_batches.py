# SPDX-License-Identifier: Apache-2.0
"""The batches between enqueue, dequeue and apply_gradients.

Like a TPU's queues, the buffers live as long as the object, so the three calls may be in one
`tf.function`, in several, or in none. Calls that would block forever on a TPU raise errors.
"""

from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import StepIds
from tpu_estimator_embedding.engine.tensor_ring import TensorPack, TensorRing, empty
from tpu_estimator_embedding.mid_level.runtime_checks import require
from tpu_estimator_embedding.types import Tensor

CAPACITY = 16  # batches that may be enqueued before they are dequeued

NO_GRADIENTS = (
    "`apply_gradients` must be called for every batch that was enqueued with training=True and "
    "dequeued, before the next enqueue or dequeue. The batch without gradients is dropped. Pass "
    "training=False to enqueue if no gradients will follow.")
FULL = (f"`enqueue` must be followed by dequeue, got {CAPACITY} batches that were not "
        "dequeued.")
EMPTY = "`dequeue` must come after enqueue, got no enqueued batch."
NOT_TRAINING = (
    "`apply_gradients` must come, once, after the dequeue of a batch that was enqueued with "
    "training=True.")


# Whether gradients will follow a lookup.
NEVER, ALWAYS, MAYBE = 0, 1, 2


class WaitingBatch(NamedTuple):
    """A batch that was dequeued.

    Attributes:
        ids: the ids to look up.
        use: scalar int32, whether gradients will follow.
        packed: ids and use, for `WaitingBatches.hold`.
    """

    ids: StepIds
    use: Tensor
    packed: Tensor

    @property
    def is_for_training(self) -> Tensor:
        """Whether gradients may follow: scalar bool."""
        return self.use > NEVER


class WaitingBatches:
    """The enqueued batches, and the looked-up batch whose gradients are due."""

    def __init__(self, batch: StepIds):
        """Creates buffers for batches with the structure, dtypes and shapes of `batch`."""
        self._pack = TensorPack((batch, tf.constant(NEVER)))
        self._enqueued = TensorRing(capacity=CAPACITY)
        self._looked_up = tf.Variable(empty(), trainable=False)
        self._use = tf.Variable(NEVER, trainable=False)  # of the batch that was looked up

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch.

        Args:
            batch: the ids.
            training: whether gradients will follow.
            is_optional: whether gradients may be missing; the lookup is then for inference.

        Raises:
            RuntimeError: if the gradients of a looked-up batch are missing, or the buffer is
                full.
        """
        use = (MAYBE if is_optional else ALWAYS) if training else NEVER
        with (tf.control_dependencies(self._drop_and_complain()),
              tf.control_dependencies(require(
                  self._enqueued.size() < CAPACITY, FULL, RuntimeError))):
            self._enqueued.put(self._pack.pack((batch, tf.constant(use))))

    def dequeue(self) -> WaitingBatch:
        """Removes and returns the batch that was enqueued first."""
        with (tf.control_dependencies(self._drop_and_complain()),
              tf.control_dependencies(require(
                  self._enqueued.size() > 0, EMPTY, RuntimeError))):
            packed = self._enqueued.take()
            ids, use = self._pack.unpack(packed)
            return WaitingBatch(ids, use, packed)

    def hold(self, batch: WaitingBatch) -> None:
        """Stores a looked-up batch until its gradients arrive."""
        self._looked_up.assign(batch.packed, read_value=False)
        self._use.assign(batch.use, read_value=False)

    def release(self) -> StepIds:
        """Removes and returns the ids of the looked-up batch.

        Raises:
            RuntimeError: if there is no such batch.
        """
        with tf.control_dependencies(require(
                self._use.read_value() > NEVER, NOT_TRAINING, RuntimeError)):
            ids, _ = self._pack.unpack(self._looked_up.read_value())
            self._drop()
            return ids

    def _drop_and_complain(self) -> list[tf.Operation]:
        """Drops a batch without gradients, so that the program can continue after the error."""
        use = self._use.read_value()
        self._drop()
        return require(use != ALWAYS, NO_GRADIENTS, RuntimeError)

    def _drop(self) -> None:
        self._looked_up.assign(empty(), read_value=False)
        self._use.assign(NEVER, read_value=False)
