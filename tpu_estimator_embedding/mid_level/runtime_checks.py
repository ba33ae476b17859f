# SPDX-License-Identifier: Apache-2.0
"""Checks of tensor values: they raise immediately in eager execution; in a graph, an op fails."""

import tensorflow as tf

from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.types import Tensor


def require(holds: Tensor, sentence: str, error: type[Exception]) -> list[tf.Operation]:
    """Requires a scalar boolean.

    Args:
        holds: scalar bool.
        sentence: the message if `holds` is false.
        error: the exception to raise in eager execution. In a graph, the op fails with
            tf.errors.InvalidArgumentError.

    Returns:
        The ops to depend on; an empty list in eager execution.
    """
    if not tf.executing_eagerly():
        return assert_that(holds, sentence)
    if not bool(holds):
        raise error(sentence)
    return []
