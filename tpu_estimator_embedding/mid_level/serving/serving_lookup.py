# SPDX-License-Identifier: Apache-2.0
"""Lookups for serving with TensorFlow's own ops, so that exported models need no package.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> words = TableConfig(1000, 1, combiner="sum", name="words")
>>> table = tf.Variable(tf.range(1000.0)[:, tf.newaxis])
>>> serving_embedding_lookup(tf.ragged.constant([[3, 4], [], [5]]), None, {words: table},
...                          FeatureConfig(words)).numpy().tolist()
[[7.0], [0.0], [5.0]]
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.structure import Ids, named_features, named_values
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.input import output_shapes
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.ops.sparse_ids import check_weights_are_numbers
from tpu_estimator_embedding.types import Structure, Tensor

_KINDS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)


@not_converted
def serving_embedding_lookup(inputs: Structure, weights: Structure,
                             tables: Mapping[TableConfig, tf.Variable],
                             feature_config: Structure) -> Structure:
    """Looks up features without the engine.

    Unlike in TPUEmbedding, `validate_weights_and_indices` applies to sparse ids: True drops
    negative ids and, unless the combiner is "sum", non-positive weights, and returns zeros for
    samples without ids; False means `tf.nn.embedding_lookup_sparse`. Ragged samples without ids
    get zeros. Simulated quantization is not applied, as in TensorFlow.

    Args:
        inputs: Tensors, SparseTensors or RaggedTensors of ids, in the structure of
            feature_config or a part of it.
        weights: None, or floats in the structure of the inputs, of the same tensor types.
        tables: TableConfig -> variable, such as `embedding_tables` of TPUEmbedding.
        feature_config: a nested structure of FeatureConfigs.

    Returns:
        float32 activations in the structure of the inputs. For a Tensor, its shape followed by
        dim; otherwise `[batch, dim]`, `[batch, max_sequence_length, dim]`, or output_shape
        followed by dim.

    Raises:
        TypeError: if `tables` is no mapping.
        ValueError: if a feature is not configured or its table is missing, an input has another
            type, weights and ids differ in tensor type, a sequence has weights, or a sequence is
            dense.

    Source: documentation of `tf.tpu.experimental.embedding.serving_embedding_lookup`.
    """
    checks.check_type(Mapping, "tables", "a mapping of TableConfigs to variables", tables,
                      "`embedding_tables` of TPUEmbedding or TPUEmbeddingForServing is one.")
    features = named_features(feature_config)
    leaves = named_values(inputs)
    unknown = sorted({path for path, _ in leaves} - set(features))
    checks.check(not unknown, "inputs", f"have features of feature_config only, {list(features)}",
                 unknown)
    for path, _ in leaves:
        table = features[path].table
        checks.check(table in tables, "tables", f"have the table of feature {path!r}, {table}",
                     [*tables], "Use the same TableConfig object as in feature_config as the key.")
    flat_weights: list[Ids | None] = [None] * len(leaves)
    if weights is not None:
        tf.nest.assert_same_structure(inputs, weights)
        flat_weights = tf.nest.flatten(weights)
    return tf.nest.pack_sequence_as(inputs, [
        _lookup(path, value, weight, tables[features[path].table], features[path])
        for (path, value), weight in zip(leaves, flat_weights, strict=True)])


def _lookup(path: str, value: Ids, weights: Ids | None, table: tf.Variable,
            config: FeatureConfig) -> Tensor:
    check_input(path, config, value, weights)
    if isinstance(value, tf.RaggedTensor):
        return _lookup_ragged(path, value, weights, table, config)
    if isinstance(value, tf.SparseTensor):
        return _lookup_sparse(path, value, weights, table, config)
    return _rows(value, table, config)


def check_input(path: str, config: FeatureConfig, value: Ids, weights: Ids | None) -> None:
    """Raises ValueError unless a feature can be looked up with its weights."""
    is_sequence = config.max_sequence_length > 0
    checks.check_with_sentence(
        isinstance(value, _KINDS), f"Input {path} is type {type(value)}. Tensor, SparseTensor or "
        "RaggedTensor expected.")
    checks.check_with_sentence(
        weights is None or not isinstance(value, tf.Tensor), f"Weight specified for {path}, but "
        "input is dense.", "Pass ids and weights as SparseTensors or RaggedTensors.")
    checks.check_with_sentence(
        weights is None or type(weights) is type(value), f"Weight for {path} is of type "
        f"{type(weights)} but it does not match type of the input which is {type(value)}.",
        "Pass weights of the tensor type of the ids, with the same indices.")
    check_weights_are_numbers(weights, path)
    checks.check_with_sentence(
        weights is None or not is_sequence, f"Weight specified for {path}, but this is a sequence "
        "feature.", "Multiply the activations by them.")
    checks.check_with_sentence(
        not is_sequence or not isinstance(value, tf.Tensor), f"Feature {path} is a sequence "
        "feature but a dense tensor was passed.", "Pass a SparseTensor or RaggedTensor.")


def _lookup_sparse(path: str, value: tf.SparseTensor, weights: tf.SparseTensor | None,
                   table: tf.Variable, config: FeatureConfig) -> Tensor:
    rank = value.shape.rank
    checks.check(rank is None or rank >= 2, f"rank of the sparse input of feature {path!r}",
                 "at least 2", rank)
    shape = output_shapes.stated(path, config)
    length = config.max_sequence_length
    if length and not shape and rank in (None, 2):
        batch_size = value.dense_shape[0]
        kept = tf.sparse.slice(value, [0, 0], tf.stack([batch_size, length]))
        return tf.scatter_nd(kept.indices, _rows(kept.values, table, config),
                             tf.stack([batch_size, length, config.table.dim]))
    is_plain = not config.validate_weights_and_indices and rank == 2
    lookup = tf.nn.embedding_lookup_sparse if is_plain else tf.nn.safe_embedding_lookup_sparse
    return lookup(table, value, weights, combiner=config.table.combiner)


def _lookup_ragged(path: str, value: tf.RaggedTensor, weights: tf.RaggedTensor | None,
                   table: tf.Variable, config: FeatureConfig) -> Tensor:
    checks.check_with_sentence(
        value.shape.rank == 2,
        f"Only rank 2 ragged tensor is supported, but got rank {value.shape.rank}",
        f"for feature {path!r}.")
    shape, batch_size = output_shapes.stated(path, config), value.shape[0]
    length = config.max_sequence_length
    if shape is None:
        return (_sequence(value, table, batch_size, length, config) if length
                else _combine(value, weights, table, config))
    num_rows = tf.TensorShape(shape.dims).num_elements()
    checks.check(batch_size is not None and num_rows % batch_size == 0,
                 f"batch of feature {path!r}",
                 f"a divisor of the rows of its output_shape, {num_rows}", batch_size, sentence=
                 "Output shape set in the FeatureConfig should be the factor of the input data "
                 f"batch size. But instead got output shape {shape.dims}, input data batch size "
                 f"{batch_size}.")
    rows = (_combine(value, weights, table, config) if num_rows == batch_size
            else _sequence(value, table, batch_size, num_rows // batch_size, config))
    return tf.reshape(rows, [*shape.dims, config.table.dim])


def _rows(ids: Tensor, table: tf.Variable, config: FeatureConfig) -> Tensor:
    """Returns the row of each id; zeros for a negative one, unless it is to be an error."""
    if not config.validate_weights_and_indices:
        return tf.nn.embedding_lookup(table, ids)
    rows = tf.nn.embedding_lookup(table, tf.maximum(ids, 0))
    return tf.where((ids >= 0)[..., tf.newaxis], rows, tf.zeros_like(rows))


def _sequence(ids: tf.RaggedTensor, table: tf.Variable, batch_size: int | None,
              length: int, config: FeatureConfig) -> Tensor:
    return ids.with_values(_rows(ids.values, table, config)).to_tensor(
        shape=[batch_size, length, table.shape[1]])


def _combine(ids: tf.RaggedTensor, weights: tf.RaggedTensor | None, table: tf.Variable,
             config: FeatureConfig) -> Tensor:
    combiner = config.table.combiner
    rows = ids.with_values(_rows(ids.values, table, config))
    weights = tf.ones_like(ids, tf.float32) if weights is None else tf.cast(weights, tf.float32)
    if config.validate_weights_and_indices:  # a negative id has no weight, either
        weights = weights * tf.cast(ids >= 0, tf.float32)
    total = tf.reduce_sum(rows * tf.expand_dims(weights, 2), 1)
    if combiner == "sum":
        return total
    scale = (tf.reduce_sum(weights, 1) if combiner == "mean"
             else tf.sqrt(tf.reduce_sum(tf.square(weights), 1)))
    return tf.math.divide_no_nan(total, scale[:, tf.newaxis])
