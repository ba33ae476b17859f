# SPDX-License-Identifier: Apache-2.0
"""The batches between enqueue, dequeue and apply_gradients.

`WaitingBatches` keeps them in buffers that, like a TPU's queues, live as long as the object, so the
three calls may be in one `tf.function`, in several, or in none, and one thread may enqueue what
another dequeues. Calls that would block forever on a TPU raise errors, and change nothing.

`FunctionBatches` keeps them in the function that is traced, for the workers of a cluster. No queue
of tensors could: it would be one resource, which the workers that run the function at the same time
share, and would mix their batches.
"""

import collections
import dataclasses
import weakref
from typing import NamedTuple, Protocol

import tensorflow as tf

from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.types import Structure, Tensor

CAPACITY = 16  # batches that may be enqueued before they are dequeued

NO_GRADIENTS = (
    "`apply_gradients` must be called for every batch that was enqueued with training=True and "
    "dequeued, before the next dequeue. Call it, or drop_batches() to drop the pending batches; "
    "pass training=False to enqueue if no gradients will follow.")
FULL = (f"`enqueue` must be followed by dequeue, got {CAPACITY} batches that were not "
        "dequeued.")
NOTHING_ENQUEUED = "`dequeue` must come after enqueue, got no enqueued batch."
NOT_TRAINING = (
    "`apply_gradients` must come, once, after the dequeue of a batch that was enqueued with "
    "training=True.")

# Whether gradients will follow a lookup.
NEVER, ALWAYS, MAYBE = 0, 1, 2
_IN_ONE_FUNCTION = (" Under a ParameterServerStrategy the three calls for a batch must be in one "
                    "function, which the coordinator schedules.")


class TensorPack:
    """Packs nests of one structure into scalars of dtype variant, which share their memory.

    A variable with such a scalar holds the batch that was looked up. One op each keeps, reads and
    replaces it, where a queue would need a branch that drops the previous one.

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


def empty_pack() -> Tensor:
    """Returns an empty scalar of dtype variant."""
    return tf.raw_ops.OptionalNone()


class EnqueuedBatch(NamedTuple):
    """A batch that was enqueued: its ids, and whether gradients will follow.

    Attributes:
        ids: the ids to look up.
        use: scalar int32, or an int, whether gradients will follow.
    """

    ids: StepIds
    use: Tensor | int

    @property
    def is_for_training(self) -> Tensor | bool:
        """Whether gradients may follow: scalar bool, or a bool."""
        return self.use > NEVER


class PendingBatches(Protocol):
    """The enqueued batches, and the looked-up batch whose gradients are due.

    What raises an error changes nothing.
    """

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch.

        Args:
            batch: the ids.
            training: whether gradients will follow.
            is_optional: whether gradients may be missing; the lookup is then for inference.

        Raises:
            RuntimeError: if the buffer is full.
        """

    def dequeue(self) -> EnqueuedBatch:
        """Removes and returns the batch that was enqueued first.

        Raises:
            RuntimeError: if the gradients of a looked-up batch are missing, or there is no batch.
        """

    def hold(self, batch: EnqueuedBatch) -> None:
        """Keeps a looked-up batch until its gradients arrive."""

    def held(self) -> StepIds:
        """Returns the ids of the looked-up batch, which stays.

        Raises:
            RuntimeError: if there is no such batch.
        """

    def release(self) -> None:
        """Removes the looked-up batch, whose gradients are about to be applied."""

    def drop(self) -> None:
        """Removes all batches."""


class WaitingBatches:
    """`PendingBatches` in buffers of this object, which all functions and threads share.

    Any thread may enqueue. Lookups and updates are a sequence, so one thread makes them.
    """

    def __init__(self, batch: StepIds):
        """Creates buffers for batches with the structure, dtypes and shapes of `batch`."""
        self._enqueued = TensorQueue((batch, tf.constant(NEVER)), capacity=CAPACITY)
        self._pack = TensorPack(batch)
        self._looked_up = tf.Variable(empty_pack(), trainable=False)
        self._use = tf.Variable(NEVER, trainable=False)  # of the batch that was looked up

    def enqueue(self, batch: StepIds, training: bool, *, is_optional: bool) -> None:
        """Adds a batch."""
        with tf.control_dependencies(require(
                self._enqueued.size() < CAPACITY, FULL, RuntimeError)):
            self._enqueued.enqueue((batch, tf.constant(_use(training, is_optional))))

    def dequeue(self) -> EnqueuedBatch:
        """Removes and returns the batch that was enqueued first."""
        size = self._enqueued.size()  # after what the same function has enqueued before
        with (tf.control_dependencies([size]),
              tf.control_dependencies(require(
                  self._use.read_value() != ALWAYS, NO_GRADIENTS, RuntimeError)),
              tf.control_dependencies(require(size > 0, NOTHING_ENQUEUED, RuntimeError))):
            return EnqueuedBatch(*self._enqueued.dequeue())

    def hold(self, batch: EnqueuedBatch) -> None:
        """Keeps a looked-up batch until its gradients arrive."""
        self._looked_up.assign(self._pack.pack(batch.ids), read_value=False)
        self._use.assign(batch.use, read_value=False)

    def held(self) -> StepIds:
        """Returns the ids of the looked-up batch, which stays."""
        with tf.control_dependencies(require(
                self._use.read_value() > NEVER, NOT_TRAINING, RuntimeError)):
            return self._pack.unpack(self._looked_up.read_value())

    def release(self) -> None:
        """Removes the looked-up batch, whose gradients are about to be applied."""
        self._looked_up.assign(empty_pack(), read_value=False)
        self._use.assign(NEVER, read_value=False)

    def drop(self) -> None:
        """Removes all batches."""
        self.release()
        tf.while_loop(lambda _: self._enqueued.size() > 0,
                      lambda _: (after(self._enqueued.dequeue()[1]),), [tf.constant(True)])


@dataclasses.dataclass
class _OfFunction:
    enqueued: collections.deque[EnqueuedBatch] = dataclasses.field(
        default_factory=collections.deque)
    looked_up: EnqueuedBatch | None = None


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
        if len(here.enqueued) >= CAPACITY:
            raise RuntimeError(FULL)
        here.enqueued.append(EnqueuedBatch(batch, _use(training, is_optional)))

    def dequeue(self) -> EnqueuedBatch:
        """Removes and returns the batch that was enqueued first."""
        here = self._here()
        if here.looked_up is not None and here.looked_up.use == ALWAYS:
            raise RuntimeError(NO_GRADIENTS)
        if not here.enqueued:
            raise RuntimeError(NOTHING_ENQUEUED + _IN_ONE_FUNCTION)
        return here.enqueued.popleft()

    def hold(self, batch: EnqueuedBatch) -> None:
        """Keeps a looked-up batch until its gradients arrive."""
        self._here().looked_up = batch if batch.use != NEVER else None
        self._forget_if_empty()

    def held(self) -> StepIds:
        """Returns the ids of the looked-up batch, which stays."""
        looked_up = self._here().looked_up
        if looked_up is None:
            raise RuntimeError(NOT_TRAINING + _IN_ONE_FUNCTION)
        return looked_up.ids

    def release(self) -> None:
        """Removes the looked-up batch, whose gradients are about to be applied."""
        self._here().looked_up = None
        self._forget_if_empty()

    def drop(self) -> None:
        """Removes all batches."""
        here = self._here()
        here.enqueued.clear()
        here.looked_up = None
        self._forget_if_empty()

    def _forget_if_empty(self) -> None:
        """Forgets the function once it holds no batch, whose tensors would keep its graph alive."""
        here = self._here()
        if not here.enqueued and here.looked_up is None and not tf.executing_eagerly():
            del self._of_graphs[tf.compat.v1.get_default_graph()]

    def _here(self) -> _OfFunction:
        if tf.executing_eagerly():
            return self._eager
        return self._of_graphs.setdefault(tf.compat.v1.get_default_graph(), _OfFunction())


def _use(training: bool, is_optional: bool) -> int:
    return (MAYBE if is_optional else ALWAYS) if training else NEVER
