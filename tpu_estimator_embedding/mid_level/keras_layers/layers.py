# SPDX-License-Identifier: Apache-2.0
"""The layers, for the Keras that the program uses when it first reads their names.

`embedding_layer_class` and `partial_layer_class` return them for any other Keras.
"""

from typing import Any

from tpu_estimator_embedding.mid_level.keras_layers.embedding_layer import embedding_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.keras_in_use import keras_in_use
from tpu_estimator_embedding.mid_level.keras_layers.partial_layer import partial_layer_class
from tpu_estimator_embedding.mid_level.keras_layers.statistics_callback import (
    statistics_callback_class,
)

_CLASSES = {"EmbeddingStatisticsCallback": statistics_callback_class,
            "PartialTPUEmbedding": partial_layer_class,
            "TPUEmbeddingLayer": embedding_layer_class}


def __getattr__(name: str) -> Any:
    if name not in _CLASSES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _CLASSES[name](keras_in_use())
