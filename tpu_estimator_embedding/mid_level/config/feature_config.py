# SPDX-License-Identifier: Apache-2.0
"""A feature of the v2 vocabulary: whose ids look up which table."""

import dataclasses
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks, other_api
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig, is_table_config


@dataclasses.dataclass(eq=False)
class FeatureConfig:
    """The table that a feature looks up, and the shape of its activations.

    Attributes:
        table: a TableConfig.
        max_sequence_length: L > 0 makes it a sequence feature with activations
            `[batch, L, dim]`, cut or filled with zeros; 0 combines the ids of a sample
            into `[batch, dim]`. Ignored if there is an output_shape.
        validate_weights_and_indices: whether a lookup for serving drops negative ids and,
            unless the combiner is "sum", weights that are not positive, and gives zeros
            for samples without ids.
        output_shape: the shape of the activations, without dim; None takes it from the
            input, whose ids of the last dimension are combined.
        name: a label; messages name a feature by its path in the structure.

    Raises:
        ValueError: if a value is of the wrong type or outside its range.

    >>> FeatureConfig(TableConfig(1000, 16), max_sequence_length=20).output_shape
    TensorShape(None)
    """

    table: TableConfig
    max_sequence_length: int = 0
    validate_weights_and_indices: bool = True
    output_shape: Any = None
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
            "Releases up to 2.4 had `name` in its place: pass it by keyword.")
        self.output_shape = tf.TensorShape(self.output_shape)


def is_feature_config(value: Any) -> bool:
    """Whether `value` is a FeatureConfig of this vocabulary, of this package or TensorFlow's."""
    return hasattr(value, "table") and any(
        base.__name__ == FeatureConfig.__name__ for base in type(value).__mro__)
