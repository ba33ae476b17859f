# SPDX-License-Identifier: Apache-2.0
"""The batches between enqueue, dequeue and apply_gradients.

`WaitingBatches` keeps them in buffers that, like a TPU's queues, live as long as the object, so the
three calls may be in one `tf.function`, in several, or in none. `FunctionBatches` keeps them in the
function that is traced, for the workers of a cluster. Calls that would block forever on a TPU raise
errors.
"""

import collections
import dataclasses
import weakref
from typing import NamedTuple, Protocol

import tensorflow as tf

from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Structure, Tensor

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
_IN_ONE_FUNCTION = (" Under a ParameterServerStrategy the three calls for a batch must be in one "
                    "function, which the coordinator schedules.")


class TensorPack:
    """Packs nests of one structure into scalars of dtype variant, which share their memory.

    Leaves that are not tensors (None or int) are constant.

    >>> pack = TensorPack({"ids": tf.constant([1, 2]), "weights": None})
    >>> pack.unpack(pack.pack({"ids": tf.constant([3, 4]), "weights": None}))["ids"].numpy()
    array([3, 4], dtype=int32)
    """

    def __init__(self, structure: Structure):
        """Stores the structure, dtypes and static shapes of a nest."""
        self._structure = structure
        components = tensors_of(structure)
        self._dtypes = [component.dtype for component in components]
        self._shapes = [component.shape for component in components]

    def pack(self, nest: Structure) -> Tensor:
        """Packs a nest into a scalar."""
        return tf.raw_ops.OptionalFromValue(components=tensors_of(nest))

    def unpack(self, packed: Tensor) -> Structure:
        """Unpacks a scalar to a nest."""
        return with_tensors(self._structure, tf.raw_ops.OptionalGetValue(
            optional=packed, output_types=self._dtypes, output_shapes=self._shapes))


class TensorRing:
    """A FIFO buffer of packed tensors. No method blocks: callers check the size.

    >>> ring, pack = TensorRing(capacity=2), TensorPack(tf.constant(0))
    >>> ring.put(pack.pack(tf.constant(3)))
    >>> int(ring.size()), int(pack.unpack(ring.take())), int(ring.size())
    (1, 3, 0)
    """

    def __init__(self, *, capacity: int):
        self._capacity = capacity
        self._slots = tf.Variable(tf.raw_ops.TensorListReserve(
            element_shape=tf.constant([], tf.int32), num_elements=capacity,
            element_dtype=tf.variant), trainable=False)
        self._num_put = tf.Variable(0, trainable=False, dtype=tf.int64)
        self._num_taken = tf.Variable(0, trainable=False, dtype=tf.int64)

    def size(self) -> Tensor:
        """Returns the number of elements, a scalar."""
        return self._num_put.read_value() - self._num_taken.read_value()

    def put(self, element: Tensor) -> None:
        """Adds an element; the size must be less than the capacity."""
        self._set(self._num_put.read_value(), element)
        self._num_put.assign_add(1, read_value=False)

    def take(self) -> Tensor:
        """Removes the first element and returns it; the size must be at least 1."""
        number = self._num_taken.read_value()
        element = tf.raw_ops.TensorListGetItem(
            input_handle=self._slots.read_value(), index=self._index(number),
            element_shape=tf.constant([], tf.int32), element_dtype=tf.variant)
        self._set(number, empty())  # frees its memory
        self._num_taken.assign_add(1, read_value=False)
        return element

    def _set(self, number: Tensor, element: Tensor) -> None:
        self._slots.assign(tf.raw_ops.TensorListSetItem(
            input_handle=self._slots.read_value(), index=self._index(number), item=element),
            read_value=False)

    def _index(self, number: Tensor) -> Tensor:
        return tf.cast(number % self._capacity, tf.int32)


def empty() -> Tensor:
    """Returns an empty scalar of dtype variant."""
    return tf.raw_ops.OptionalNone()


class WaitingBatch(NamedTuple):
    """A batch that was dequeued.

    Attributes:
        ids: the ids to look up.
        use: scalar int32, or an int, whether gradients will follow.
        packed: ids and use, for `PendingBatches.hold`.
    """

    ids: StepIds
    use: Tensor | int
    packed: Structure

    @property
    def is_for_training(self) -> Tensor | bool:
        """Whether gradients may follow: scalar bool, or a bool."""
        return self.use > NEVER


class PendingBatches(Protocol):
    """The enqueued batches, and the looked-up batch whose gradients are due."""

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

    def dequeue(self) -> WaitingBatch:
        """Removes and returns the batch that was enqueued first.

        Raises:
            RuntimeError: if the gradients of a looked-up batch are missing, or there is no batch.
        """

    def hold(self, batch: WaitingBatch) -> None:
        """Keeps a looked-up batch until its gradients arrive."""

    def release(self) -> StepIds:
        """Removes and returns the ids of the looked-up batch.

        Raises:
            RuntimeError: if there is no such batch.
        """


class WaitingBatches:
    """`PendingBatches` in buffers of this object, which all functions share."""

    def __init__(self, batch: StepIds):
        """Creates buffers for batches with the structure, dtypes and shapes of `batch`."""
        self._pack = TensorPack((batch, tf.constant(NEVER)))
        self._enqueued = TensorRing(capacity=CAPACITY)
        self._looked_up = tf.Variable(empty(), trainable=False)
        self._use = tf.Variable(NEVER, trainable=False)  # of the batch that was looked up

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch."""
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
        """Keeps a looked-up batch until its gradients arrive."""
        self._looked_up.assign(batch.packed, read_value=False)
        self._use.assign(batch.use, read_value=False)

    def release(self) -> StepIds:
        """Removes and returns the ids of the looked-up batch."""
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


@dataclasses.dataclass
class _OfFunction:
    enqueued: collections.deque[tuple[StepIds, int]] = dataclasses.field(
        default_factory=collections.deque)
    looked_up: tuple[StepIds, int] | None = None


class FunctionBatches:
    """`PendingBatches` within each function by itself.

    Workers of a cluster run the same function at the same time, so a buffer that all of them
    share would mix their batches. The three calls are in one function instead, and a batch is
    tensors of its graph. Errors in their order are raised where the function is traced. What is
    called eagerly, by the coordinator's own program, counts as one more function.
    """

    def __init__(self) -> None:
        self._of_graphs: weakref.WeakKeyDictionary[tf.Graph, _OfFunction] = (
            weakref.WeakKeyDictionary())
        self._eager = _OfFunction()

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch."""
        here = self._here()
        self._drop_and_complain(here)
        if len(here.enqueued) >= CAPACITY:
            raise RuntimeError(FULL)
        here.enqueued.append((batch, (MAYBE if is_optional else ALWAYS) if training else NEVER))

    def dequeue(self) -> WaitingBatch:
        """Removes and returns the batch that was enqueued first."""
        here = self._here()
        self._drop_and_complain(here)
        if not here.enqueued:
            raise RuntimeError(EMPTY + _IN_ONE_FUNCTION)
        ids, use = here.enqueued.popleft()
        return WaitingBatch(ids, use, (ids, use))

    def hold(self, batch: WaitingBatch) -> None:
        """Keeps a looked-up batch until its gradients arrive."""
        if batch.use != NEVER:
            self._here().looked_up = batch.packed

    def release(self) -> StepIds:
        """Removes and returns the ids of the looked-up batch."""
        here = self._here()
        looked_up, here.looked_up = here.looked_up, None
        if looked_up is None:
            raise RuntimeError(NOT_TRAINING + _IN_ONE_FUNCTION)
        return looked_up[0]

    def _here(self) -> _OfFunction:
        if tf.executing_eagerly():
            return self._eager
        return self._of_graphs.setdefault(tf.compat.v1.get_default_graph(), _OfFunction())

    @staticmethod
    def _drop_and_complain(here: _OfFunction) -> None:
        looked_up, here.looked_up = here.looked_up, None
        if looked_up is not None and looked_up[1] == ALWAYS:
            raise RuntimeError(NO_GRADIENTS)
