# SPDX-License-Identifier: Apache-2.0
"""The embedding column of a feature with its own table."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.feature_column import column_checks
from tpu_estimator_embedding.types import FeatureColumn, Initializer, Tensor


def embedding_column(categorical_column: FeatureColumn, dimension: int,
                     combiner: str | None = "mean", initializer: Initializer | None = None,
                     max_sequence_length: int = 0,
                     learning_rate_fn: Callable[[Tensor], Tensor] | None = None,
                     embedding_lookup_device: str | None = None,
                     tensor_core_shape: Sequence[int | None] | None = None,
                     use_safe_embedding_lookup: bool = True) -> FeatureColumn:
    """Creates a column for `EmbeddingConfigSpec(feature_columns=...)`.

    Args:
        categorical_column: the ids. With `use_tpu=True` they are looked up unchanged:
            vocabularies, hashes and default values are not applied.
        dimension: width of the activation.
        combiner: "mean", "sum" or "sqrtn" of the ids of a sample; None if every sample
            has exactly one id.
        initializer: called with the shape and dtype of each part of the table; by default
            a normal distribution of deviation 1/√dimension, truncated at two deviations.
        max_sequence_length: number of positions of a sequence column, at least 1; else 0.
        learning_rate_fn: function of the global step for the learning rate of the table.
        embedding_lookup_device: None and "tpu_embedding_core" select the engine;
            "tpu_tensor_core" creates an ordinary variable that the model's optimizer trains;
            "cpu" is for serving only.
        tensor_core_shape: `[batch, ids]` for "tpu_tensor_core"; batch may be None.
        use_safe_embedding_lookup: whether lookups outside the engine drop invalid ids.

    Returns:
        The column that `tf.compat.v1.tpu.experimental.embedding_column` returns.

    Raises:
        ValueError: if a value is outside its range.
        TypeError: if the column is not categorical.

    >>> words = tf.feature_column.categorical_column_with_identity("words", 1000)
    >>> embedding_column(words, 16, combiner="sum").get_embedding_table_size()
    (1000, 16)
    """
    column_checks.check_categorical_column("categorical_column", categorical_column,
                                           "embedding_column")
    column_checks.check_table(dimension, combiner, initializer, learning_rate_fn)
    column_checks.check_device(embedding_lookup_device, tensor_core_shape, [categorical_column])
    column_checks.check_max_sequence_length(
        "max_sequence_length", max_sequence_length, categorical_column)
    return tf.compat.v1.tpu.experimental.embedding_column(
        categorical_column, dimension, combiner, initializer, max_sequence_length,
        learning_rate_fn, embedding_lookup_device, tensor_core_shape, use_safe_embedding_lookup)
