# SPDX-License-Identifier: Apache-2.0
"""The ops of a TPU's embedding tables, on this package's engine if there is no TPU.

Tables are those of the configuration of the TPU, in its order. `create_variables_and_ops` of its
TPUEmbedding creates them; without a TPUEmbedding they belong to the process, and ops load them, see
`tpu_embedding_tables`. Activations and gradients are one tensor for each table, see
`tpu_embedding_rows`. If `config` lists features, as in TensorFlow 2, and the number of tensors is
theirs, there is one for each feature instead, by table.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stubs import tpu_cores
from tpu_estimator_embedding.compat.stubs.tpu_combiners import combined
from tpu_estimator_embedding.compat.stubs.tpu_embedding_rows import (
    Entry,
    entries_of,
    entries_of_features,
    rows_of,
)
from tpu_estimator_embedding.compat.stubs.tpu_engine import on_the_engine
from tpu_estimator_embedding.engine.enqueue_data import (
    AnyEnqueueData,
    EnqueueData,
    RaggedEnqueueData,
)
from tpu_estimator_embedding.low_level.configured_tables import parsed
from tpu_estimator_embedding.low_level.engine_configuration import batch_mode, batch_modes
from tpu_estimator_embedding.low_level.tpu_embedding import TPUEmbedding
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.types import Tensor


@on_the_engine
def enqueue_tpu_embedding_integer_batch(
        engine: TPUEmbedding, batch: Sequence[Tensor], device_ordinal: int,
        mode_override: str | Tensor | None = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each table, one id for each of its rows."""
    _check_one_each("batch", batch, "table", engine.table_to_features_dict)
    datas: dict[str, AnyEnqueueData] = {}
    for rows, ids in zip(rows_of(engine), batch, strict=True):
        datas |= rows.split_ids(tf.convert_to_tensor(ids))
    return _enqueue(engine, datas, device_ordinal, mode_override)


@on_the_engine
def enqueue_tpu_embedding_sparse_batch(
        engine: TPUEmbedding, sample_indices: Sequence[Tensor], embedding_indices: Sequence[Tensor],
        aggregation_weights: Sequence[Tensor], device_ordinal: int,
        combiners: Sequence[str] | None = None, mode_override: str | Tensor | None = None,
        name: str | None = None) -> tf.Operation:
    """Enqueues, for each table, ids with the number of their row."""
    lists = {"sample_indices": sample_indices, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    for argument, tensors in lists.items():
        _check_one_each(argument, tensors, "table", engine.table_to_features_dict)
    datas: dict[str, AnyEnqueueData] = {}
    for table, *tensors in zip(rows_of(engine), *lists.values(), strict=True):
        rows, ids, weights = map(tf.convert_to_tensor, tensors)
        datas |= table.split_numbered_ids(rows, ids, _weights(weights, ids))
    return _enqueue(engine, combined(engine, datas, combiners), device_ordinal, mode_override)


@on_the_engine
def enqueue_tpu_embedding_sparse_tensor_batch(
        engine: TPUEmbedding, sample_indices: Sequence[Tensor], embedding_indices: Sequence[Tensor],
        aggregation_weights: Sequence[Tensor], table_ids: Sequence[int], device_ordinal: int,
        max_sequence_lengths: Sequence[int] | None = None,
        num_features: Sequence[int] | None = None, combiners: Sequence[str] | None = None,
        mode_override: str | Tensor | None = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, the indices and values of a SparseTensor."""
    entries = entries_of(engine, table_ids, max_sequence_lengths, num_features)
    lists = {"sample_indices": sample_indices, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, entries, lists, _sparse)
    return _enqueue(engine, combined(engine, datas, combiners), device_ordinal, mode_override)


@on_the_engine
def enqueue_tpu_embedding_ragged_tensor_batch(
        engine: TPUEmbedding, sample_splits: Sequence[Tensor], embedding_indices: Sequence[Tensor],
        aggregation_weights: Sequence[Tensor], table_ids: Sequence[int], device_ordinal: int,
        max_sequence_lengths: Sequence[int] | None = None,
        num_features: Sequence[int] | None = None, combiners: Sequence[str] | None = None,
        mode_override: str | Tensor | None = None, name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, the row splits and values of a RaggedTensor."""
    entries = entries_of(engine, table_ids, max_sequence_lengths, num_features)
    lists = {"sample_splits": sample_splits, "embedding_indices": embedding_indices,
             "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, entries, lists, _ragged)
    return _enqueue(engine, combined(engine, datas, combiners), device_ordinal, mode_override)


@on_the_engine
def enqueue_tpu_embedding_arbitrary_tensor_batch(engine: TPUEmbedding,
                                                 sample_indices_or_row_splits: Sequence[Tensor],
                                                 embedding_indices: Sequence[Tensor],
                                                 aggregation_weights: Sequence[Tensor],
                                                 device_ordinal: int,
                                                 combiners: Sequence[str] | None = None,
                                                 mode_override: str | Tensor | None = None,
                                                 name: str | None = None) -> tf.Operation:
    """Enqueues, for each feature, sample indices `[n, 2]` or row splits, and values."""
    lists = {"sample_indices_or_row_splits": sample_indices_or_row_splits,
             "embedding_indices": embedding_indices, "aggregation_weights": aggregation_weights}
    datas = _by_feature(engine, entries_of_features(engine), lists, _sparse_or_ragged)
    return _enqueue(engine, combined(engine, datas, combiners), device_ordinal, mode_override)


@on_the_engine
def recv_tpu_embedding_activations(engine: TPUEmbedding, num_outputs: int, config: bytes,
                                   name: str | None = None) -> list[Tensor]:
    """Receives the activations of the next core: a tensor for each table, or each feature."""
    is_by_feature = _is_by_feature(engine, "num_outputs", num_outputs, config)
    activations = engine.get_activations()
    if is_by_feature:
        return [activations[feature] for feature in engine._feature_order]
    return [rows.join(activations) for rows in rows_of(engine)]


@on_the_engine
def send_tpu_embedding_gradients(engine: TPUEmbedding, inputs: Sequence[Tensor], config: bytes,
                                 learning_rates: Sequence[Tensor] | None = None,
                                 name: str | None = None) -> tf.Operation:
    """Sends the gradients of the next core, in the layout of its activations.

    Args:
        inputs: gradients.
        config: the configuration of the TPU.
        learning_rates: scalars float32, the rate of each tag of the configuration; those of a
            FrequencyEstimator are the step. Without them a TPUEmbedding computes its rates from
            the global step of the graph.
        name: of the op.
    """
    rates = _rates(engine, learning_rates)
    is_by_feature = _is_by_feature(engine, "inputs", len(inputs), config)
    gradients: dict[str, Tensor] = {}
    if is_by_feature:
        gradients = dict(zip(engine._feature_order, inputs, strict=True))
    else:
        for number, (rows, gradient) in enumerate(zip(rows_of(engine), inputs, strict=True)):
            gradient = tf.convert_to_tensor(gradient)
            shape = [rows.batch_size * rows.num_rows, rows.dimension]
            checks.check(gradient.shape.is_compatible_with(shape), f"inputs[{number}]",
                         f"of shape {shape}", gradient)
            gradients |= rows.split(gradient)
    return engine._send_gradients(gradients, _step(engine, rates), rates)


def _rates(engine: TPUEmbedding, learning_rates: Sequence[Tensor] | None) -> dict[str, Tensor]:
    """Returns table name -> learning rate, of the tables whose rate is dynamic."""
    tags = engine._rate_tags()
    number = 1 + max(tags.values(), default=-1)
    given = list(learning_rates or ())
    checks.check(len(given) == number or not (given or engine._share.is_of_process),
                 "learning_rates", f"a list of {number}, one for each dynamic learning rate",
                 learning_rates)
    rates = [tf.ensure_shape(tf.cast(rate, tf.float32), []) for rate in given]
    return {table: rates[tag] for table, tag in tags.items()} if given else {}


def _step(engine: TPUEmbedding, rates: Mapping[str, Tensor]) -> Tensor | tf.Variable | None:
    """Returns the global step, which the rates of FrequencyEstimator tables are."""
    estimating = [table.name for table in engine._plan.tables if table.optimizer and isinstance(
        table.optimizer.rule, FrequencyEstimator) and table.name in rates]
    tags = {engine._rate_tags()[table] for table in estimating}
    checks.check(len(tags) < 2, "learning_rates", "the same for all tables of "
                 "FrequencyEstimator, the step", sorted(tags), "Give these tables one tag.")
    if estimating:
        return tf.cast(rates[estimating[0]], tf.int64)
    return tf.compat.v1.train.get_global_step()


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


def _by_feature(engine: TPUEmbedding, entries: Sequence[Entry],
                lists: Mapping[str, Sequence[Tensor]],
                make: Callable[..., AnyEnqueueData]) -> dict[str, AnyEnqueueData]:
    datas: dict[str, AnyEnqueueData] = {}
    for argument, tensors in lists.items():
        _check_one_each(argument, tensors, "feature", ["/".join(entry.features)
                                                       for entry in entries])
    for entry, *tensors in zip(entries, *lists.values(), strict=True):
        places, ids, weights = map(tf.convert_to_tensor, tensors)
        datas |= entry.split(make(places, ids, _weights(weights, ids), entry.length > 0,
                                  engine.batch_size_per_core))
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


def _is_by_feature(engine: TPUEmbedding, argument: str, number: int, config: bytes) -> bool:
    """Whether a TPU with this configuration has a tensor for each feature, not each table."""
    proto = parsed(config)
    own = [(table.name, table.dimension) for table in engine.config_proto.table_descriptor]
    given = [(table.name, table.dimension) for table in proto.table_descriptor]
    checks.check(given == own, "config",
                 f"the configuration of the TPU, with the tables {own}", given)
    tables, features = len(own), len(proto.feature_descriptor)
    checks.check(number in (tables, features), argument, f"{tables}, one for each table" + (
        f", or {features}, one for each feature" if features else ""), number)
    return number == features


def _check_one_each(argument: str, tensors: Sequence[Tensor], of: str,
                    names: Collection[str]) -> None:
    checks.check(isinstance(tensors, (list, tuple)) and len(tensors) == len(names), argument,
                 f"a list of {len(names)}, one for each {of} of {list(names)}", tensors)
