# SPDX-License-Identifier: Apache-2.0
"""A queue whose elements are nests of tensors."""

import functools
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.channels.channel import Channel
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor

_Nest = TypeVar("_Nest")


class TensorQueue(Generic[_Nest]):
    """A FIFO queue for nests of one structure, including sparse and ragged tensors.

    It belongs to the graph that creates it and to one session, or, outside of graphs, to the
    object. With a channel it belongs to the process: all graphs, sessions and threads that name the
    channel have the same elements. Any thread may enqueue and dequeue. Leaves that are not tensors
    (None or int) are constant.

    Attributes:
        structure: the nest that it was created for.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     queue = TensorQueue({"ids": tf.constant([1, 2]), "weights": None}, capacity=2)
    ...     _ = session.run(queue.enqueue({"ids": tf.constant([3, 4]), "weights": None}))
    ...     session.run(queue.dequeue()["ids"]).tolist()
    [3, 4]
    """

    def __init__(self, structure: _Nest, *, capacity: int, channel: str | None = None):
        """Creates a queue for nests with the structure and static shapes of `structure`.

        Args:
            structure: an example of an element.
            capacity: the most elements in it; -1 for any number, without a channel.
            channel: name of a channel of the process, which needs the native kernels; None for a
                queue of the graph.
        """
        self.structure = structure
        self._specs = [tf.TensorSpec(component.shape, component.dtype)
                       for component in tensors_of(structure)]
        self._capacity = capacity
        self._of_graph = _OfGraph(capacity, self._specs) if channel is None else None
        self._store: _Store = self._of_graph or Channel(channel or "", capacity)

    @property
    def handle(self) -> Tensor:
        """The resource of a queue of the graph."""
        return self._queue.queue_ref

    @functools.cached_property
    def exported(self) -> tf.saved_model.experimental.TrackableResource:
        """What stands for a queue of the graph in a SavedModel, where it is empty at first."""
        return _ExportedQueue(self._queue, self._capacity)

    def enqueue(self, element: _Nest) -> tf.Operation:
        """Returns the op that adds an element; it blocks while the queue is full."""
        return self._store.put(tensors_of(element))

    def enqueue_empty(self) -> tf.Operation:
        """Returns the op that adds an element of zeros; unknown dimensions become 0."""
        return self._store.put([_zeros_like_static_shape(spec) for spec in self._specs])

    def dequeue(self) -> _Nest:
        """Removes and returns the first element; blocks while the queue is empty."""
        return with_tensors(self.structure, self._store.take(self._specs))

    def drop(self) -> tf.Operation:
        """Returns the op that removes the first element; it blocks while the queue is empty."""
        return self._store.take(self._specs)[0].op

    def close(self, *, cancels: bool = False) -> tf.Operation:
        """Returns the op after which enqueueing fails, and so does dequeueing from the empty queue.

        Args:
            cancels: whether ops that wait for room fail as well.
        """
        return self._queue.close(cancel_pending_enqueues=cancels)

    def size(self) -> Tensor:
        """Returns the number of elements, a scalar int32."""
        return self._store.size()

    def num_left(self, element: _Nest) -> Tensor:
        """Returns the number of elements left after `element` was removed, int32."""
        with tf.control_dependencies(tensors_of(element)):
            return self._store.size()

    @property
    def _queue(self) -> tf.queue.FIFOQueue:
        assert self._of_graph, "a queue of this process is not a resource of a graph"
        return self._of_graph.queue


class _Store(Protocol):
    """Where the elements are; `Channel` is one for the process."""

    def put(self, values: Sequence[Tensor]) -> tf.Operation: ...

    def take(self, specs: Sequence[tf.TensorSpec]) -> list[Tensor]: ...

    def size(self) -> Tensor: ...


class _OfGraph:
    def __init__(self, capacity: int, specs: Sequence[tf.TensorSpec]):
        self.queue = tf.queue.FIFOQueue(capacity, [spec.dtype for spec in specs], name="steps")

    def put(self, values: Sequence[Tensor]) -> tf.Operation:
        return self.queue.enqueue(list(values))

    def take(self, specs: Sequence[tf.TensorSpec]) -> list[Tensor]:
        values = self.queue.dequeue()
        values = values if isinstance(values, list) else [values]
        for value, spec in zip(values, specs, strict=True):
            value.set_shape(spec.shape)
        return values

    def size(self) -> Tensor:
        return self.queue.size()


def _zeros_like_static_shape(spec: tf.TensorSpec) -> Tensor:
    shape = [] if spec.shape.rank is None else [size or 0 for size in spec.shape.as_list()]
    return tf.zeros(shape, spec.dtype)


class _ExportedQueue(tf.saved_model.experimental.TrackableResource):
    def __init__(self, queue: tf.queue.FIFOQueue, capacity: int):
        super().__init__()
        self._waiting, self._capacity = queue, capacity

    @property
    def resource_handle(self) -> Tensor:
        return self._waiting.queue_ref

    def _create_resource(self) -> Tensor:
        # tf.queue.FIFOQueue would leave the function that creates it. Queues without names would be
        # one queue in the process that loads them.
        return tf.raw_ops.FIFOQueueV2(component_types=self._waiting.dtypes, capacity=self._capacity,
                                      shared_name=f"queue_{id(self._waiting)}")
