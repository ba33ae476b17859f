# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.tpu_embedding`: the v1 vocabulary and engine, this package's own."""

from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    AdagradMomentumParameters,
    AdagradParameters,
    AdamParameters,
    FrequencyEstimatorParameters,
    FtrlParameters,
    MomentumParameters,
    ProximalAdagradParameters,
    ProximalYogiParameters,
    RMSPropParameters,
    StochasticGradientDescentParameters,
    _OptimizationParameters,
)
from tpu_estimator_embedding.config.slot_variable_names import (
    AdagradMomentumSlotVariableNames,
    AdagradSlotVariableNames,
    AdamSlotVariableNames,
    FrequencyEstimatorSlotVariableNames,
    FtrlSlotVariableNames,
    MomentumSlotVariableNames,
    ProximalAdagradSlotVariableNames,
    ProximalYogiSlotVariableNames,
    RMSPropSlotVariableNames,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.engine.enqueue_data import (
    EnqueueData,
    RaggedEnqueueData,
    get_enqueue_datas_list_from_ragged_tensors_list,
    get_enqueue_datas_list_from_sparse_tensors_list,
)
from tpu_estimator_embedding.v1_engine.cores import DeviceConfig
from tpu_estimator_embedding.v1_engine.modes import INFERENCE, TRAINING
from tpu_estimator_embedding.v1_engine.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.v1_engine.variables_and_ops import (
    AdagradMomentumSlotVariables,
    AdagradSlotVariables,
    AdamSlotVariables,
    FrequencyEstimatorSlotVariables,
    FtrlSlotVariable,
    MomentumSlotVariables,
    ProximalAdagradSlotVariables,
    ProximalYogiSlotVariables,
    RMSPropSlotVariables,
    VariablesAndOps,
)

__all__ = [
    "AdagradMomentumParameters", "AdagradMomentumSlotVariableNames",
    "AdagradMomentumSlotVariables", "AdagradParameters", "AdagradSlotVariableNames",
    "AdagradSlotVariables", "AdamParameters", "AdamSlotVariableNames", "AdamSlotVariables",
    "DeviceConfig", "EnqueueData", "FeatureConfig", "FrequencyEstimatorParameters",
    "FrequencyEstimatorSlotVariableNames", "FrequencyEstimatorSlotVariables", "FtrlParameters",
    "FtrlSlotVariable", "FtrlSlotVariableNames", "INFERENCE", "MomentumParameters",
    "MomentumSlotVariableNames", "MomentumSlotVariables", "ProximalAdagradParameters",
    "ProximalAdagradSlotVariableNames", "ProximalAdagradSlotVariables",
    "ProximalYogiParameters", "ProximalYogiSlotVariableNames", "ProximalYogiSlotVariables",
    "RMSPropParameters", "RMSPropSlotVariableNames", "RMSPropSlotVariables",
    "RaggedEnqueueData", "StochasticGradientDescentParameters", "TPUEmbedding", "TRAINING",
    "TableConfig", "VariablesAndOps", "_OptimizationParameters",
    "get_enqueue_datas_list_from_ragged_tensors_list",
    "get_enqueue_datas_list_from_sparse_tensors_list",
]
