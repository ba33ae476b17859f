# SPDX-License-Identifier: Apache-2.0
"""The v2 API: the counterpart of `tf.tpu.experimental.embedding`.

Names are loaded on first use.

>>> from tpu_estimator_embedding import mid_level
>>> mid_level.TableConfig(vocabulary_size=1000, dim=16).combiner
'mean'
"""

import importlib
from typing import Any

_MODULE_OF = {
    "EmbeddingStatisticsCallback": "keras_layers.layers",
    "FeatureConfig": "config.feature_config",
    "PartialTPUEmbedding": "keras_layers.layers",
    "PartitionedCsrFormatTensor": "sparse_core.partitioned_csr",
    "QuantizationConfig": "config.table_config",
    "RowIdInitializer": "config.row_id_initializer",
    "SparseCoreEmbeddingConfig": "config.sparse_core_embedding_config",
    "TPUEmbedding": "tpu_embedding",
    "TPUEmbeddingForServing": "serving.tpu_embedding_for_serving",
    "TPUEmbeddingLayer": "keras_layers.layers",
    "TPUEmbeddingV0": "tpu_embedding_v0",
    "TPUEmbeddingV2": "tpu_embedding_v2",
    "TableConfig": "config.table_config",
    "serving_embedding_lookup": "serving.serving_lookup",
    **dict.fromkeys(("Adagrad", "AdagradMomentum", "Adam", "FTRL", "SGD"), "config.optimizers"),
}

__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    # Leaves out the layers, because tools such as pytest read every listed name, and reading a
    # layer loads Keras.
    return sorted({*globals(), *__all__} - {
        "EmbeddingStatisticsCallback", "PartialTPUEmbedding", "TPUEmbeddingLayer"})
