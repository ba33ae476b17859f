# SPDX-License-Identifier: Apache-2.0
"""Sums rows of a table into activations, without copying it, and gradients of these into rows."""

from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.types import Quantization, Tensor


class RowGradients(NamedTuple):
    """The summed gradient of every row that a step looked up.

    Attributes:
        ids: `[u]` int64, distinct rows of one part of a table.
        gradients: `[u, dim]` float32.
    """

    ids: Tensor
    gradients: Tensor


def gather_rows(table: tf.Variable, ids: Tensor) -> Tensor:
    """Returns the rows `[n, dim]` of a resource variable at `ids` `[n]`.

    A `ResourceGather` reads under a shared lock. Reading the whole variable first would
    copy it once a sparse write has put it into copy-on-read mode.
    """
    return tf.raw_ops.ResourceGather(resource=table.handle, indices=ids, dtype=table.dtype)


def sum_rows(values: Tensor, rows: Tensor, num_rows: Tensor) -> Tensor:
    """Returns `[num_rows, dim]`: row r is the sum of `values[i]` where `rows[i] == r`.

    Args:
        values: `[n, dim]` float32.
        rows: `[n]` integers in [0, num_rows), not decreasing.
        num_rows: scalar.

    >>> sum_rows(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([0, 0, 2]), 4).numpy().tolist()
    [[3.0], [0.0], [4.0], [0.0]]
    """
    # Several times faster than the unsorted form, which TF 2.21 computes row by row.
    sums = tf.math.segment_sum(values, rows)
    missing = tf.cast(num_rows, tf.int32) - tf.shape(sums)[0]
    return tf.pad(sums, [[0, missing], [0, 0]])


def lookup(table: tf.Variable, ids: Tensor, rows: Tensor, weights: Tensor | None,
           num_rows: Tensor, quantization: Quantization | None = None) -> Tensor:
    """Returns the weighted sums `[num_rows, dim]` of the looked-up rows.

        activation[r] = Σ over i with rows[i] = r of weights[i] · table[ids[i]]

    Args:
        table: resource variable `[rows of this part, dim]`.
        ids: `[n]` int64, rows of this part.
        rows: `[n]` int64, rows of the activations, not decreasing.
        weights: `[n]` float32, or None for 1 everywhere.
        num_rows: scalar, rows of activations.
        quantization: levels that the rows of the table are rounded to, or None.
    """
    values = gather_rows(table, ids)
    if quantization is not None:
        values = quantize(values, quantization)
    if weights is not None:
        values *= weights[:, tf.newaxis]
    return sum_rows(values, rows, num_rows)


def quantize(values: Tensor, quantization: Quantization) -> Tensor:
    """Returns `values` clipped to [lower, upper] and rounded to `num_buckets` levels.

        s = (upper - lower) / (num_buckets - 1)
        q = ⌊(clip(x, lower, upper) - lower) / s + 1/2⌋ s + lower

    Source: comments of TensorFlow's `optimization_parameters.proto`
    (SimulatedQuantization).

    >>> quantize(tf.constant([-2.0, 0.1, 0.4, 2.0]), Quantization(3, -1.0, 1.0)).numpy().tolist()
    [-1.0, 0.0, 0.0, 1.0]
    """
    num_buckets, lower, upper = quantization
    step = (upper - lower) / (num_buckets - 1)
    clipped = tf.clip_by_value(values, lower, upper)
    return tf.floor((clipped - lower) / step + 0.5) * step + lower


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
