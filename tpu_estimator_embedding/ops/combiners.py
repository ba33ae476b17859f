# SPDX-License-Identifier: Apache-2.0
"""The denominators by which combiners scale the weighted sum of a sample's rows.

    sum, None:  Σ wᵢ E[idᵢ]
    mean:       Σ wᵢ E[idᵢ] / Σ wᵢ
    sqrtn:      Σ wᵢ E[idᵢ] / √Σ wᵢ²

A sample without ids, or with a denominator of 0, gets 0.
"""

import tensorflow as tf

from tpu_estimator_embedding.ops.sparse_ids import SparseIds, weights_or_ones
from tpu_estimator_embedding.types import Tensor


def row_scales(combiner: str | None, sparse_ids: SparseIds,
               num_rows: Tensor | int) -> Tensor | None:
    """Returns one over the denominator of each row of activations.

    Args:
        combiner: "mean", "sum", "sqrtn" or None.
        sparse_ids: the ids that the rows combine.
        num_rows: scalar, rows of activations.

    Returns:
        `[num_rows]` float32, 0 where the denominator is 0; None where every scale is 1.

    >>> ids = SparseIds(tf.constant([5, 6, 7]), tf.constant([0, 0, 2]), None)
    >>> row_scales("mean", ids, 3).numpy().tolist()
    [0.5, 0.0, 1.0]
    """
    if combiner in ("sum", None):
        return None
    weights = weights_or_ones(sparse_ids)
    if combiner == "mean":
        denominators = tf.math.unsorted_segment_sum(weights, sparse_ids.rows, num_rows)
    else:
        squares = tf.math.unsorted_segment_sum(tf.square(weights), sparse_ids.rows, num_rows)
        denominators = tf.sqrt(squares)
    return tf.math.reciprocal_no_nan(denominators)
