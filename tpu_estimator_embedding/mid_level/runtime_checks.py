# SPDX-License-Identifier: Apache-2.0
"""Checks of tensor values: they raise immediately when eager, else by an op."""

import tensorflow as tf

from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.types import Tensor


def require(holds: Tensor, sentence: str, error: type[Exception]) -> list[tf.Operation]:
    """Requires a scalar boolean.

    Args:
        holds: scalar bool.
        sentence: what to say where it is false.
        error: what to raise, eagerly. In a graph the op fails with
            tf.errors.InvalidArgumentError.

    Returns:
        The op to depend on; nothing when executing eagerly.
    """
    if not tf.executing_eagerly():
        return assert_that(holds, sentence)
    if not bool(holds):
        raise error(sentence)
    return []
