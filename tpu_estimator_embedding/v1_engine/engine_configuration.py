# SPDX-License-Identifier: Apache-2.0
"""The configuration of a v1 engine: tables, features, optimizers and cores, checked."""

import collections
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.v1_engine.config_proto import to_config_proto
from tpu_estimator_embedding.v1_engine.cores import Cores
from tpu_estimator_embedding.v1_engine.modes import INFERENCE, TRAINING, check_mode
from tpu_estimator_embedding.v1_engine.sent_gradients import activation_shape


class EngineConfiguration:
    """The arguments of a TPUEmbedding, lowered to a plan.

    Args:
        table_to_config_dict, feature_to_config_dict, batch_size, mode, optimization_parameters,
            partition_strategy: see TPUEmbedding.
        cores: the cores that share a batch.
        pipelined: whether to look up each batch before the update of the previous batch.

    Raises:
        ValueError: see TPUEmbedding.
    """

    def __init__(self, table_to_config_dict: Mapping[str, Any],
                 feature_to_config_dict: Mapping[str, Any], batch_size: int, mode: Any,
                 optimization_parameters: Any, cores: Cores, *, pipelined: bool,
                 partition_strategy: str):
        check_mode(mode)
        checks.check(mode == TRAINING or optimization_parameters is None,
                     "optimization_parameters", "None where mode is INFERENCE",
                     optimization_parameters, sentence=
                     "`optimization_parameters` should be `None` for inference mode.")
        self._cores, self._mode = cores, mode
        self._batch_size_per_core = self._split_batch(batch_size)
        self._optimization_parameters = (
            StochasticGradientDescentParameters(1.0) if mode == INFERENCE
            else optimization_parameters)
        self._plan = to_plan(
            table_to_config_dict, feature_to_config_dict, self._optimization_parameters,
            partition_strategy=partition_strategy, num_hosts=len(self._cores.hosts),
            pipelined=pipelined)
        self._table_to_config_dict = _sorted_copy(table_to_config_dict)
        self._feature_to_config_dict = _sorted_copy(feature_to_config_dict)
        self._config_proto = to_config_proto(
            self._plan, self._table_to_config_dict, self._optimization_parameters, mode=mode,
            batch_size_per_core=self._batch_size_per_core, cores=self._cores)

    @property
    def hosts(self) -> list[str]:
        """CPU device name of each host."""
        return list(self._cores.hosts)

    @property
    def num_cores_per_host(self) -> int:
        """Number of cores on each host."""
        return self._cores.per_host

    @property
    def num_cores(self) -> int:
        """Number of cores on all hosts."""
        return self._cores.num_cores

    @property
    def batch_size_per_core(self) -> int:
        """Samples that one core processes in a step."""
        return self._batch_size_per_core

    @property
    def config_proto(self) -> Any:
        """The `TPUEmbeddingConfiguration` message that initializes a TPU system."""
        return self._config_proto

    @property
    def table_to_config_dict(self) -> "collections.OrderedDict[str, Any]":
        """Table name -> TableConfig, sorted by name, as a copy."""
        return self._table_to_config_dict.copy()

    @property
    def feature_to_config_dict(self) -> "collections.OrderedDict[str, Any]":
        """Feature name -> FeatureConfig, sorted by name, as a copy."""
        return self._feature_to_config_dict.copy()

    @property
    def table_to_features_dict(self) -> "collections.OrderedDict[str, list[str]]":
        """Table name -> names of its features, all sorted, as a copy."""
        return collections.OrderedDict(
            (table.name, [feature.name for feature in self._plan.features_of(table.name)])
            for table in self._plan.tables)

    @property
    def optimization_parameters(self) -> Any:
        """The `*Parameters` of the tables that do not set their own."""
        return self._optimization_parameters

    def _activation_shapes(self) -> dict[str, list[int]]:
        """Returns feature name -> shape of its activation, sorted by table and name."""
        return {feature.name: activation_shape(self._plan, feature, self._batch_size_per_core)
                for feature in self._plan.features}

    def _split_batch(self, batch_size: Any) -> int:
        checks.check_positive_int("batch_size", batch_size)
        checks.check(batch_size % self.num_cores == 0, "batch_size",
                     f"a multiple of the number of cores, {self.num_cores}", batch_size,
                     sentence="`batch_size` is not a multiple of number of cores.")
        return batch_size // self.num_cores


def _sorted_copy(configs: Mapping[str, Any]) -> "collections.OrderedDict[str, Any]":
    return collections.OrderedDict((name, configs[name]) for name in sorted(configs))
