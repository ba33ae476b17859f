# SPDX-License-Identifier: Apache-2.0
"""Which Keras a program uses: the one that its layers have to be layers of."""

import sys
from typing import Any

import tensorflow as tf

_NOT_READ = "KerasLazyLoader"  # what stands in place of tf.keras until it is read


def keras_in_use() -> Any:
    """Returns the Keras of this program: `tf.keras`, or `tf_keras` where only that was used.

    `tf.keras` is Keras 2 in TensorFlow 2.15, under `TF_USE_LEGACY_KERAS=1` and after
    `install()`, else Keras 3. A program that has imported `tf_keras` and has not read
    `tf.keras` uses the former.
    """
    legacy = sys.modules.get("tf_keras")
    # tensorflow_estimator imports tf_keras for itself.
    if (legacy is not None and "tensorflow_estimator" not in sys.modules
            and type(vars(tf).get("keras")).__name__ == _NOT_READ):
        return legacy
    return tf.keras
