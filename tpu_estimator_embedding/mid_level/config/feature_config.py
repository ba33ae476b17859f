# SPDX-License-Identifier: Apache-2.0
"""A feature of the TF2 API."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig, is_table_config


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """The table that a feature looks up, and the shape of its activations.

    Attributes:
        table: a TableConfig.
        max_sequence_length: L > 0 makes it a sequence feature with activations
            `[batch, L, dim]`, truncated or padded with zeros; 0 combines the ids of a sample
            into `[batch, dim]`. Ignored if output_shape is set.
        validate_weights_and_indices: whether a lookup for serving drops negative ids and,
            unless the combiner is "sum", non-positive weights, and returns zeros for samples
            without ids.
        output_shape: shape of the activations without the dimension of the table. None infers
            it from the input and combines ids along its last dimension.
        name: a label. Messages identify a feature by its path in the structure instead.

    Raises:
        ValueError: if a value is of the wrong type or outside its range.

    >>> FeatureConfig(TableConfig(1000, 16), max_sequence_length=20).output_shape
    TensorShape(None)
    """

    table: TableConfig
    max_sequence_length: int = 0
    validate_weights_and_indices: bool = True
    output_shape: tf.TensorShape | Sequence[int | None] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        checks.check(is_table_config(self.table), "table", "a TableConfig", self.table,
                     other_api.tf2_import(self.table), sentence=
                     f"Argument `table` has invalid type {type(self.table)}.")
        length = self.max_sequence_length
        checks.check_with_sentence(
            isinstance(length, int) and length >= 0, "Argument `max_sequence_length` must be an "
            f"int and must be >= 0. Received: {length}")
        checks.check_with_sentence(
            isinstance(self.validate_weights_and_indices, bool),
            "Argument `validate_weights_and_indices` must be a boolean. Received: "
            f"{self.validate_weights_and_indices!r}.",
            "Releases up to 2.4 had `name` as this argument: pass `name` by keyword.")
        self.output_shape = tf.TensorShape(self.output_shape)


def is_feature_config(value: object) -> bool:
    """Whether `value` is a FeatureConfig of the TF2 API, from this package or TensorFlow."""
    return hasattr(value, "table") and any(
        base.__name__ == FeatureConfig.__name__ for base in type(value).__mro__)
