# SPDX-License-Identifier: Apache-2.0
"""The engine's configuration as the message that a TPU system is initialized with."""

from collections.abc import Mapping
from typing import Any

from tensorflow.core.protobuf.tpu import (
    optimization_parameters_pb2,
    tpu_embedding_configuration_pb2,
)

from tpu_estimator_embedding.optimizers.registry import rules
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.v1_engine.cores import Cores


def to_config_proto(plan: EmbeddingPlan, table_to_config: Mapping[str, Any],
                    optimization_parameters: Any, *, mode: int, batch_size_per_core: int,
                    cores: Cores) -> tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration:
    """Returns the message, tables sorted by name and features by table and name.

    Args:
        plan: the tables and features.
        table_to_config: table name -> TableConfig.
        optimization_parameters: the `*Parameters` of the tables that do not set their own.
        mode: TRAINING or INFERENCE.
        batch_size_per_core: samples that one core processes in a step.
        cores: hosts and cores.
    """
    proto = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration(
        mode=mode, batch_size_per_tensor_core=batch_size_per_core, num_hosts=len(cores.hosts),
        num_tensor_cores=cores.num_cores,
        sharding_strategy=("DIV_DEFAULT" if plan.partition_strategy == "div" else "MOD"),
        pipeline_execution_with_tensor_core=plan.pipelined)
    tags: dict[Any, int] = {}  # learning rate function -> index in order of first use
    for table in plan.tables:
        config = table_to_config[table.name]
        descriptor = proto.table_descriptor.add(
            name=table.name, dimension=table.dimension,
            vocabulary_size=max(table.vocabulary_size, len(cores.hosts)))
        if config.learning_rate_fn is not None:
            tags.setdefault(config.learning_rate_fn, len(tags))
        _set_optimizer(descriptor.optimization_parameters, config,
                       config.optimization_parameters or optimization_parameters, tags)
    _add_features(proto, plan, batch_size_per_core)
    return proto


def _add_features(proto: Any, plan: EmbeddingPlan, batch_size_per_core: int) -> None:
    table_ids = {table.name: number for number, table in enumerate(plan.tables)}
    for feature in plan.features:
        length = feature.max_sequence_length
        proto.feature_descriptor.add(
            table_id=table_ids[feature.table],
            input_shape=[batch_size_per_core, length] if length else [batch_size_per_core])


def _set_optimizer(proto: Any, config: Any, parameters: Any, tags: Mapping[Any, int]) -> None:
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


def _set_limits(proto: Any, lower: float | None, upper: float | None) -> None:
    if lower is not None:
        proto.lower.value = lower
    if upper is not None:
        proto.upper.value = upper


def _set_message(proto: Any, parameters: Any) -> None:
    records = {rule.record.parameters: rule.record for rule in rules()}
    record = next(records[base.__name__] for base in type(parameters).__mro__
                  if base.__name__ in records)
    message = getattr(proto, record.proto)
    message.SetInParent()  # selects the optimizer even if it has no fields
    for field, source in record.proto_fields.items():
        value = source(parameters) if callable(source) else getattr(parameters, source)
        setattr(message, field, value)
