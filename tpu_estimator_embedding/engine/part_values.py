# SPDX-License-Identifier: Apache-2.0
"""The initial values of the parts of a table in eager execution."""

import inspect
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.trackable.base import ShardInfo

from tpu_estimator_embedding.types import Initializer, Tensor


def part_value(initializer: Initializer, sizes: Sequence[int], part: int,
               dimension: int) -> Tensor:
    """Returns the initial value of a part; calls the initializer like tf.distribute does.

    An initializer with the argument `shard_info`, or `partition_shape` and `partition_offset`, is
    told which rows it fills. Any other initializer gets the shape of the part; if it refuses that,
    like one with a constant table, it gets the shape of the table.

    Args:
        initializer: the initializer of the table.
        sizes: number of rows of each part.
        part: index of the part.
        dimension: number of values per row.

    >>> table = tf.constant_initializer([[1.0], [2.0], [3.0]])
    >>> [part_value(table, [2, 1], part, 1).numpy().tolist() for part in (0, 1)]
    [[[1.0], [2.0]], [[3.0]]]
    """
    shape, whole = [sizes[part], dimension], [sum(sizes), dimension]
    if len(sizes) == 1:
        return initializer(whole, tf.float32)
    offset = sum(sizes[:part])
    parameters = inspect.signature(initializer).parameters
    if "shard_info" in parameters:
        return initializer(shape, tf.float32,
                           shard_info=ShardInfo(tf.TensorShape(shape), (offset, 0)))
    if "partition_shape" in parameters or any(
            each.kind == each.VAR_KEYWORD for each in parameters.values()):
        try:
            return initializer(whole, tf.float32, partition_shape=tuple(shape),
                               partition_offset=(offset, 0))
        except (TypeError, ValueError):
            pass  # TensorFlow's initializers raise it if they cannot fill a part
    try:
        return initializer(shape, tf.float32)
    except (TypeError, ValueError):
        return initializer(whole, tf.float32)[offset:offset + sizes[part]]
