# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator programs with embedding tables, without a TPU and on today's TensorFlow.

These are the names of the Estimator API. Those of TensorFlow 2, which has other classes of
the same names, are in `tpu_estimator_embedding.mid_level`.

Names load when they are first used: `import tpu_estimator_embedding` imports neither
TensorFlow nor Keras. A program that takes its names from here needs no `install()`, which is
for programs that go on using TensorFlow's names, `tf.estimator` and the like.

Reading a name patches nothing in TensorFlow and sets no environment variable, with one
exception: `RunConfig`, `TPUConfig`, `InputPipelineConfig`, `TPUEstimatorSpec`,
`CrossShardOptimizer` and `TPUClusterResolver`, as the modules `tf_estimator` and `tf_tpu` that
have them, make `tf.keras` Keras 2, the only Keras that layers in a model_fn work with.
"""

import importlib
from typing import Any

__version__ = "1.0.0rc4"

# The settings of all optimizers, whose records load without TensorFlow.
_PARAMETERS = [record.parameters for record in importlib.import_module(
    f"{__name__}.optimizers.registry").records()]

# The rest of a TPUEstimator program; what more `tf.estimator` and `tf.tpu` had is in the
# modules tf_estimator and tf_tpu.
_ESTIMATOR = ("CrossShardOptimizer", "InputPipelineConfig", "RunConfig", "TPUClusterResolver",
              "TPUConfig", "TPUEstimatorSpec")

_MODULE_OF = {
    "ClusterConfig": "estimator.cluster.cluster_config",
    "EmbeddingConfigSpec": "estimator.embedding_config_spec",
    "EmbeddingStatisticsHook": "estimator.hooks.embedding_statistics",
    "FeatureConfig": "config.feature_config",
    "TPUEstimator": "estimator.tpu_estimator",
    "TableConfig": "config.table_config",
    "embedding_column": "feature_column.embedding_column",
    "install": "runtime.install",
    "shared_embedding_columns": "feature_column.shared_embedding_columns",
    "uninstall": "runtime.install",
    **dict.fromkeys(_ESTIMATOR, "tf_tpu"),
    **dict.fromkeys(_PARAMETERS, "config.optimization_parameters"),
}

__all__ = ["__version__", *_MODULE_OF]  # noqa: PLE0604 (all are strings)


def __getattr__(name: str) -> Any:
    if name == "io":  # read as `tf.io` is, without a separate import
        return importlib.import_module(f"{__name__}.io")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_elsewhere(name)}")
    module = importlib.import_module(f"{__name__}.{_MODULE_OF[name]}")
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _elsewhere(name: str) -> str:
    """Says where a name of the other API is."""
    mid_level = f"{__name__}.mid_level"
    if name.startswith("_") or name not in importlib.import_module(mid_level).__all__:
        return ""
    return f". It is a name of the TF2 API: `from {mid_level} import {name}`"
