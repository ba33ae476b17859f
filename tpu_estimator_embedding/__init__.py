# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator programs with embedding tables, without a TPU and on today's TensorFlow.

Names load when they are first used: `import tpu_estimator_embedding` imports neither
TensorFlow nor Keras.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PARAMETERS = (
    "AdagradMomentumParameters", "AdagradParameters", "AdamParameters",
    "FrequencyEstimatorParameters", "FtrlParameters", "MomentumParameters",
    "ProximalAdagradParameters", "ProximalYogiParameters", "RMSPropParameters",
    "StochasticGradientDescentParameters")

# The rest of a TPUEstimator program; what more `tf.estimator` and `tf.tpu` had is in the
# modules tf_estimator and tf_tpu.
_ESTIMATOR = ("CrossShardOptimizer", "InputPipelineConfig", "RunConfig", "TPUClusterResolver",
              "TPUConfig", "TPUEstimatorSpec")

_MODULE_OF = {
    "EmbeddingConfigSpec": "estimator.embedding_config_spec",
    "EmbeddingPlan": "plan.embedding_plan",
    "FeatureConfig": "config.feature_config",
    "PartialTPUEmbedding": "mid_level.keras_layers.layers",
    "PartitionedCsrFormatTensor": "mid_level.sparse_core.partitioned_csr",
    "TPUEmbedding": "mid_level.tpu_embedding",
    "TPUEmbeddingForServing": "mid_level.serving.tpu_embedding_for_serving",
    "TPUEmbeddingLayer": "mid_level.keras_layers.layers",
    "TPUEmbeddingV2": "mid_level.tpu_embedding_v2",
    "TPUEstimator": "estimator.tpu_estimator",
    "TableConfig": "config.table_config",
    "embedding_column": "feature_column.embedding_column",
    "install": "runtime.install",
    "serving_embedding_lookup": "mid_level.serving.serving_lookup",
    "shared_embedding_columns": "feature_column.shared_embedding_columns",
    "uninstall": "runtime.install",
    **dict.fromkeys(_ESTIMATOR, "tf_tpu"),
    **dict.fromkeys(_PARAMETERS, "config.optimization_parameters"),
}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 (all are strings)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    # Without the layers: what lists names, pytest for one, reads them, and that loads Keras.
    return sorted({*globals(), *__all__} - {"PartialTPUEmbedding", "TPUEmbeddingLayer"})
