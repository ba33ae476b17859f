# SPDX-License-Identifier: Apache-2.0
"""Walks over the ops of a graph."""

from collections import deque
from collections.abc import Callable, Iterable

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def closure(starts: Iterable[tf.Operation],
            neighbours: Callable[[tf.Operation], Iterable[tf.Operation]]) -> set[tf.Operation]:
    """Returns the ops that can be reached from some, and these."""
    found = set(starts)
    waiting = deque(found)
    while waiting:
        for op in neighbours(waiting.popleft()):
            if op not in found:
                found.add(op)
                waiting.append(op)
    return found


def sources(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that an op waits for."""
    return [tensor.op for tensor in op.inputs] + list(op.control_inputs)


def ops_run_by(targets: Iterable[Tensor | tf.Operation]) -> set[tf.Operation]:
    """Returns the ops that a session runs to get the targets.

    >>> with tf.Graph().as_default():
    ...     sorted(op.type for op in ops_run_by([tf.constant(1) + tf.constant(2)]))
    ['AddV2', 'Const', 'Const']
    """
    return closure((getattr(target, "op", target) for target in targets), sources)
