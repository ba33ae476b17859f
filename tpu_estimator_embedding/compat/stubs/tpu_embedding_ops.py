# SPDX-License-Identifier: Apache-2.0
"""The ops of a TPU's embedding tables, on this package's engine if there is no TPU.

A TPU has one configuration of tables at a time. Here it is that of a v1 `TPUEmbedding`: the one
whose `config_proto` went to `tpu.initialize_system`, unless another one was made later. Its
`create_variables_and_ops` creates the tables. Activations and gradients are one tensor for each
table, see `tpu_embedding_rows`. If `config` lists features, as in TensorFlow 2, and the number of
tensors is theirs, there is one for each feature instead, sorted by table and name.
"""

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2
from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.compat.stubs.tpu_embedding_rows import rows_of
from tpu_estimator_embedding.engine.enqueue_data import (
    AnyEnqueueData,
    EnqueueData,
    RaggedEnqueueData,
)
from tpu_estimator_embedding.low_level import tpu_embedding
from tpu_estimator_embedding.low_level.engine_configuration import batch_mode, batch_modes
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.types import Tensor

_Config = tpu_embedding_configuration_pb2.TPUEmbeddingConfiguration


def _on_the_engine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls TensorFlow's function if there is a TPU, otherwise `function` with the engine."""
    name = function.__name__
    on_a_tpu = getattr(tpu_ops, name)

    @functools.wraps(on_a_tpu)
    def call(*arguments: Any, **named: Any) -> Any:
        if tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None:
            return on_a_tpu(*arguments, **named)
        engine = tpu_embedding.configured()
        if engine is None:
            raise RuntimeError(f"`tpu_ops.{name}` must be called after a TPUEmbedding was made, "
                               "got none. Make one of the tables and features.")
        with tf.name_scope(named.get("name") or name):
            return function(engine, *arguments, **named)

    return call


@_on_the_engine
def enqueue_tpu_embedding_integer_batch(
        engine: TPUEmbedding, batch: Sequence[Any], device_ordinal: int,
        mode_override: Any = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each table, one id for each of its rows."""
    _check_one_each("batch", batch, "table", engine.table_to_features_dict)
    datas: dict[str, AnyEnqueueData] = {}
    for rows, ids in zip(rows_of(engine), batch, strict=True):
        datas |= rows.split_ids(tf.convert_to_tensor(ids))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@_on_the_engine
def enqueue_tpu_embedding_sparse_batch(
        engine: TPUEmbedding, sample_indices: Sequence[Any], embedding_indices: Sequence[Any],
        aggregation_weights: Sequence[Any], device_ordinal: int,
        combiners: Sequence[str] | None = None, mode_override: Any = None,
        name: str | None = None) -> tf.Operation:
    """Enqueues, for each table, ids with the number of their row."""
    lists = {"sample_indices": sample_indices, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    for argument, tensors in lists.items():
        _check_one_each(argument, tensors, "table", engine.table_to_features_dict)
    _check_combiners(engine, combiners, engine.table_to_features_dict)
    datas: dict[str, AnyEnqueueData] = {}
    for table, *tensors in zip(rows_of(engine), *lists.values(), strict=True):
        rows, ids, weights = map(tf.convert_to_tensor, tensors)
        datas |= table.split_numbered_ids(rows, ids, _weights(weights, ids))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@_on_the_engine
def enqueue_tpu_embedding_sparse_tensor_batch(
        engine: TPUEmbedding, sample_indices: Sequence[Any], embedding_indices: Sequence[Any],
        aggregation_weights: Sequence[Any], table_ids: Sequence[int], device_ordinal: int,
        max_sequence_lengths: Sequence[int] | None = None,
        num_features: Sequence[int] | None = None, combiners: Sequence[str] | None = None,
        mode_override: Any = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, the indices and values of a SparseTensor."""
    features = _listed_features(engine, table_ids, max_sequence_lengths, num_features)
    lists = {"sample_indices": sample_indices, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, features, lists, _sparse)
    _check_combiners(engine, combiners, _tables_that_combine(engine, datas))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@_on_the_engine
def enqueue_tpu_embedding_ragged_tensor_batch(
        engine: TPUEmbedding, sample_splits: Sequence[Any], embedding_indices: Sequence[Any],
        aggregation_weights: Sequence[Any], table_ids: Sequence[int], device_ordinal: int,
        max_sequence_lengths: Sequence[int] | None = None,
        num_features: Sequence[int] | None = None, combiners: Sequence[str] | None = None,
        mode_override: Any = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, the row splits and values of a RaggedTensor."""
    features = _listed_features(engine, table_ids, max_sequence_lengths, num_features)
    lists = {"sample_splits": sample_splits, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, features, lists, _ragged)
    _check_combiners(engine, combiners, _tables_that_combine(engine, datas))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@_on_the_engine
def enqueue_tpu_embedding_arbitrary_tensor_batch(
        engine: TPUEmbedding, sample_indices_or_row_splits: Sequence[Any],
        embedding_indices: Sequence[Any], aggregation_weights: Sequence[Any],
        device_ordinal: int, combiners: Sequence[str] | None = None, mode_override: Any = None,
        name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, sample indices `[n, 2]` or row splits, and values."""
    lists = {"sample_indices_or_row_splits": sample_indices_or_row_splits,
             "embedding_indices": embedding_indices, "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, _features(engine), lists, _sparse_or_ragged)
    _check_combiners(engine, combiners, _tables_that_combine(engine, datas))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@_on_the_engine
def recv_tpu_embedding_activations(engine: TPUEmbedding, num_outputs: int, config: bytes,
                                   name: str | None = None) -> list[Tensor]:
    """Receives the activations of the next core: a tensor for each table, or each feature."""
    is_by_feature = _is_by_feature(engine, "num_outputs", num_outputs, config)
    activations = engine.get_activations()
    if is_by_feature:
        return [activations[feature] for feature in _features(engine)]
    return [rows.join(activations) for rows in rows_of(engine)]


@_on_the_engine
def send_tpu_embedding_gradients(engine: TPUEmbedding, inputs: Sequence[Any], config: bytes,
                                 learning_rates: Sequence[Any] | None = None,
                                 name: str | None = None) -> tf.Operation:
    """Sends the gradients of the next core, in the layout of its activations.

    Updates of tables that depend on the step use the global step of the graph.

    Raises:
        ValueError: if there are learning rates. This package's engine calls `learning_rate_fn`.
    """
    checks.check(not learning_rates, "learning_rates", "empty", learning_rates,
                 "Call TPUEmbedding.generate_send_gradients_op(gradients, step), which computes "
                 "the learning rates from the step.")
    is_by_feature = _is_by_feature(engine, "inputs", len(inputs), config)
    gradients: dict[str, Any] = {}
    if is_by_feature:
        gradients = dict(zip(_features(engine), inputs, strict=True))
    else:
        for number, (rows, gradient) in enumerate(zip(rows_of(engine), inputs, strict=True)):
            gradient = tf.convert_to_tensor(gradient)
            shape = [rows.batch_size * rows.num_rows, rows.dimension]
            checks.check(gradient.shape.is_compatible_with(shape), f"inputs[{number}]",
                         f"of shape {shape}", gradient)
            gradients |= rows.split(gradient)
    return engine.generate_send_gradients_op(gradients, tf.compat.v1.train.get_global_step())


def _enqueue(engine: TPUEmbedding, datas: Mapping[str, AnyEnqueueData], device_ordinal: int,
             mode_override: Any) -> tf.Operation:
    device = tf.no_op(name="device").device  # where the caller places its ops
    core = tpu_cores.core_of(device, device_ordinal, num_cores=engine.num_cores,
                             num_hosts=len(engine.hosts))
    if tf.is_tensor(mode_override):
        known = tf.get_static_value(mode_override)
        if known is None:
            return _enqueue_in_mode(engine, core, datas, mode_override)
        mode_override = tf.compat.as_str(known.item())
    return engine._enqueue_core(core, datas, batch_mode(engine.config_proto.mode, mode_override))


def _enqueue_in_mode(engine: TPUEmbedding, core: int, datas: Mapping[str, AnyEnqueueData],
                     mode_override: Tensor) -> tf.Operation:
    """Enqueues the ids in a mode that is known when the op runs."""
    modes = batch_modes(engine.config_proto.mode)
    is_mode = tf.equal(mode_override, list(modes))
    is_known = assert_that(tf.reduce_any(is_mode), "`mode_override` must be one of "
                           f"{', '.join(map(repr, modes))}, got {VALUE}.", mode_override)
    with tf.control_dependencies(is_known):
        chosen = tf.argmax(tf.cast(is_mode, tf.int32), output_type=tf.int32)
    branches = [lambda mode=mode: after(engine._enqueue_core(core, datas, mode))
                for mode in modes.values()]
    return tf.switch_case(chosen, branches).op


def _features(engine: TPUEmbedding) -> list[str]:
    """Returns the features in the order of the configuration, by table and name."""
    return [feature for features in engine.table_to_features_dict.values()
            for feature in features]


def _listed_features(engine: TPUEmbedding, table_ids: Sequence[int],
                     max_sequence_lengths: Sequence[int] | None,
                     num_features: Sequence[int] | None) -> list[str]:
    """Returns the feature of each entry: the next one, by name, of the entry's table."""
    tables = engine.table_to_features_dict
    expected = sorted(number for number, features in enumerate(tables.values()) for _ in features)
    checks.check(sorted(table_ids) == expected, "table_ids",
                 f"the table of each feature, {expected} in any order", list(table_ids))
    checks.check(not num_features or set(num_features) == {1}, "num_features",
                 "1 for every entry", num_features, "Enqueue an entry for each feature.")
    remaining = [iter(features) for features in tables.values()]
    features = [next(remaining[table]) for table in table_ids]
    lengths = [engine.feature_to_config_dict[feature].max_sequence_length for feature in features]
    given = list(max_sequence_lengths or [0] * len(lengths))
    checks.check(given == lengths, "max_sequence_lengths",
                 f"those of the features {features}, {lengths}", given)
    return features


def _by_feature(engine: TPUEmbedding, features: Sequence[str], lists: Mapping[str, Sequence[Any]],
                make: Callable[..., AnyEnqueueData]) -> dict[str, AnyEnqueueData]:
    for argument, tensors in lists.items():
        _check_one_each(argument, tensors, "feature", features)
    datas = {}
    for feature, *tensors in zip(features, *lists.values(), strict=True):
        places, ids, weights = map(tf.convert_to_tensor, tensors)
        is_sequence = engine.feature_to_config_dict[feature].max_sequence_length > 0
        datas[feature] = make(places, ids, _weights(weights, ids), is_sequence,
                              engine.batch_size_per_core)
    return datas


def _sparse(places: Tensor, ids: Tensor, weights: Tensor, is_sequence: bool,
            batch_size: int) -> EnqueueData:
    if places.shape.rank and places.shape[0] == 0 and not is_sequence:
        return EnqueueData(ids, None, weights)
    if is_sequence:  # TensorFlow 2 adds a third column
        return EnqueueData(ids, places[:, :2], weights)
    samples = tf.cast(places if places.shape.rank == 1 else places[:, 0], tf.int64)
    if not places.shape.is_fully_defined():
        samples = tf.cond(tf.equal(tf.size(samples), 0),
                          lambda: tf.range(tf.size(ids, tf.int64)), lambda: samples)
    return EnqueueData(ids, samples, weights)


def _ragged(splits: Tensor, ids: Tensor, weights: Tensor, is_sequence: bool,
            batch_size: int) -> AnyEnqueueData:
    if splits.shape.rank and splits.shape[0] == 0 and not is_sequence:
        return EnqueueData(ids, None, weights)
    splits = tf.cast(splits, tf.int64)
    if not splits.shape.is_fully_defined():
        splits = tf.cond(tf.equal(tf.size(splits), 0),
                         lambda: tf.range(batch_size + 1, dtype=tf.int64), lambda: splits)
    return RaggedEnqueueData(ids, splits, weights)


def _sparse_or_ragged(places: Tensor, *others: Any) -> AnyEnqueueData:
    checks.check(places.shape.rank in (1, 2), "sample_indices_or_row_splits",
                 "tensors of rank 1 or 2", places)
    return (_sparse if places.shape.rank == 2 else _ragged)(places, *others)


def _weights(weights: Tensor, ids: Tensor) -> Tensor:
    """Returns the weight of every id, which is 1 if there are no weights."""
    weights = tf.cast(weights, tf.float32)
    if weights.shape.rank and weights.shape[0] == 0:
        return tf.ones_like(ids, tf.float32)
    if weights.shape.is_fully_defined():
        return weights
    return tf.cond(tf.equal(tf.size(weights), 0), lambda: tf.ones_like(ids, tf.float32),
                   lambda: weights)


def _tables_that_combine(engine: TPUEmbedding,
                         datas: Mapping[str, AnyEnqueueData]) -> list[str]:
    """Returns the tables with features that may have several ids in a sample."""
    configs = engine.feature_to_config_dict
    return [table for table, features in engine.table_to_features_dict.items()
            if any(datas[feature][1] is not None and not configs[feature].max_sequence_length
                   for feature in features)]


def _check_combiners(engine: TPUEmbedding, combiners: Sequence[str] | None,
                     tables: Collection[str]) -> None:
    configs = engine.table_to_config_dict
    if combiners:
        _check_one_each("combiners", combiners, "table", configs)
    given = dict(zip(configs, combiners or ["sum"] * len(configs), strict=True))
    own = {table: config.combiner or given[table] for table, config in configs.items()}
    checks.check(all(given[table] == own[table] for table in tables), "combiners",
                 f"those of the tables, {list(own.values())}", combiners,
                 "" if combiners else "Without combiners, the ops sum.")


def _is_by_feature(engine: TPUEmbedding, argument: str, number: int, config: bytes) -> bool:
    """Whether a TPU with this configuration has a tensor for each feature, not each table."""
    proto = _Config()
    try:
        proto.ParseFromString(config)
    except (DecodeError, TypeError) as error:
        raise ValueError(checks.complaint(
            "config", "a serialized TPUEmbeddingConfiguration", config)) from error
    own = [(table.name, table.dimension) for table in engine.config_proto.table_descriptor]
    given = [(table.name, table.dimension) for table in proto.table_descriptor]
    checks.check(given == own, "config",
                 f"the configuration of the TPU, with the tables {own}", given)
    tables, features = len(engine.table_to_config_dict), len(engine.feature_to_config_dict)
    checks.check(number in (tables, features), argument,
                 f"{tables}, one for each table, or {features}, one for each feature", number)
    return bool(proto.feature_descriptor) and number == features


def _check_one_each(argument: str, tensors: Sequence[Any], of: str,
                    names: Collection[str]) -> None:
    checks.check(isinstance(tensors, (list, tuple)) and len(tensors) == len(names), argument,
                 f"a list of {len(names)}, one for each {of} of {list(names)}", tensors)
