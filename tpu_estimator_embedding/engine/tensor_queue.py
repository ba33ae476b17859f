# SPDX-License-Identifier: Apache-2.0
"""A queue whose elements are nests of tensors."""

from typing import Generic, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor

_Nest = TypeVar("_Nest")


class TensorQueue(Generic[_Nest]):
    """A FIFO queue for nests of one structure, including sparse and ragged tensors.

    Leaves that are not tensors (None or int) are constant.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     queue = TensorQueue({"ids": tf.constant([1, 2]), "weights": None}, capacity=2)
    ...     _ = session.run(queue.enqueue({"ids": tf.constant([3, 4]), "weights": None}))
    ...     session.run(queue.dequeue()["ids"]).tolist()
    [3, 4]
    """

    def __init__(self, structure: _Nest, *, capacity: int):
        """Creates a queue for nests with the structure and static shapes of `structure`."""
        self._structure = structure
        self._components = tensors_of(structure)
        self.queue = tf.queue.FIFOQueue(
            capacity, [component.dtype for component in self._components], name="steps")

    def enqueue(self, element: _Nest) -> tf.Operation:
        """Returns the op that adds an element; it blocks while the queue is full."""
        return self.queue.enqueue(tensors_of(element))

    def enqueue_empty(self) -> tf.Operation:
        """Returns the op that adds an element of zeros; unknown dimensions become 0."""
        return self.queue.enqueue([_zeros_like_static_shape(component)
                                   for component in self._components])

    def dequeue(self) -> _Nest:
        """Removes and returns the first element; blocks while the queue is empty."""
        values = self.queue.dequeue()
        values = values if isinstance(values, list) else [values]
        for value, component in zip(values, self._components, strict=True):
            value.set_shape(component.shape)
        return with_tensors(self._structure, values)

    def size(self) -> Tensor:
        """Returns the number of elements, a scalar int32."""
        return self.queue.size()

    def num_left(self, element: _Nest) -> Tensor:
        """Returns the number of elements left after `element` was removed, int32."""
        with tf.control_dependencies(tensors_of(element)):
            return self.queue.size()


def _zeros_like_static_shape(component: Tensor) -> Tensor:
    shape = [] if component.shape.rank is None else [
        size or 0 for size in component.shape.as_list()]
    return tf.zeros(shape, component.dtype)
