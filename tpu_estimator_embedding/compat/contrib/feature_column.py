# SPDX-License-Identifier: Apache-2.0
"""The function of `tf.contrib.feature_column` that TensorFlow 2 has as a Keras layer."""

from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.feature_column import feature_column as fc_old

from tpu_estimator_embedding.types import FeatureColumn, Tensor

_SCOPE = "sequence_input_layer"


def sequence_input_layer(features: Mapping[str, Tensor | tf.SparseTensor],
                         feature_columns: Iterable[FeatureColumn],
                         weight_collections: Iterable[str] | None = None,
                         trainable: bool = True) -> tuple[Tensor, Tensor]:
    """Concatenates sequence columns along the last axis, as `tf.contrib.feature_column` did.

    Variables of columns that are no tables of the engine are called
    `sequence_input_layer/COLUMN_embedding/embedding_weights`, as there.

    Args:
        features: key -> ids or numbers of a batch.
        feature_columns: sequence columns, of this package or of TensorFlow.
        weight_collections: further collections of the variables.
        trainable: whether the variables are trainable.

    Returns:
        `(activations, lengths)`: `[batch, max_length, dim]` float32, `[batch]` int64.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     column = tf.feature_column.sequence_numeric_column("price")
    ...     prices = tf.sparse.from_dense([[1.0, 2.0], [3.0, 0.0]])
    ...     session.run(sequence_input_layer({"price": prices}, [column])[1]).tolist()
    [2, 1]
    """
    columns: list[Any] = sorted(feature_columns, key=lambda column: column.name)
    shared = [column for column in columns if isinstance(column, fc_old._SharedEmbeddingColumn)]
    others = [column for column in columns if column not in shared]
    with tf.compat.v1.variable_scope(None, _SCOPE) as scope:  # whose name is not used yet
        found = _of_shared(features, shared, weight_collections, trainable)
        name = scope.name.rpartition("/")[2]
    if others:
        layer = tf.keras.experimental.SequenceFeatures(others, trainable, name)
        activations, lengths = layer(features)
        for collection in weight_collections or ():
            for variable in layer.variables:
                tf.compat.v1.add_to_collection(collection, variable)
        if not shared:
            return activations, lengths
        widths = [column.variable_shape.num_elements() for column in others]
        parts = tf.split(activations, widths, axis=-1)
        found |= {column: (part, lengths) for column, part in zip(others, parts, strict=True)}
    return _joined([found[column] for column in columns])


def _of_shared(features: Mapping[str, Tensor | tf.SparseTensor],
               columns: Iterable[Any], collections: Iterable[str] | None,
               trainable: bool) -> dict[FeatureColumn, tuple[Tensor, Tensor]]:
    """Returns activations and lengths of columns that Keras's layer does not take."""
    builder = fc_old._LazyBuilder(dict(features))
    keys = tf.compat.v1.GraphKeys
    collections = {*(collections or ()), keys.GLOBAL_VARIABLES, keys.MODEL_VARIABLES}
    found = {}
    for column in columns:
        with tf.compat.v1.variable_scope(None, default_name=column._var_scope_name):
            found[column] = column._get_sequence_dense_tensor(builder, list(collections), trainable)
    return found


def _joined(parts: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    activations, lengths = zip(*parts, strict=True)
    checks = [tf.compat.v1.assert_equal(lengths[0], other, message="Columns must have the same "
                                        "sequence lengths") for other in lengths[1:]]
    with tf.control_dependencies(checks):
        return tf.concat(activations, axis=-1), tf.identity(lengths[0])
