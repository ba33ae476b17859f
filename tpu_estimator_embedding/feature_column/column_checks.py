# SPDX-License-Identifier: Apache-2.0
"""Checks common to single and shared embedding columns."""

import numbers
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeGuard

from tensorflow.python.feature_column import feature_column as fc_v1
from tensorflow.python.feature_column import feature_column_v2 as fc_v2
from tensorflow.python.tpu import feature_column as tpu_fc_v1
from tensorflow.python.tpu import feature_column_v2 as tpu_fc_v2

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import COMBINERS, FeatureColumn, Initializer, Tensor

_TPU_COLUMNS = (tpu_fc_v1._TPUBaseEmbeddingColumn,)
_PLAIN_COLUMNS = (
    fc_v2.EmbeddingColumn, fc_v2.SharedEmbeddingColumn, fc_v2.NumericColumn,
    fc_v1._EmbeddingColumn, fc_v1._SharedEmbeddingColumn, fc_v1._NumericColumn)


class EmbeddingColumn(FeatureColumn, Protocol):
    """What this package uses of a TPU embedding column, of TensorFlow's classes."""

    _tensor_core_shape: Sequence[Any]  # of those for a TensorCore

    @property
    def categorical_column(self) -> FeatureColumn: ...

    def get_combiner(self) -> str: ...

    def get_embedding_table_size(self) -> tuple[int, int]: ...

    def get_embedding_var_name(self) -> str: ...

    def get_feature_key_name(self) -> str: ...

    def get_initializer(self) -> Initializer | None: ...

    def get_learning_rate_fn(self) -> Callable[[Tensor], Tensor] | None: ...

    def get_max_sequence_length(self) -> int: ...

    def get_weight_key_name(self) -> str | None: ...


def is_tpu_column(column: object) -> TypeGuard[EmbeddingColumn]:
    """Whether the column is a TPU embedding column: single or shared, for either kind of core.

    >>> import tensorflow as tf
    >>> words = tf.feature_column.categorical_column_with_identity("words", 10)
    >>> is_tpu_column(tf.compat.v1.tpu.experimental.embedding_column(words, 4))
    True
    >>> is_tpu_column(tf.feature_column.embedding_column(words, 4))
    False
    """
    return isinstance(column, _TPU_COLUMNS)


def is_tensor_core_column(column: object) -> TypeGuard[EmbeddingColumn]:
    """Whether the model's own optimizer trains the column on a TensorCore.

    Such a column is made with `embedding_lookup_device="tpu_tensor_core"`.
    """
    device = getattr(column, "_embedding_lookup_device", None)
    return is_tpu_column(column) and device == tpu_fc_v2.EmbeddingDevice.TPU_TENSOR_CORE


def is_plain_column(column: object) -> bool:
    """Whether the column is an ordinary embedding or a number, which needs no TPU."""
    return isinstance(column, _PLAIN_COLUMNS) and not is_tpu_column(column)


_ON_TENSOR_CORE = "embedding_lookup_device is 'tpu_tensor_core'"
_COPY = "Give the second column a copy of the feature under another key."

LOOKUP_DEVICES = ("cpu", "tpu_tensor_core", "tpu_embedding_core")


def check_table(dimension: object, combiner: object, initializer: Initializer | None,
                learning_rate_fn: Callable[[Tensor], Tensor] | None) -> None:
    """Raises ValueError unless the arguments describe a valid table."""
    is_dimension = (not isinstance(dimension, bool) and isinstance(dimension, numbers.Integral)
                    and int(dimension) >= 1)
    checks.check(is_dimension, "dimension", "an int of at least 1", dimension,
                 sentence=f"Invalid dimension {dimension}.")
    checks.check_one_of("combiner", COMBINERS, combiner)
    checks.check_callable_or_none("initializer", initializer,
                                  sentence="initializer must be callable if specified.")
    checks.check_callable_or_none("learning_rate_fn", learning_rate_fn, takes=["global_step"])


def check_categorical_column(argument: str, column: object, function: str) -> None:
    """Raises TypeError unless `column`, an argument of `function`, is a categorical column."""
    checks.check_type(
        fc_v2.CategoricalColumn, argument, "a categorical column", column,
        "Make it with tf.feature_column.categorical_column_with_identity, for instance.",
        sentence=f"categorical_column for tpu {function} must be type CategoricalColumn.")


def check_max_sequence_length(argument: str, length: Any, column: FeatureColumn) -> None:
    """Raises ValueError unless the length is positive for a sequence column, and 0 otherwise."""
    is_int = isinstance(length, int) and not isinstance(length, bool)
    if is_sequence(column):
        checks.check(is_int and length >= 1, argument,
                     f"an int of at least 1 for the sequence column {column.name!r}", length,
                     sentence="max_sequence_length must be greater than 0 for sequence columns.")
    else:
        checks.check(is_int and length == 0, argument,
                     f"0 for the column {column.name!r}, which is not a sequence column", length,
                     "Sequence columns are made with "
                     "tf.feature_column.sequence_categorical_column_with_identity.", sentence=
                     f"Non zero max_seq_length={length} specified for non sequence column "
                     f"{column.name}.")


def check_device(device: object, tensor_core_shape: Sequence[int | None] | None,
                 columns: Sequence[FeatureColumn]) -> None:
    """Raises ValueError unless the columns can be looked up on the device."""
    checks.check_one_of("embedding_lookup_device", (None, *LOOKUP_DEVICES), device,
                        sentence=f"If set, embedding_lookup_device must be in {LOOKUP_DEVICES}.")
    checks.check(not tensor_core_shape or (isinstance(tensor_core_shape, Sequence)
                                           and len(tensor_core_shape) == 2), "tensor_core_shape",
                 "[batch, ids] or None", tensor_core_shape,
                 sentence="tensor_core_shape must be size 2.")
    if device != "tpu_tensor_core":
        return
    checks.check(bool(tensor_core_shape), "tensor_core_shape",
                 "given if embedding_lookup_device is 'tpu_tensor_core'", tensor_core_shape,
                 "Pass [None, n] for up to n ids in a sample.", sentence="Using "
                 "embedding_lookup_device=tpu_tensor_core requires tensor_core_shape to be set.")
    sequences = [column.name for column in columns if is_sequence(column)]
    checks.check(not sequences, "embedding_lookup_device",
                 f"other than 'tpu_tensor_core' for the sequence columns {sequences}", device,
                 sentence="embedding_lookup_device=tpu_tensor_core currently does not support "
                 "sequence columns.")


def check_tensor_core_columns(columns: Sequence[EmbeddingColumn],
                              engine_columns: Sequence[FeatureColumn]) -> None:
    """Raises ValueError unless columns for a TensorCore can be looked up as they say.

    TensorFlow's columns ignore weights and learning rates; a feature has one set of padded ids.

    Args:
        columns: columns of a spec for which `is_tensor_core_column` holds.
        engine_columns: its other columns.
    """
    weights = {column.get_feature_key_name(): key for column in columns
               if (key := column.get_weight_key_name()) is not None}
    checks.check(not weights, "feature_columns", f"have no weights where {_ON_TENSOR_CORE}, which "
                 "ignores them", weights, "Use embedding_lookup_device='tpu_embedding_core'.")
    rates = [column.get_feature_key_name() for column in columns
             if column.get_learning_rate_fn() is not None]
    checks.check(not rates, "feature_columns", f"have no learning_rate_fn where {_ON_TENSOR_CORE}, "
                 "because the model's optimizer trains them", rates)
    combiners = {column.get_feature_key_name(): column.get_combiner() for column in columns}
    checks.check(set(combiners.values()) <= {"mean", "sum"}, "feature_columns",
                 f"have combiner 'mean' or 'sum' where {_ON_TENSOR_CORE}", combiners,
                 "Use embedding_lookup_device='tpu_embedding_core' for others.", sentence=
                 "Dense TPU Embedding does not support combiner other than sum and mean.")
    widths: dict[str, set[int]] = {}
    for column in columns:
        width = column._tensor_core_shape[1]
        checks.check_positive_int("tensor_core_shape[1]", width)
        widths.setdefault(column.get_feature_key_name(), set()).add(width)
    several = {key: sorted(found) for key, found in widths.items() if len(found) > 1}
    checks.check(not several, "feature_columns", "have one number of ids in tensor_core_shape for "
                 "all columns of a feature", several, _COPY)
    keys = {column.get_feature_key_name() for column in engine_columns if is_tpu_column(column)}
    checks.check(not widths.keys() & keys, "feature_columns", f"have no other column of a feature "
                 f"where {_ON_TENSOR_CORE}", sorted(widths.keys() & keys), _COPY)


def is_sequence(column: object) -> bool:
    """Whether a categorical column keeps the positions of its ids, as a sequence column does.

    >>> import tensorflow as tf
    >>> is_sequence(tf.feature_column.sequence_categorical_column_with_identity("words", 10))
    True
    """
    return isinstance(column, fc_v2.SequenceCategoricalColumn)
