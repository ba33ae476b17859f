# SPDX-License-Identifier: Apache-2.0
"""The kinds of TensorFlow's feature columns."""

from typing import Any

from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.tpu import feature_column as tpu_fc_v1
from tensorflow.python.tpu import feature_column_v2 as tpu_fc_v2

_TPU_COLUMNS = (tpu_fc_v1._TPUBaseEmbeddingColumn,)
_PLAIN_COLUMNS = (
    fc_v2.EmbeddingColumn, fc_v2.SharedEmbeddingColumn, fc_v2.NumericColumn,
    fc_v1._EmbeddingColumn, fc_v1._SharedEmbeddingColumn, fc_v1._NumericColumn)


def is_tpu_column(column: Any) -> bool:
    """Whether the column is a TPU embedding column: single or shared, for either kind of core.

    >>> import tensorflow as tf
    >>> words = tf.feature_column.categorical_column_with_identity("words", 10)
    >>> is_tpu_column(tf.compat.v1.tpu.experimental.embedding_column(words, 4))
    True
    >>> is_tpu_column(tf.feature_column.embedding_column(words, 4))
    False
    """
    return isinstance(column, _TPU_COLUMNS)


def is_tensor_core_column(column: Any) -> bool:
    """Whether the model's own optimizer trains the column on a TensorCore.

    Such a column is made with `embedding_lookup_device="tpu_tensor_core"`.
    """
    device = getattr(column, "_embedding_lookup_device", None)
    return is_tpu_column(column) and device == tpu_fc_v2.EmbeddingDevice.TPU_TENSOR_CORE


def is_plain_column(column: Any) -> bool:
    """Whether the column is an ordinary embedding or a number, which needs no TPU."""
    return isinstance(column, _PLAIN_COLUMNS) and not is_tpu_column(column)
