# SPDX-License-Identifier: Apache-2.0
"""Converts gradients of activations to one gradient per touched row of a table."""

from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


class RowGradients(NamedTuple):
    """The summed gradient of every row that a step looked up.

    Attributes:
        ids: `[u]` int64, distinct rows of one part of a table.
        gradients: `[u, dim]` float32.
    """

    ids: Tensor
    gradients: Tensor


def sum_duplicates(activation_gradients: Tensor, rows: Tensor, weights: Tensor | None,
                   unique_ids: Tensor, positions: Tensor) -> RowGradients:
    """Sums, for every row of the table, the gradients of all activations that include it.

        gradient[id] = Σ over i with ids[i] = id of weights[i] · activation_gradient[rows[i]]

    Args:
        activation_gradients: `[num_rows, dim]` float32.
        rows: `[n]` int64, the row of activations that id i contributes to.
        weights: `[n]` float32, or None for 1 everywhere.
        unique_ids: `[u]` int64, the distinct ids.
        positions: `[n]` int32, the index of id i in `unique_ids`.

    >>> sum_duplicates(tf.constant([[1.0], [10.0]]), rows=tf.constant([0, 0, 1]), weights=None,
    ...                unique_ids=tf.constant([7, 8]), positions=tf.constant([0, 1, 0])
    ...                ).gradients.numpy().tolist()
    [[11.0], [1.0]]
    """
    values = tf.gather(activation_gradients, rows)
    if weights is not None:
        values *= weights[:, tf.newaxis]
    return RowGradients(unique_ids,
                        tf.math.unsorted_segment_sum(values, positions, tf.size(unique_ids)))
