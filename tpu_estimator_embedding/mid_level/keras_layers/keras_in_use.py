# SPDX-License-Identifier: Apache-2.0
"""Finds out which Keras a program uses, because layers must subclass that Keras' Layer."""

import sys
from typing import Any

import tensorflow as tf

_NOT_READ = "KerasLazyLoader"  # class of tf.keras until it is first read


def keras_in_use() -> Any:
    """Returns the Keras of this program: `tf.keras`, or `tf_keras` if only that was used.

    `tf.keras` is Keras 2 in TensorFlow 2.15, with `TF_USE_LEGACY_KERAS=1` and after
    `install()`; otherwise it is Keras 3. A program that has imported `tf_keras` and has not read
    `tf.keras` uses `tf_keras`.
    """
    legacy = sys.modules.get("tf_keras")
    # tensorflow_estimator imports tf_keras too, so an import alone does not count.
    if (legacy is not None and "tensorflow_estimator" not in sys.modules
            and type(vars(tf).get("keras")).__name__ == _NOT_READ):
        return legacy
    return tf.keras
