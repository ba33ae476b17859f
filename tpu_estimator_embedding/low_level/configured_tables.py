# SPDX-License-Identifier: Apache-2.0
"""The tables of a TPU that a configuration message alone describes.

Programs without a `TPUEmbedding` make a `TPUEmbeddingConfiguration`, configure the TPU with it, and
then use ops. The message is lowered to the arguments of a `TPUEmbedding`, whose tables belong to
the process: ops of any graph or session load, train and retrieve them.
"""

import dataclasses
import weakref

from google.protobuf.message import DecodeError, Message
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import TPUEmbeddingConfiguration

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.channels import channel
from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.optimization_parameters import _OptimizationParameters
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.engine.process_variables import drop_process_variables
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.low_level import tpu_embedding
from tpu_estimator_embedding.low_level.cores import DeviceConfig
from tpu_estimator_embedding.low_level.engine_configuration import (
    check_mode,
    set_optimizer,
)
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.optimizers.registry import records
from tpu_estimator_embedding.types import Tensor

_Status = optimization_parameters_pb2.GradientAccumulationStatus
_STRATEGIES = {TPUEmbeddingConfiguration.DIV_DEFAULT: "div", TPUEmbeddingConfiguration.MOD: "mod"}

# They say how a TPU stores rows or names things, and change no number.
_OF_A_TPU = ("low_dimensional_packing_status", "hot_id_replication_configuration")


def configure(config: bytes) -> None:
    """Configures the tables that ops without a `TPUEmbedding` use.

    They are those of the TPUEmbedding with this `config_proto`, or else new ones.

    Args:
        config: a serialized TPUEmbeddingConfiguration; empty to keep the tables.

    Raises:
        ValueError: if it is not one, or if it has a field that has no effect here.
        NotImplementedError: if new tables are needed and there are no native kernels.
    """
    if config:
        proto = parsed(config)
        if not tpu_embedding.choose(proto):
            ConfiguredTables(proto)


def parsed(config: bytes) -> TPUEmbeddingConfiguration:
    """Returns the message.

    Raises:
        ValueError: if `config` is not a serialized TPUEmbeddingConfiguration.
    """
    try:
        return TPUEmbeddingConfiguration.FromString(config)
    except (DecodeError, TypeError) as error:
        raise ValueError(checks.complaint(
            "config", "a serialized TPUEmbeddingConfiguration", config)) from error


class ConfiguredTables(TPUEmbedding):
    """The engine of a configuration message.

    Tables and features have the order of the message. Without feature descriptors, a table has
    `num_features` features, each with one row in every sample. Combiners are those of each batch.

    Args:
        proto: a TPUEmbeddingConfiguration.

    Raises:
        ValueError, NotImplementedError: see `configure`.
    """

    def __init__(self, proto: TPUEmbeddingConfiguration):
        _check_kernels()
        tables, features = _tables(proto), _features(proto)
        batch_size = proto.batch_size_per_tensor_core or _batch_size_of_features(proto)
        super().__init__(
            tables, features, batch_size * proto.num_tensor_cores, proto.mode,
            pipeline_execution_with_tensor_core=proto.pipeline_execution_with_tensor_core,
            partition_strategy=_STRATEGIES[proto.sharding_strategy],
            profile_data_directory=proto.profile_data_directory or None,
            device_config=DeviceConfig(proto.num_hosts, proto.num_tensor_cores, "/job:localhost"))
        self._config_proto = proto
        self._table_to_features = {
            table: [name for name, feature in features.items() if feature.table_id == table]
            for table in tables}
        self._feature_order = list(features)
        self._share = self._share._replace(is_of_process=True)
        weakref.finalize(self, drop_process_variables, self._share.engine)


@dataclasses.dataclass(frozen=True)
class TaggedRate:
    """A learning rate that each send of gradients brings."""

    tag: int

    def __call__(self, step: Tensor) -> Tensor:
        """Refuses to compute the rate from the step."""
        raise RuntimeError(f"`learning_rates` must have the rate of tag {self.tag}, got none. Pass "
                           "the learning rates to send_tpu_embedding_gradients.")


def _check_kernels() -> None:
    if not channel.are_available():
        raise NotImplementedError(
            "`embedding_config` must be the config_proto of a TPUEmbedding without the native "
            f"kernels, got another one. Compile the kernels: `{load.COMMAND}`.")


def _tables(proto: TPUEmbeddingConfiguration) -> dict[str, TableConfig]:
    _check_message(proto)
    names = [table.name for table in proto.table_descriptor]
    checks.check(bool(names) and "" not in names and len(set(names)) == len(names),
                 "table_descriptor", "tables with distinct names", names)
    return {table.name: _table(table) for table in proto.table_descriptor}


def _check_message(proto: TPUEmbeddingConfiguration) -> None:
    check_mode(proto.mode)
    sharding = getattr(proto, "spmd_sharding", None)
    checks.check(not (sharding and sharding.enabled), "spmd_sharding", "disabled", sharding,
                 "Use tpu.shard to create replicas.")


def _table(descriptor: TPUEmbeddingConfiguration.TableDescriptor) -> TableConfig:
    message = descriptor.optimization_parameters
    argument = f"optimization_parameters of table {descriptor.name!r}"
    kind = message.learning_rate.WhichOneof("learning_rate")
    checks.check(kind is not None, f"learning_rate of table {descriptor.name!r}",
                 "constant or dynamic", kind)
    checks.check(kind == "dynamic" or message.WhichOneof("parameters") != "frequency_estimator",
                 f"learning_rate of table {descriptor.name!r}",
                 "dynamic under FrequencyEstimator, where it is the step", kind)
    table = TableConfig(
        descriptor.vocabulary_size, descriptor.dimension, combiner=None,
        learning_rate_fn=(TaggedRate(message.learning_rate.dynamic.tag) if kind == "dynamic"
                          else None),
        optimization_parameters=_parameters(message, argument))
    _check_is_honoured(table, message, argument)
    return table


def _parameters(message: Message, argument: str) -> _OptimizationParameters:
    known = {record.proto: record for record in records()}
    name = message.WhichOneof("parameters")
    checks.check_one_of(f"optimizer of {argument.partition(' of ')[2]}", sorted(known), name)
    record = known[name]
    settings = record.read_message(getattr(message, name))
    kind = getattr(optimization_parameters, record.parameters)
    if "learning_rate" in kind.__dataclass_fields__:
        settings |= {
            "learning_rate": message.learning_rate.constant,
            "use_gradient_accumulation":
                message.gradient_accumulation_status != _Status.DISABLED,
            **_limits("clip_weight", message.clipping_limits),
            **_limits("clip_gradient", message.gradient_clipping_limits),
            "weight_decay_factor": message.weight_decay_factor or None,
            "multiply_weight_decay_factor_by_learning_rate":
                message.multiply_weight_decay_factor_by_learning_rate or None}
    return kind(**settings)


def _limits(prefix: str, message: Message) -> dict[str, float | None]:
    return {f"{prefix}_{name}": getattr(message, bound).value if message.HasField(bound) else None
            for name, bound in (("min", "lower"), ("max", "upper"))}


def _check_is_honoured(table: TableConfig, message: Message, argument: str) -> None:
    """Raises ValueError unless the table, written as a message again, is that message."""
    given = type(message).FromString(message.SerializeToString())
    for field in _OF_A_TPU:
        given.ClearField(field)
    if given.gradient_accumulation_status == _Status.UNSPECIFIED:
        given.gradient_accumulation_status = _Status.ENABLED
    written = type(message)()
    tag = message.learning_rate.dynamic.tag
    set_optimizer(written, table, table.optimization_parameters, {table.learning_rate_fn: tag})
    if written != given:
        others = {field.name: str(value).strip() for field, value in given.ListFields()
                  if value != getattr(written, field.name)}
        raise ValueError(checks.complaint(
            argument, "have only fields that this package's engine supports", others))


def _features(proto: TPUEmbeddingConfiguration) -> dict[str, FeatureConfig]:
    tables = [table.name for table in proto.table_descriptor]
    if not proto.feature_descriptor:
        return {f"{table.name}/{number}": FeatureConfig(table.name)
                for table in proto.table_descriptor for number in range(table.num_features)}
    features = {}
    for number, descriptor in enumerate(proto.feature_descriptor):
        name = descriptor.name or f"feature {number}"
        checks.check(name not in features, f"name of feature_descriptor[{number}]",
                     "unique among the features", name)
        checks.check(0 <= descriptor.table_id < len(tables),
                     f"table_id of feature_descriptor[{number}]",
                     f"the number of one of the tables {tables}", descriptor.table_id)
        features[name] = FeatureConfig(tables[descriptor.table_id],
                                       _sequence_length(proto, number))
    return features


def _sequence_length(proto: TPUEmbeddingConfiguration, number: int) -> int:
    shape = list(proto.feature_descriptor[number].input_shape)
    batch_size = proto.batch_size_per_tensor_core or _batch_size_of_features(proto)
    checks.check(len(shape) in (1, 2) and shape[0] == batch_size,
                 f"input_shape of feature_descriptor[{number}]",
                 f"[{batch_size}], or [{batch_size}, length] for a sequence", shape)
    return shape[1] if len(shape) == 2 else 0


def _batch_size_of_features(proto: TPUEmbeddingConfiguration) -> int:
    """Returns the samples of a core, which only the features say since TensorFlow 2.5."""
    shapes = [list(feature.input_shape) for feature in proto.feature_descriptor]
    checks.check(bool(shapes) and bool(shapes[0]), "batch_size_per_tensor_core",
                 "the samples of a core", proto.batch_size_per_tensor_core)
    return shapes[0][0]

