# SPDX-License-Identifier: Apache-2.0
"""Control dependencies as tensors."""

import contextlib
from collections.abc import Callable

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def after(*operations: tf.Operation | Tensor | None) -> Tensor:
    """Returns a scalar True that is computed after all of these."""
    with tf.control_dependencies([op for op in operations if op is not None]):
        return tf.identity(tf.constant(True))


def unordered() -> contextlib.AbstractContextManager[None]:
    """Lets ops ignore the surrounding control dependencies, but not control flow."""
    graph = tf.compat.v1.get_default_graph()
    is_in_branch = graph._get_control_flow_context() is not None
    return contextlib.nullcontext() if is_in_branch else tf.control_dependencies(None)


def when(condition: Tensor, do: Callable[[], tf.Operation | Tensor | None]) -> Tensor:
    """Runs ops if a condition holds; returns a tensor to wait for.

    Args:
        condition: scalar bool.
        do: called once while the graph is built; returns what to wait for, or None.

    Returns:
        Scalar bool, the condition.

    >>> bool(when(tf.constant(False), lambda: tf.constant(1)))
    False
    """
    return tf.cond(condition, lambda: after(do()), lambda: tf.constant(False))
