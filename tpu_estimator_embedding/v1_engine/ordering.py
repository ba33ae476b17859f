# SPDX-License-Identifier: Apache-2.0
"""What in a graph comes before what."""

from collections.abc import Collection

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def after(*operations: tf.Operation | Tensor) -> Tensor:
    """Returns a scalar True that exists only when all of these are done."""
    with tf.control_dependencies(operations):
        return tf.identity(tf.constant(True))


def depends_on(operation: tf.Operation, targets: Collection[tf.Operation]) -> bool:
    """Whether running `operation` runs one of `targets` before it.

    >>> with tf.Graph().as_default():
    ...     first = tf.constant(1.0)
    ...     second = tf.sqrt(first)
    ...     depends_on(second.op, [first.op]), depends_on(first.op, [second.op])
    (True, False)
    """
    found, to_visit = set(), [operation]
    while to_visit:
        visited = to_visit.pop()
        if visited in targets:
            return True
        if visited not in found:
            found.add(visited)
            to_visit += [*(tensor.op for tensor in visited.inputs), *visited.control_inputs]
    return False
