# SPDX-License-Identifier: Apache-2.0
"""The function of `tf.contrib.feature_column` that TensorFlow 2 has as a Keras layer."""

from collections.abc import Iterable, Mapping

import tensorflow as tf

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
    with tf.compat.v1.variable_scope(None, _SCOPE) as scope:  # whose name is not used yet
        name = scope.name.rpartition("/")[2]
    layer = tf.keras.experimental.SequenceFeatures(list(feature_columns), trainable, name)
    results = layer(features)
    for collection in weight_collections or ():
        for variable in layer.variables:
            tf.compat.v1.add_to_collection(collection, variable)
    activations, lengths = results
    return activations, lengths
