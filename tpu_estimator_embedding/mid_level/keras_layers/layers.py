# SPDX-License-Identifier: Apache-2.0
"""The layers, for the Keras that the program uses when it first reads their names.

`embedding_layer_class` and `partial_layer_class` return them for any other Keras.
"""

import sys
from types import ModuleType

import tensorflow as tf

from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.statistics_callback import (
    statistics_callback_class,
)

_NOT_READ = "KerasLazyLoader"  # class of tf.keras until it is first read


def keras_in_use() -> ModuleType:
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


_CLASSES = {"EmbeddingStatisticsCallback": statistics_callback_class,
            "PartialTPUEmbedding": partial_layer_class,
            "TPUEmbeddingLayer": embedding_layer_class}


def __getattr__(name: str) -> type:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CLASSES[name](keras_in_use())
