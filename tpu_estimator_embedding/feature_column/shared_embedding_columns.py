# SPDX-License-Identifier: Apache-2.0
"""The embedding columns of features that share one table."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.feature_column import column_checks
from tpu_estimator_embedding.types import FeatureColumn, Initializer, Tensor


def shared_embedding_columns(
        categorical_columns: Sequence[FeatureColumn], dimension: int, combiner: str | None = "mean",
        initializer: Initializer | None = None,
        shared_embedding_collection_name: str | None = None,
        max_sequence_lengths: Sequence[int] | None = None,
        learning_rate_fn: Callable[[Tensor], Tensor] | None = None,
        embedding_lookup_device: str | None = None,
        tensor_core_shape: Sequence[int | None] | None = None,
        use_safe_embedding_lookup: bool = True) -> list[FeatureColumn]:
    """Creates columns that share one table, for `EmbeddingConfigSpec(feature_columns=...)`.

    Args:
        categorical_columns: the ids of each feature, all with the same number of buckets.
        shared_embedding_collection_name: name of the table; by default the sorted names
            of the columns followed by `_shared_embedding`.
        max_sequence_lengths: for each column, its number of positions if it is a sequence, else
            0; None means 0 for all.

    The other arguments are those of `embedding_column`.

    Returns:
        The columns that `tf.compat.v1.tpu.experimental.shared_embedding_columns` returns,
        one for each of categorical_columns.

    Raises:
        ValueError: if a value is outside its range, or the columns cannot share a table.
        TypeError: if categorical_columns is no list, or a column is not categorical.

    >>> title, body = (tf.feature_column.categorical_column_with_identity(name, 1000)
    ...                for name in ("title", "body"))
    >>> [column.get_embedding_var_name() for column in shared_embedding_columns([title, body], 16)]
    ['body_title_shared_embedding', 'body_title_shared_embedding']
    """
    checks.check_type(Iterable, "categorical_columns", "a list of categorical columns",
                      categorical_columns)
    columns = list(categorical_columns)
    _check_share_a_table(columns)
    column_checks.check_table(dimension, combiner, initializer, learning_rate_fn)
    column_checks.check_device(embedding_lookup_device, tensor_core_shape, columns)
    lengths = list(max_sequence_lengths or [0] * len(columns))
    checks.check(len(lengths) == len(columns), "max_sequence_lengths",
                 f"have one entry for each of the {len(columns)} categorical_columns", lengths,
                 sentence="max_sequence_lengths and categorical_columns must be of the same "
                 "length.")
    for index, (column, length) in enumerate(zip(columns, lengths, strict=True)):
        column_checks.check_max_sequence_length(f"max_sequence_lengths[{index}]", length, column)
    return tf.compat.v1.tpu.experimental.shared_embedding_columns(
        columns, dimension, combiner, initializer, shared_embedding_collection_name, lengths,
        learning_rate_fn, embedding_lookup_device, tensor_core_shape, use_safe_embedding_lookup)


def _check_share_a_table(columns: Sequence[Any]) -> None:
    checks.check(bool(columns), "categorical_columns", "have at least one column", columns)
    for index, column in enumerate(columns):
        column_checks.check_categorical_column(f"categorical_columns[{index}]", column,
                                               " shared_embedding_columns")
    buckets = {column.name: column.num_buckets for column in columns}
    checks.check(len(set(buckets.values())) == 1, "categorical_columns",
                 "have equal numbers of buckets, because they share a table", buckets, sentence=
                 "To use shared_embedding_column, all categorical_columns must have the same "
                 "number of buckets.")
