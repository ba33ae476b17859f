# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.tpu_embedding`, with this package's v1 API and engine.

Modules that TensorFlow's module imports, and that programs use through it, are loaded lazily.
"""

import importlib
from types import ModuleType

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    PARAMETERS,
    _OptimizationParameters,
)
from tpu_estimator_embedding.config.slot_variable_names import SLOT_VARIABLE_NAMES
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.engine.enqueue_data import (
    EnqueueData,
    RaggedEnqueueData,
    get_enqueue_datas_list_from_ragged_tensors_list,
    get_enqueue_datas_list_from_sparse_tensors_list,
)
from tpu_estimator_embedding.low_level.cores import DeviceConfig
from tpu_estimator_embedding.low_level.engine_configuration import INFERENCE, TRAINING
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.low_level.variables_and_ops import SLOT_VARIABLES, VariablesAndOps

_OF_OPTIMIZERS = {**PARAMETERS, **SLOT_VARIABLE_NAMES, **SLOT_VARIABLES}
globals().update(_OF_OPTIMIZERS)

__all__ = [  # noqa: PLE0604 (all are strings)
    "DeviceConfig", "EnqueueData", "FeatureConfig", "INFERENCE", "RaggedEnqueueData",
    "TPUEmbedding", "TRAINING", "TableConfig", "VariablesAndOps", "_OptimizationParameters",
    "get_enqueue_datas_list_from_ragged_tensors_list",
    "get_enqueue_datas_list_from_sparse_tensors_list", *_OF_OPTIMIZERS]

_PYTHON = "tensorflow.python"
_MODULES = {
    **{name: name for name in ("collections", "copy", "math", "re")},
    **{name: f"{_PYTHON}.framework.{name}" for name in ("dtypes", "ops")},
    **{name: f"{_PYTHON}.ops.{name}" for name in (
        "array_ops", "control_flow_ops", "init_ops", "math_ops", "partitioned_variables",
        "state_ops", "variable_scope")},
    "context": f"{_PYTHON}.eager.context",
    "elc": "tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2",
    "logging": f"{_PYTHON}.platform.tf_logging",
    "optimization_parameters_pb2": "tensorflow.core.protobuf.tpu.optimization_parameters_pb2",
    "tpu_ops": f"{_PYTHON}.tpu.ops.tpu_ops",
    "tpu_system_metadata_lib": f"{_PYTHON}.tpu.tpu_system_metadata",
}


def __getattr__(name: str) -> ModuleType:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = importlib.import_module(_MODULES[name])
    return globals()[name]
