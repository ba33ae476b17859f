# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.tpu_embedding`: the v1 vocabulary, which is this package's own."""

from typing import Any, NoReturn

from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2

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

__all__ = [
    "AdagradMomentumParameters", "AdagradMomentumSlotVariableNames", "AdagradParameters",
    "AdagradSlotVariableNames", "AdamParameters", "AdamSlotVariableNames", "EnqueueData",
    "FeatureConfig", "FrequencyEstimatorParameters", "FrequencyEstimatorSlotVariableNames",
    "FtrlParameters", "FtrlSlotVariableNames", "INFERENCE", "MomentumParameters",
    "MomentumSlotVariableNames", "ProximalAdagradParameters",
    "ProximalAdagradSlotVariableNames", "ProximalYogiParameters",
    "ProximalYogiSlotVariableNames", "RMSPropParameters", "RMSPropSlotVariableNames",
    "RaggedEnqueueData", "StochasticGradientDescentParameters", "TPUEmbedding", "TRAINING",
    "TableConfig", "get_enqueue_datas_list_from_ragged_tensors_list",
    "get_enqueue_datas_list_from_sparse_tensors_list", "_OptimizationParameters",
]

TRAINING = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration.TRAINING
INFERENCE = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration.INFERENCE


class TPUEmbedding:
    """The engine as programs drove it by hand; here TPUEstimator drives it.

    Raises:
        RuntimeError: always.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "A TPUEmbedding cannot be made by hand on this version of TensorFlow: pass the "
            "tables and features to tpu_estimator_embedding.EmbeddingConfigSpec("
            "table_to_config_dict=..., feature_to_config_dict=...) and that to TPUEstimator.")
