# SPDX-License-Identifier: Apache-2.0
"""A queue whose elements are nests of tensors."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor


class TensorQueue:
    """A FIFO queue for nests of one structure, sparse and ragged tensors included.

    Leaves that are no tensors, None or an int, are the same in every element.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     queue = TensorQueue({"ids": tf.constant([1, 2]), "weights": None}, capacity=2)
    ...     _ = session.run(queue.enqueue({"ids": tf.constant([3, 4]), "weights": None}))
    ...     session.run(queue.dequeue()["ids"]).tolist()
    [3, 4]
    """

    def __init__(self, structure: Any, *, capacity: int):
        """Makes a queue for nests like `structure`, whose static shapes it keeps."""
        self._structure = structure
        self._components = tensors_of(structure)
        self.queue = tf.queue.FIFOQueue(
            capacity, [component.dtype for component in self._components], name="steps")

    def enqueue(self, element: Any) -> tf.Operation:
        """Returns the op that puts an element in, when there is room."""
        return self.queue.enqueue(tensors_of(element))

    def enqueue_empty(self) -> tf.Operation:
        """Returns the op that puts in an element of zeros, with no rows where it may."""
        return self.queue.enqueue([_zeros_like_static_shape(component)
                                   for component in self._components])

    def dequeue(self) -> Any:
        """Returns the element that was put in first, when there is one."""
        values = self.queue.dequeue()
        values = values if isinstance(values, list) else [values]
        for value, component in zip(values, self._components, strict=True):
            value.set_shape(component.shape)
        return with_tensors(self._structure, values)


def _zeros_like_static_shape(component: Tensor) -> Tensor:
    shape = [] if component.shape.rank is None else [
        size or 0 for size in component.shape.as_list()]
    return tf.zeros(shape, component.dtype)
