# SPDX-License-Identifier: Apache-2.0
"""A ring buffer of nests of tensors, for functions and eager execution.

Its ops run on the calling thread. Each op of a queue wakes another thread, which takes longer than
the lookup of a small batch.
"""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor


class TensorPack:
    """Packs nests of one structure into scalars of dtype variant, which share their memory.

    Leaves that are not tensors (None or int) are constant.

    >>> pack = TensorPack({"ids": tf.constant([1, 2]), "weights": None})
    >>> pack.unpack(pack.pack({"ids": tf.constant([3, 4]), "weights": None}))["ids"].numpy()
    array([3, 4], dtype=int32)
    """

    def __init__(self, structure: Any):
        """Stores the structure, dtypes and static shapes of a nest."""
        self._structure = structure
        components = tensors_of(structure)
        self._dtypes = [component.dtype for component in components]
        self._shapes = [component.shape for component in components]

    def pack(self, nest: Any) -> Tensor:
        """Packs a nest into a scalar."""
        return tf.raw_ops.OptionalFromValue(components=tensors_of(nest))

    def unpack(self, packed: Tensor) -> Any:
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
