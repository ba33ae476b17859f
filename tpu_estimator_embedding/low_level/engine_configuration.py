# SPDX-License-Identifier: Apache-2.0
"""The configuration of a `TPUEmbedding`: checked arguments, their plan, and a TPU's message."""

import collections
import enum
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
    _OptimizationParameters,
)
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import to_plan
from tpu_estimator_embedding.low_level.cores import Cores
from tpu_estimator_embedding.low_level.sent_gradients import activation_shape
from tpu_estimator_embedding.optimizers.registry import rule_of, rules_by_parameters
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_Config = TypeVar("_Config")

TRAINING = TPUEmbeddingConfiguration.TRAINING
INFERENCE = TPUEmbeddingConfiguration.INFERENCE


class BatchMode(enum.Enum):
    """Which calls follow after a batch was enqueued."""

    INFERENCE = "activations are received"
    TRAINING = "activations are received, then gradients are sent"
    BACKWARD_PASS_ONLY = "gradients are sent, activations are not received"


# TensorFlow documents both spellings of training: one in the engine, one in its ops.
_OVERRIDES = {"inference": BatchMode.INFERENCE, "train": BatchMode.TRAINING,
              "training": BatchMode.TRAINING,
              "backward_pass_only": BatchMode.BACKWARD_PASS_ONLY}


def check_mode(mode: object) -> None:
    """Raises ValueError unless `mode` is TRAINING or INFERENCE."""
    checks.check(mode in (TRAINING, INFERENCE), "mode",
                 f"TRAINING ({TRAINING}) or INFERENCE ({INFERENCE})", mode,
                 sentence=f"`mode` only supports {TRAINING} and {INFERENCE}; got {mode}.")


def batch_mode(mode: int, mode_override: str | None) -> BatchMode:
    """Returns the mode of a batch.

    Args:
        mode: the mode of the engine.
        mode_override: the mode of the batch; None and "unspecified" mean the engine's.

    Raises:
        ValueError: if the override is unknown, or requests training from an engine for
            INFERENCE. No gradients can be sent to it, and a TPU would wait for them forever.

    >>> batch_mode(TRAINING, None).name, batch_mode(TRAINING, "inference").name
    ('TRAINING', 'INFERENCE')
    """
    if mode_override in (None, "unspecified"):
        return BatchMode.TRAINING if mode == TRAINING else BatchMode.INFERENCE
    checks.check_one_of("mode_override", ("unspecified", *_OVERRIDES), mode_override)
    override = _OVERRIDES[mode_override]
    checks.check(mode == TRAINING or override == BatchMode.INFERENCE, "mode_override",
                 "'unspecified' or 'inference' in an engine for INFERENCE", mode_override,
                 "Make the TPUEmbedding with mode=TRAINING to train.")
    return override


def batch_modes(mode: int) -> dict[str, BatchMode]:
    """Returns every `mode_override` that an engine of this mode accepts, with its mode.

    >>> list(batch_modes(INFERENCE))
    ['unspecified', 'inference']
    """
    return {override: batch_mode(mode, override) for override in ("unspecified", *_OVERRIDES)
            if mode == TRAINING or override in ("unspecified", "inference")}


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

    def __init__(self, table_to_config_dict: Mapping[str, TableConfig],
                 feature_to_config_dict: Mapping[str, FeatureConfig], batch_size: int, mode: int,
                 optimization_parameters: _OptimizationParameters | None, cores: Cores, *,
                 pipelined: bool, partition_strategy: str):
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
        self._table_to_features = {
            table.name: [feature.name for feature in self._plan.features_of(table.name)]
            for table in self._plan.tables}
        self._feature_order = [feature.name for feature in self._plan.features]
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
    def config_proto(self) -> TPUEmbeddingConfiguration:
        """The `TPUEmbeddingConfiguration` message that initializes a TPU system."""
        return self._config_proto

    @property
    def table_to_config_dict(self) -> "collections.OrderedDict[str, TableConfig]":
        """Table name -> TableConfig, sorted by name, as a copy."""
        return self._table_to_config_dict.copy()

    @property
    def feature_to_config_dict(self) -> "collections.OrderedDict[str, FeatureConfig]":
        """Feature name -> FeatureConfig, sorted by name, as a copy."""
        return self._feature_to_config_dict.copy()

    @property
    def table_to_features_dict(self) -> "collections.OrderedDict[str, list[str]]":
        """Table name -> names of its features, all sorted, as a copy."""
        return collections.OrderedDict(
            (table, list(features)) for table, features in self._table_to_features.items())

    def _rate_tags(self) -> dict[str, int]:
        """Returns table name -> tag of its learning rate, for tables whose rate is dynamic."""
        rates = {table.name: table.optimization_parameters.learning_rate
                 for table in self._config_proto.table_descriptor}
        return {name: rate.dynamic.tag for name, rate in rates.items() if rate.HasField("dynamic")}

    @property
    def optimization_parameters(self) -> _OptimizationParameters | None:
        """The `*Parameters` of the tables that do not set their own."""
        return self._optimization_parameters

    def _activation_shapes(self) -> dict[str, list[int]]:
        """Returns feature name -> shape of its activation, sorted by table and name."""
        return {feature.name: activation_shape(self._plan, feature, self._batch_size_per_core)
                for feature in self._plan.features}

    def _split_batch(self, batch_size: int) -> int:
        checks.check_positive_int("batch_size", batch_size)
        checks.check(batch_size % self.num_cores == 0, "batch_size",
                     f"a multiple of the number of cores, {self.num_cores}", batch_size,
                     sentence="`batch_size` is not a multiple of number of cores.")
        return batch_size // self.num_cores


def _sorted_copy(configs: Mapping[str, _Config]) -> "collections.OrderedDict[str, _Config]":
    return collections.OrderedDict((name, configs[name]) for name in sorted(configs))


def to_config_proto(plan: EmbeddingPlan, table_to_config: Mapping[str, TableConfig],
                    optimization_parameters: Any, *, mode: int,
                    batch_size_per_core: int,
                    cores: Cores) -> TPUEmbeddingConfiguration:
    """Returns the message, tables sorted by name and features by table and name.

    Args:
        plan: the tables and features.
        table_to_config: table name -> TableConfig.
        optimization_parameters: the `*Parameters` of the tables that do not set their own.
        mode: TRAINING or INFERENCE.
        batch_size_per_core: samples that one core processes in a step.
        cores: hosts and cores.
    """
    proto = TPUEmbeddingConfiguration(
        mode=mode, batch_size_per_tensor_core=batch_size_per_core, num_hosts=len(cores.hosts),
        num_tensor_cores=cores.num_cores,
        sharding_strategy=("DIV_DEFAULT" if plan.partition_strategy == "div" else "MOD"),
        pipeline_execution_with_tensor_core=plan.pipelined)
    # Learning rate function -> index in order of first use.
    tags: dict[Callable[[Tensor], Tensor], int] = {}
    for table in plan.tables:
        config = table_to_config[table.name]
        descriptor = proto.table_descriptor.add(
            name=table.name, dimension=table.dimension,
            vocabulary_size=max(table.vocabulary_size, len(cores.hosts)))
        if config.learning_rate_fn is not None:
            tags.setdefault(config.learning_rate_fn, len(tags))
        set_optimizer(descriptor.optimization_parameters, config,
                      config.optimization_parameters or optimization_parameters, tags)
    _add_features(proto, plan, batch_size_per_core)
    return proto


def _add_features(proto: TPUEmbeddingConfiguration,
                  plan: EmbeddingPlan, batch_size_per_core: int) -> None:
    table_ids = {table.name: number for number, table in enumerate(plan.tables)}
    for feature in plan.features:
        length = feature.max_sequence_length
        proto.feature_descriptor.add(
            table_id=table_ids[feature.table],
            input_shape=[batch_size_per_core, length] if length else [batch_size_per_core])


def set_optimizer(proto: Message, config: TableConfig,
                  parameters: _OptimizationParameters,
                  tags: Mapping[Callable[[Tensor], Tensor], int]) -> None:
    """Writes the optimizer of a table into its message.

    Args:
        proto: an empty OptimizationParameters message.
        config: the TableConfig.
        parameters: its `*Parameters`.
        tags: learning rate function -> tag.
    """
    if config.learning_rate_fn is not None:
        proto.learning_rate.dynamic.tag = tags[config.learning_rate_fn]
    else:
        proto.learning_rate.constant = config.learning_rate or parameters.learning_rate
    status = optimization_parameters_pb2.GradientAccumulationStatus
    proto.gradient_accumulation_status = (
        status.ENABLED if parameters.use_gradient_accumulation else status.DISABLED)
    _set_limits(proto.gradient_clipping_limits, parameters.clip_gradient_min,
                parameters.clip_gradient_max)
    _set_limits(proto.clipping_limits, parameters.clip_weight_min, parameters.clip_weight_max)
    if parameters.weight_decay_factor:
        proto.weight_decay_factor = parameters.weight_decay_factor
        proto.multiply_weight_decay_factor_by_learning_rate = bool(
            parameters.multiply_weight_decay_factor_by_learning_rate)
    if config.hot_id_replication:
        proto.hot_id_replication_configuration.status = (
            optimization_parameters_pb2.HotIdReplicationConfiguration.ENABLED)
    _set_message(proto, parameters)


def _set_limits(proto: Message, lower: float | None,
                upper: float | None) -> None:
    if lower is not None:
        proto.lower.value = lower
    if upper is not None:
        proto.upper.value = upper


def _set_message(proto: Message,
                 parameters: _OptimizationParameters) -> None:
    rule = rule_of(type(parameters), rules_by_parameters())
    assert rule, "a plan was made of the settings"
    message = getattr(proto, rule.record.proto)
    message.SetInParent()  # selects the optimizer even if it has no fields
    rule.record.fill_message(message, parameters)
