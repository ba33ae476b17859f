# SPDX-License-Identifier: Apache-2.0
"""Initializers of one value, computed in the session and not ahead of it.

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
    """Returns an initializer of the same values that TensorFlow cannot compute ahead.

    What it can compute ahead of the session it keeps as a constant of the session: as much
    memory again, and a copy of the whole variable in the first step that changes it, because
    the constant may not change.

    Args:
        initializer: TensorFlow's zeros, ones, or constant of a scalar (v1 or v2) gets another
            in its place. Any other, subclasses of these too, is returned as it is.
    """
    if not _is_of_one_value(initializer):
        return initializer

    def fill(shape: Any, dtype: Any = tf.float32, partition_info: Any = None) -> Any:
        del partition_info  # every part is the same
        # What is drawn is never computed ahead, not even from one value.
        drawn = tf.random.uniform([], 0, 1, tf.int32, seed=0)
        return tf.fill(shape, tf.gather([initializer([], dtype)], drawn))

    return fill


def _is_of_one_value(initializer: Initializer) -> bool:
    if type(initializer) in _OF_ANY_VALUE:
        value = initializer.value  # type: ignore[attr-defined]
        return isinstance(value, int | float | np.generic) or (
            isinstance(value, np.ndarray) and value.shape == ())
    return type(initializer) in _OF_ONE_VALUE
