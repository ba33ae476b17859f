# SPDX-License-Identifier: Apache-2.0
"""Dependencies between the ops of a graph."""

from collections.abc import Collection, Iterable

import tensorflow as tf


def needed_by(operations: Iterable[tf.Operation],
              candidates: Collection[tf.Operation]) -> list[tf.Operation]:
    """Returns those of `candidates` that `operations` depend on.

    >>> with tf.Graph().as_default():
    ...     first = tf.constant(1.0)
    ...     second = tf.sqrt(first)
    ...     needed_by([second.op], [first.op]) == [first.op], needed_by([first.op], [second.op])
    (True, [])
    """
    visited: set[tf.Operation] = set()
    to_visit = list(operations)
    while to_visit:
        operation = to_visit.pop()
        if operation not in visited:
            visited.add(operation)
            to_visit += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return [operation for operation in candidates if operation in visited]
