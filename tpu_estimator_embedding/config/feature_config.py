# SPDX-License-Identifier: Apache-2.0
"""A feature of the v1 API."""

import collections
from typing import Self

from tpu_estimator_embedding import checks, other_api


class FeatureConfig(collections.namedtuple(
        "FeatureConfig", ["table_id", "max_sequence_length", "weight_key"])):
    """The table that a feature looks up, and the form of its activations.

    Attributes:
        table_id: key of the table in `table_to_config_dict`.
        max_sequence_length: L > 0 makes it a sequence feature with activations
            `[batch, L, dimension]`, truncated or padded with zeros; 0 combines the ids of a
            sample into `[batch, dimension]`.
        weight_key: key of the weights of the ids among the features, or None.

    Raises:
        ValueError: if max_sequence_length is not an int of at least 0, or table_id is a table.

    >>> FeatureConfig("words", max_sequence_length=20)
    FeatureConfig(table_id='words', max_sequence_length=20, weight_key=None)
    """

    def __new__(cls, table_id: str, max_sequence_length: int = 0,
                weight_key: str | None = None) -> Self:
        checks.check(not other_api.is_of_tf2_api(table_id), "table_id",
                     "a key of `table_to_config_dict`", table_id,
                     "A FeatureConfig that holds its table belongs to the TF2 API: `from "
                     f"{other_api.TF2_API} import FeatureConfig`.")
        checks.check(isinstance(max_sequence_length, int) and max_sequence_length >= 0,
                     "max_sequence_length", "an int of at least 0", max_sequence_length,
                     sentence="max_sequence_length must be zero or a positive int.")
        return super().__new__(cls, table_id, max_sequence_length, weight_key)


def is_feature_config(value: object) -> bool:
    """Whether `value` is a FeatureConfig, of this package or TensorFlow 2.15's."""
    return getattr(value, "_fields", None) == FeatureConfig._fields
