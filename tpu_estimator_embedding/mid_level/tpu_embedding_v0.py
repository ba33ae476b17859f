# SPDX-License-Identifier: Apache-2.0
"""TPUEmbeddingV0: tables that are variables of the model, trained by a Keras optimizer.

>>> from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
>>> from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
>>> words = TableConfig(1000, 1, tf.ones_initializer(), combiner="sum", name="words")
>>> embedding = TPUEmbeddingV0({"title": FeatureConfig(words)}, optimizer=None)
>>> embedding({"title": tf.ragged.constant([[3, 4], [3]])})["title"].numpy().tolist()
[[2.0], [1.0]]
"""

import math
import warnings
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.structure import (
    Ids,
    check_structure,
    named_features,
    named_values,
)
from tpu_estimator_embedding.mid_level.input import output_shapes
from tpu_estimator_embedding.mid_level.serving.plain_tables import PlainTables
from tpu_estimator_embedding.mid_level.serving.serving_lookup import check_input
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.types import Structure, Tensor


class TPUEmbeddingV0(PlainTables):
    """Embeddings for a chip without an embedding engine: dense lookups of small tables.

    The class has no `enqueue` or `apply_gradients`. Gradients of a loss flow into
    `embedding_tables`, and a Keras optimizer that is given these variables updates them; under a
    strategy, once with the sum over all replicas. A Keras model does not list them. Every replica
    holds complete tables. TensorFlow's class must be created under a TPUStrategy; this one works
    under any strategy.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: the optimizer whose slots to create, for example with its
            `slot_variable_creation_fn`; None means no slots.

    Raises:
        ValueError: if a config or optimizer is of the wrong class, or two tables have the same
            name.

    Source: documentation of `tf.tpu.experimental.embedding.TPUEmbeddingV0`.
    """

    @not_converted
    def embedding_lookup(self, features: Structure, weights: Structure = None) -> Structure:
        """Looks up features; gradients flow into the tables.

        Sparse and ragged ids are padded with id 0 of weight 0, which does not affect results. As
        in TensorFlow, the padding of a ragged sequence has weight 1, so these positions hold row
        0; a warning says so.

        Args:
            features: Tensors, SparseTensors or RaggedTensors of ids, in the structure of
                feature_config. A Tensor has one id per element.
            weights: None, or floats in the structure of the features, of the same tensor types;
                a leaf may be None for weights of 1. Tensors and sequences cannot have weights.

        Returns:
            float32 activations in the structure of feature_config. For a Tensor, its shape
            followed by dim; otherwise `[batch, dim]`, `[batch, max_sequence_length, dim]`, or,
            for a RaggedTensor, output_shape followed by dim.

        Raises:
            ValueError: if the structure or the type of an input differs, weights do not match
                the ids, or output_shape is not a multiple of the batch.
        """
        check_structure("features", self._own_config, features)
        configs, tables = named_features(self._own_config), self._own_tables()
        given = [None] * len(configs)
        if weights is not None:
            tf.nest.assert_same_structure(features, weights)
            given = tf.nest.flatten(weights)
        return tf.nest.pack_sequence_as(self._own_config, [
            _lookup(path, configs[path], tables[configs[path].table], value, of_value)
            for (path, value), of_value in zip(named_values(features), given, strict=True)])

    __call__ = embedding_lookup


def _lookup(path: str, config: FeatureConfig, table: tf.Variable, value: Ids,
            weights: Ids | None) -> Tensor:
    check_input(path, config, value, weights)
    if isinstance(value, tf.Tensor):
        return tf.nn.embedding_lookup(table, value)
    stated = output_shapes.stated(path, config)
    if isinstance(value, tf.SparseTensor):
        length = 0 if stated else config.max_sequence_length
        ids, weights = _dense_of_sparse(value, weights, length)
        return _activations(table, ids, weights, config.table.combiner, is_sequence=bool(length))
    length = (_rows_per_sample(path, value, stated.dims) if stated
              else config.max_sequence_length)
    ids, weights = _dense_of_ragged(path, value, weights, length)
    rows = _activations(table, ids, weights, config.table.combiner, is_sequence=bool(length))
    return tf.reshape(rows, [*stated.dims, config.table.dim]) if stated else rows


def _activations(table: tf.Variable, ids: Tensor, weights: Tensor, combiner: str, *,
                 is_sequence: bool) -> Tensor:
    """Returns the weighted rows of ids `[..., n]`, combined over n unless they are a sequence."""
    rows = tf.nn.embedding_lookup(table, ids) * weights[..., tf.newaxis]
    if is_sequence:
        return rows
    total = tf.reduce_sum(rows, -2)
    if combiner == "sum":
        return total
    scale = (tf.reduce_sum(weights, -1) if combiner == "mean"
             else tf.sqrt(tf.reduce_sum(tf.square(weights), -1)))
    return tf.math.divide_no_nan(total, scale[..., tf.newaxis])


def _dense_of_sparse(ids: tf.SparseTensor, weights: tf.SparseTensor | None,
                     length: int) -> tuple[Tensor, Tensor]:
    if weights is None:
        weights = ids.with_values(tf.ones_like(ids.values, tf.float32))
    if not length:
        return tf.sparse.to_dense(ids), tf.sparse.to_dense(weights)
    shape = tf.stack([ids.dense_shape[0], length])
    dense = []
    for sparse in (ids, weights):
        cut = tf.sparse.slice(sparse, [0, 0], shape)
        filled = tf.sparse.to_dense(tf.SparseTensor(cut.indices, cut.values, shape))
        dense.append(tf.ensure_shape(filled, [ids.shape[0], length]))
    return dense[0], dense[1]


def _dense_of_ragged(path: str, ids: tf.RaggedTensor, weights: tf.RaggedTensor | None,
                     length: int) -> tuple[Tensor, Tensor]:
    checks.check_with_sentence(
        ids.shape.rank == 2,
        f"Only rank 2 ragged tensor is supported, but got rank {ids.shape.rank}",
        f"for feature {path!r}.")
    if length:
        warnings.warn(f"Positions beyond the end of feature {path!r} hold row 0 of its table, as "
                      "on a TPU. Pass a SparseTensor to get zeros.", stacklevel=5)
        dense = ids.to_tensor(shape=[None, length])
        return dense, tf.ones_like(dense, tf.float32)
    if weights is None:
        weights = tf.ones_like(ids, tf.float32)
    return ids.to_tensor(), weights.to_tensor()


def _rows_per_sample(path: str, value: tf.RaggedTensor, dims: Any) -> int:
    """Returns the sequence length according to output_shape; 0 if samples are combined."""
    num_rows, batch_size = math.prod(dims), value.shape[0]
    fits = bool(batch_size) and num_rows % batch_size == 0
    checks.check_with_sentence(
        fits, "Output shape set in the FeatureConfig should be the factor of the input data batch "
        f"size. But instead got output shape {dims}, input data batch size {batch_size}",
        f"for feature {path!r}.")
    return 0 if num_rows == batch_size else num_rows // batch_size
