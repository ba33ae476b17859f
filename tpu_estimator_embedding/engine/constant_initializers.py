# SPDX-License-Identifier: Apache-2.0
"""Initializers with a constant value that TensorFlow does not constant-fold.

>>> zeros = computed_in_session(tf.zeros_initializer())
>>> zeros([2, 3], tf.float32).shape
TensorShape([2, 3])
"""

from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.types import Initializer

_OF_ONE_VALUE = (tf.zeros_initializer, tf.compat.v1.zeros_initializer,
                 tf.ones_initializer, tf.compat.v1.ones_initializer)
_OF_ANY_VALUE = (tf.constant_initializer, tf.compat.v1.constant_initializer)


def computed_in_session(initializer: Initializer) -> Initializer:
    """Returns an initializer of the same values that TensorFlow cannot constant-fold.

    TensorFlow keeps a folded initial value as a constant of the session. That doubles the memory
    of the variable, and the first step that changes the variable copies it.

    Args:
        initializer: TensorFlow's zeros, ones, or scalar constant initializer (v1 or v2) is
            replaced. Any other, including subclasses of these, is returned unchanged.
    """
    if not _is_of_one_value(initializer):
        return initializer

    def fill(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
        del partition_info  # all parts are equal
        # Stateful ops are never constant-folded, even if they have only one possible result.
        zero = tf.raw_ops.Empty(shape=[], dtype=tf.int32, init=True)
        return tf.fill(shape, tf.raw_ops.Gather(params=initializer([1], dtype), indices=zero))

    return fill


def _is_of_one_value(initializer: Initializer) -> bool:
    if type(initializer) in _OF_ANY_VALUE:
        value = initializer.value  # type: ignore[attr-defined]
        return isinstance(value, int | float | np.generic) or (
            isinstance(value, np.ndarray) and value.shape == ())
    return type(initializer) in _OF_ONE_VALUE
