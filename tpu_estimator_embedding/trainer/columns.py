# SPDX-License-Identifier: Apache-2.0
"""The inputs of the forward pass: ids and weights of a batch, and activations of columns."""

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding.ops.sparse_ids import sequence_lengths
from tpu_estimator_embedding.types import Tensor

if TYPE_CHECKING:
    from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn
    from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig

FeatureTensor: TypeAlias = Tensor | tf.SparseTensor | tf.RaggedTensor
Features: TypeAlias = Mapping[str, FeatureTensor]
Weights: TypeAlias = dict[str, FeatureTensor | None]  # None: a feature without weights

_WITHOUT_VARIABLES = ("NumericColumn", "BucketizedColumn", "IndicatorColumn")
_LENGTH = "_seq_length_"  # after the name of a feature, as TPUEstimator calls it


def activations_of(features: Features, columns: Any) -> Tensor:
    """Concatenates the activations of embedding columns, as `input_layer` did.

    Args:
        features: what the forward pass receives: feature -> activations `[batch, dim]`.
        columns: embedding columns, and ones without variables (numeric, bucketized, indicator), in
            any order.

    Returns:
        `[batch, sum of dims]`, in the order of the columns' names.

    Raises:
        KeyError: `features` lacks the feature of a column.
        TypeError: a column has a variable.
    """
    columns = [columns] if hasattr(columns, "name") else list(columns)  # a column is a tuple, too
    columns.sort(key=lambda column: column.name)
    return tf.concat([_dense_values(features, column) for column in columns], axis=1)


def _dense_values(features: Features, column: Any) -> Tensor:
    if hasattr(column, "get_feature_key_name"):
        return features[column.get_feature_key_name()]
    kind = type(column).__name__
    if kind not in _WITHOUT_VARIABLES:
        raise TypeError("`columns` must be embedding columns of the TPUEstimator, or one of "
                        f"{', '.join(_WITHOUT_VARIABLES)}, got the {kind} {column.name!r}. Make "
                        "its variable in the forward function, with tf.compat.v1.get_variable.")
    return tf.compat.v1.feature_column.input_layer(dict(features), [column])


def sequences_of(features: Features, columns: Sequence["EmbeddingColumn"]) -> tuple[Tensor, Tensor]:
    """Returns the activations of a sequence column `[batch, length, dim]`, and lengths `[batch]`.

    Raises:
        ValueError: there is more than one column.
    """
    if len(columns) != 1:
        raise ValueError(f"`columns` must be one sequence column, got {len(columns)}.")
    key = columns[0].get_feature_key_name()
    return features[key], features[key + _LENGTH]


def ids_and_weights(
        features: Features, feature_config: Mapping[str, "FeatureConfig"],
        embedding_config: ModuleType) -> tuple[dict[str, FeatureTensor], Weights | None]:
    """Returns feature -> ids, and feature -> weights, or None if no feature has weights."""
    ids = {name: _without_padding(features[name], name in embedding_config.ONE_ID_FEATURES)
           for name in feature_config if name in features}
    keys = embedding_config.WEIGHT_KEYS
    return ids, {name: features[keys[name]] if name in keys else None
                 for name in ids} if keys else None


def features_of_model(features: Features, ids: Features, activations: Mapping[str, Tensor],
                      feature_config: Mapping[str, "FeatureConfig"],
                      embedding_config: ModuleType) -> dict[str, FeatureTensor]:
    """Returns what the forward pass receives, in the order in which a model_fn received it.

    First the features without a table, except for weights, then lengths of sequences, then
    activations by table and feature: a model may concatenate all values.
    """
    taken = {*ids, *(embedding_config.WEIGHT_KEYS[name] for name in ids
                     if name in embedding_config.WEIGHT_KEYS)}
    order = sorted(ids, key=lambda name: (feature_config[name].table.name, name))
    return {**{name: value for name, value in features.items() if name not in taken},
            **_sequence_lengths({name: ids[name] for name in order}, feature_config),
            **{name: activations[name] for name in order}}


def _sequence_lengths(ids: Features,
                      feature_config: Mapping[str, "FeatureConfig"]) -> dict[str, Tensor]:
    """Returns the lengths of sequences, at most max_sequence_length."""
    lengths = {}
    for name, value in ids.items():
        limit = getattr(feature_config[name], "max_sequence_length", 0)
        if limit:
            lengths[name + _LENGTH] = sequence_lengths(value, limit)
    return lengths


def table_multiplier(table: str, step: Tensor, embedding_config: ModuleType) -> Tensor | None:
    """Returns the gradient multiplier of a table, a float32 scalar; None means 1."""
    multiplier = getattr(embedding_config, "TABLE_MULTIPLIERS", {}).get(
        table, getattr(embedding_config, "GRADIENT_MULTIPLIER", None))
    return None if multiplier is None else tf.cast(multiplier(step), tf.float32)


def _without_padding(ids: FeatureTensor, has_one_id: bool) -> FeatureTensor:
    """Drops zeros of dense ids that are combined, which TPUEstimator treated as padding."""
    if not isinstance(ids, tf.Tensor) or has_one_id:
        return ids
    return tf.sparse.from_dense(ids if ids.shape.rank > 1 else ids[:, tf.newaxis])
