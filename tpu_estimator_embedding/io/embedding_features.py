# SPDX-License-Identifier: Apache-2.0
"""How to parse the embedding features of a configuration."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.feature_column.column_kinds import is_tpu_column
from tpu_estimator_embedding.mid_level.config.structure import named_features
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

Specifications = dict[str, Any]  # key -> what tf.io.parse_example takes

_KINDS = ("a list of feature columns, an EmbeddingConfigSpec, a feature_config of the TF2 classes "
          "or an EmbeddingPlan")


def embedding_features(embeddings: Any) -> Specifications:
    """Returns how to parse the ids and weights that a configuration names.

    Args:
        embeddings: what `parse_examples` takes.

    Raises:
        TypeError: if it is of another kind.

    >>> words = tf.feature_column.categorical_column_with_identity("words", 1000)
    >>> embedding_features([tf.compat.v1.tpu.experimental.embedding_column(words, 16)])["words"]
    RaggedFeature(dtype=tf.int64, value_key=None, partitions=(), row_splits_dtype=tf.int64,
                  validate=False)
    """
    if isinstance(embeddings, EmbeddingPlan):
        return _of_keys((feature.name, feature.weight_key) for feature in embeddings.features)
    if hasattr(embeddings, "feature_to_config_dict"):
        return _of_spec(embeddings)
    if isinstance(embeddings, list | tuple) and all(map(_is_column, embeddings)):
        return _of_columns(embeddings)
    if _is_column(embeddings):
        raise TypeError(checks.complaint("embeddings", _KINDS, embeddings, "Give a list of it."))
    checks.check_type((dict, list, tuple, *_feature_config_types(embeddings)), "embeddings", _KINDS,
                      embeddings)
    return _of_keys((path, None) for path in named_features(embeddings))


def _of_spec(spec: Any) -> Specifications:
    if spec.feature_to_config_dict:
        return _of_keys((key, config.weight_key)
                        for key, config in spec.feature_to_config_dict.items())
    return _of_columns([*spec.feature_columns,
                        *(getattr(spec, "tensor_core_feature_columns", None) or ())])


def _of_columns(columns: Iterable[Any]) -> Specifications:
    """Takes keys and types from the columns: vocabularies may be of strings."""
    specifications: Specifications = {}
    for column in columns:
        given = column.parse_example_spec
        specifications |= {key: _ragged(feature.dtype) for key, feature in given.items()
                           } if is_tpu_column(column) else given
    return specifications


def _of_keys(keys: Iterable[tuple[str, str | None]]) -> Specifications:
    specifications: Specifications = {}
    for key, weight_key in keys:
        specifications[key] = _ragged(tf.int64)
        if weight_key is not None:
            specifications[weight_key] = _ragged(tf.float32)
    return specifications


def _ragged(dtype: tf.DType) -> tf.io.RaggedFeature:
    # Row splits of 64 bits, as tf.ragged makes them: TensorFlow's ops take no mixture.
    return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)


def _is_column(value: Any) -> bool:
    return hasattr(value, "parse_example_spec")


def _feature_config_types(value: Any) -> tuple[type, ...]:
    """The type of a configuration that is one FeatureConfig."""
    return (type(value),) if hasattr(value, "table") else ()
