# SPDX-License-Identifier: Apache-2.0
"""The feature columns of `tf.contrib.layers`, made of those of `tf.feature_column`.

Ids of a sparse column are looked up as those of `tf.feature_column`, so those below 0 or beyond the
last one are refused or dropped there. A combiner belongs to the embedding, or to the linear model.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.types import FeatureColumn, Initializer, Tensor

v1 = tf.compat.v1
_columns = v1.feature_column


def real_valued_column(column_name: str, dimension: int = 1,
                       default_value: float | Sequence[float] | None = None,
                       dtype: tf.DType = tf.float32,
                       normalizer: Callable[[Tensor], Tensor] | None = None) -> FeatureColumn:
    """Returns a numeric column of shape `[dimension]`."""
    if dimension is None:
        raise ValueError("`dimension` must be a number, got None. Use tf.io.VarLenFeature for "
                         "values of any number.")
    return _columns.numeric_column(column_name, (dimension,), default_value, dtype, normalizer)


def sparse_column_with_hash_bucket(column_name: str, hash_bucket_size: int, combiner: str = "sum",
                                   dtype: tf.DType = tf.string) -> FeatureColumn:
    """Returns a categorical column of hashed values."""
    _check(combiner)
    return _columns.categorical_column_with_hash_bucket(column_name, hash_bucket_size, dtype)


def sparse_column_with_integerized_feature(column_name: str, bucket_size: int,
                                           combiner: str = "sum",
                                           dtype: tf.DType = tf.int64) -> FeatureColumn:
    """Returns a categorical column of ids; `dtype` is that of the input."""
    _check(combiner)
    if not dtype.is_integer:
        raise ValueError(f"dtype must be an integer. Got {dtype.name}.")
    return _columns.categorical_column_with_identity(column_name, bucket_size)


def sparse_column_with_keys(column_name: str, keys: Sequence[str] | Sequence[int],
                            default_value: int = -1, combiner: str = "sum",
                            dtype: tf.DType = tf.string) -> FeatureColumn:
    """Returns a categorical column with a vocabulary."""
    _check(combiner)
    return _columns.categorical_column_with_vocabulary_list(column_name, keys, dtype, default_value)


def sparse_column_with_vocabulary_file(column_name: str, vocabulary_file: str,
                                       num_oov_buckets: int = 0, vocab_size: int | None = None,
                                       default_value: int = -1, combiner: str = "sum",
                                       dtype: tf.DType = tf.string) -> FeatureColumn:
    """Returns a categorical column with a vocabulary that is in a file."""
    _check(combiner)
    return _columns.categorical_column_with_vocabulary_file(
        column_name, vocabulary_file, vocab_size, num_oov_buckets,
        None if num_oov_buckets and default_value == -1 else default_value, dtype)


def weighted_sparse_column(sparse_id_column: FeatureColumn, weight_column_name: str,
                           dtype: tf.DType = tf.float32) -> FeatureColumn:
    """Returns a categorical column whose ids have weights."""
    return _columns.weighted_categorical_column(sparse_id_column, weight_column_name, dtype)


def one_hot_column(sparse_id_column: FeatureColumn) -> FeatureColumn:
    """Returns the number of occurrences of each id."""
    return _columns.indicator_column(sparse_id_column)


def embedding_column(sparse_id_column: FeatureColumn, dimension: int, combiner: str = "mean",
                     initializer: Initializer | None = None, ckpt_to_load_from: str | None = None,
                     tensor_name_in_ckpt: str | None = None, max_norm: float | None = None,
                     trainable: bool = True) -> FeatureColumn:
    """Returns an embedding column; by default its deviation is `1 / sqrt(number of ids)`."""
    return _columns.embedding_column(
        sparse_id_column, dimension, combiner, initializer or _initializer(sparse_id_column),
        ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable)


def shared_embedding_columns(sparse_id_columns: Sequence[FeatureColumn], dimension: int,
                             combiner: str = "mean", shared_embedding_name: str | None = None,
                             initializer: Initializer | None = None,
                             ckpt_to_load_from: str | None = None,
                             tensor_name_in_ckpt: str | None = None,
                             max_norm: float | None = None,
                             trainable: bool = True) -> list[FeatureColumn]:
    """Returns embedding columns that share a variable."""
    return list(_columns.shared_embedding_columns(
        sparse_id_columns, dimension, combiner, initializer or _initializer(*sparse_id_columns),
        shared_embedding_name, ckpt_to_load_from, tensor_name_in_ckpt, max_norm, trainable))


def input_from_feature_columns(columns_to_tensors: Mapping[str, object],
                               feature_columns: Iterable[FeatureColumn],
                               weight_collections: Iterable[str] | None = None,
                               trainable: bool = True, scope: str | None = None) -> Tensor:
    """Concatenates dense columns; variables are those of `tf.feature_column.input_layer`."""
    with v1.variable_scope(scope, "input_from_feature_columns", list(columns_to_tensors.values())):
        return _columns.input_layer(columns_to_tensors, feature_columns, weight_collections,
                                    trainable)


def _initializer(*columns: Any) -> Initializer:
    size = max(column.num_buckets for column in columns)
    return v1.truncated_normal_initializer(0.0, size ** -0.5)


def _check(combiner: str) -> None:
    if combiner != "sum":
        raise ValueError(f"`combiner` must be 'sum', got {combiner!r}. Give it to the embedding "
                         "column, or as `sparse_combiner` to tf.feature_column.linear_model.")
