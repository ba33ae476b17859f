# SPDX-License-Identifier: Apache-2.0
"""Converts embedding columns to the tables and features that they describe."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.feature_column import feature_column_v2 as fc_v2

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.config.feature_config import FeatureConfig
from tpu_estimator_embedding.config.table_config import TableConfig
from tpu_estimator_embedding.config.to_plan import warn_once
from tpu_estimator_embedding.feature_column.column_checks import (
    EmbeddingColumn,
    is_tensor_core_column,
    is_tpu_column,
)
from tpu_estimator_embedding.plan.embedding_plan import initializer_object
from tpu_estimator_embedding.types import COLUMN_TABLE_PREFIX


def columns_to_configs(columns: Sequence[EmbeddingColumn]
                       ) -> tuple[dict[str, TableConfig], dict[str, FeatureConfig]]:
    """Returns the tables and features of columns that the engine embeds.

    Args:
        columns: results of `embedding_column` or `shared_embedding_columns`, of this package
            or of `tf.compat.v1.tpu.experimental`, except those for a TensorCore.

    Returns:
        `(table_to_config, feature_to_config)`. The name of a table is `tbl_` followed by the name
        of the column's variable; the name of a feature is its key in the features dictionary.

    Raises:
        TypeError: if a column is of another kind.
        ValueError: if two columns read the same feature, or columns that share a table have
            different settings for it.

    >>> import tensorflow as tf
    >>> words = tf.feature_column.categorical_column_with_identity("words", 1000)
    >>> tables, features = columns_to_configs(
    ...     [tf.compat.v1.tpu.experimental.embedding_column(words, 16)])
    >>> tables["tbl_words"].vocabulary_size, features["words"].table_id
    (1000, 'tbl_words')
    """
    tables: dict[str, TableConfig] = {}
    features: dict[str, FeatureConfig] = {}
    for column in columns:
        _check_kind(column)
        table_name = table_name_of(column)
        feature_name = column.get_feature_key_name()
        checks.check(feature_name not in features, "feature_columns",
                     "have one column for each feature", [feature_name] * 2,
                     "Give the second column a copy of the feature under another key.",
                     sentence=f"Feature column {feature_name} is used with multiple embeddings "
                     "and this is not supported.")
        _warn_of_raw_ids(feature_name, column.categorical_column)
        features[feature_name] = FeatureConfig(
            table_name, column.get_max_sequence_length(), column.get_weight_key_name())
        table = _to_table_config(column)
        _check_agree(table_name, tables.setdefault(table_name, table), table)
    return tables, features


def table_name_of(column: EmbeddingColumn) -> str:
    """Returns the name of a column's table in the plan."""
    return COLUMN_TABLE_PREFIX + column.get_embedding_var_name()


def _check_kind(column: object) -> None:
    if not is_tpu_column(column) or is_tensor_core_column(column):
        raise TypeError(checks.complaint(
            "feature_columns", "columns for the embedding engine", column,
            "Make them with tpu_estimator_embedding.embedding_column or "
            "shared_embedding_columns, and use other columns in the model only.",
            sentence=f"Unsupported feature column {type(column)}."))


def _warn_of_raw_ids(feature: str, column: Any) -> None:
    """Warns of ids that the categorical column changes without a TPU.

    Strings never get here: input_fn has to map them to ids.
    """
    while hasattr(column, "categorical_column"):  # of weights, or of a sequence
        column = column.categorical_column
    if isinstance(column, fc_v2.IdentityCategoricalColumn):
        if column.default_value is None:
            return
        ignored, instead = f"default_value {column.default_value}", "leave it out"
    elif not getattr(column, "dtype", tf.int64).is_integer:
        return
    else:
        ignored = "hash" if hasattr(column, "hash_bucket_size") else "vocabulary"
        instead = "use categorical_column_with_identity"
    warn_once(f"Feature {feature!r} looks up its ids unchanged, as on a TPU: the {ignored} of its "
              "categorical column is not applied, whereas use_tpu=False applies it. Apply it in "
              f"input_fn, or {instead}.")


def _to_table_config(column: EmbeddingColumn) -> TableConfig:
    vocabulary_size, dimension = column.get_embedding_table_size()
    initializer = initializer_object(
        column.get_initializer(), f"initializer of the column of {column.get_feature_key_name()!r}")
    return TableConfig(int(vocabulary_size), int(dimension), initializer,
                       column.get_combiner(), learning_rate_fn=column.get_learning_rate_fn())


def _check_agree(table_name: str, first: TableConfig, second: TableConfig) -> None:
    for field in TableConfig._fields:
        values = [getattr(first, field), getattr(second, field)]
        checks.check(_is_same(*values), f"{field} of table {table_name!r}",
                     "the same in all columns that share it", values)


def _is_same(first: Any, second: Any) -> bool:
    """Whether two values are equal; initializers are equal if their settings are."""
    if type(first) is not type(second) or not hasattr(first, "get_config"):
        return first == second
    settings, others = first.get_config(), second.get_config()
    return settings.keys() == others.keys() and all(
        np.array_equal(settings[key], others[key]) for key in settings)
