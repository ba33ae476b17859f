# SPDX-License-Identifier: Apache-2.0
"""Ids in coordinate (COO) format, the common format of every kind of input."""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Tensor


class SparseIds(NamedTuple):
    """The mapping from rows of a table to the rows of activations that they are summed into.

    Attributes:
        ids: `[n]` int64, row ids of the table.
        rows: `[n]` int64, rows of the activations, not decreasing.
        weights: `[n]` float32, or None for 1 everywhere.
    """

    ids: Tensor
    rows: Tensor
    weights: Tensor | None


def one_id_per_sample(ids: Tensor, weights: Tensor | None) -> SparseIds:
    """Returns dense ids `[batch]` or `[batch, 1]`: sample j looks up `ids[j]`."""
    ids = tf.cast(tf.reshape(ids, [-1]), tf.int64)
    return SparseIds(ids, tf.range(tf.size(ids, out_type=tf.int64)), flat_weights(weights))


def from_coordinates(ids: Tensor, coordinates: Tensor, weights: Tensor | None,
                     max_sequence_length: int) -> SparseIds:
    """Returns ids from their sample indices and, for a sequence, positions.

    Args:
        ids: `[n]` integers.
        coordinates: `[n]`, `[n, 1]` or `[n, 2]` integers; see `in_order` for rows that decrease.
        weights: `[n]` floats or None.
        max_sequence_length: L > 0 gives each (sample, position) its own row and
            drops positions from L on; 0 gives each sample one row.
    """
    ids, coordinates = tf.cast(ids, tf.int64), tf.cast(coordinates, tf.int64)
    if coordinates.shape.rank == 1:
        coordinates = coordinates[:, tf.newaxis]
    sparse_ids = SparseIds(ids, coordinates[:, 0], flat_weights(weights))
    if not max_sequence_length:
        return sparse_ids
    return _to_positions(sparse_ids, coordinates[:, 1], max_sequence_length)


def from_row_splits(ids: Tensor, row_splits: Tensor, weights: Tensor | None,
                    max_sequence_length: int) -> SparseIds:
    """Returns ragged ids `[n]`: sample j has `ids[row_splits[j]:row_splits[j+1]]`."""
    row_splits = tf.cast(row_splits, tf.int64)
    count = tf.size(ids, out_type=tf.int64)
    samples = samples_of_rows(row_splits, count)
    sparse_ids = SparseIds(tf.cast(ids, tf.int64), samples, flat_weights(weights))
    if not max_sequence_length:
        return sparse_ids
    positions = tf.range(count) - tf.gather(row_splits, samples)
    return _to_positions(sparse_ids, positions, max_sequence_length)


def samples_of_rows(row_splits: Tensor, count: Tensor) -> Tensor:
    """Returns the row of each of `count` ids `[n]`, by counting the rows that begin before it.

    `tf.ragged.row_splits_to_segment_ids` needs time and memory proportional to batch · longest row.
    """
    starts = row_splits[1:-1]
    rows_begun = tf.math.unsorted_segment_sum(tf.ones_like(starts), starts, count + 1)
    return tf.cumsum(rows_begun)[:-1]


def sequence_lengths(ids: tf.SparseTensor | tf.RaggedTensor, limit: int,
                     batch_size: Tensor | int | None = None) -> Tensor:
    """Returns `[batch]` int64: positions of each sample up to its last id, at most `limit`.

    Args:
        ids: `[batch, length]` integers.
        limit: the largest length.
        batch_size: samples, where `ids` may have fewer rows; None means its number of rows.
    """
    if isinstance(ids, tf.RaggedTensor):
        lengths = ids.row_lengths()
    else:
        rows = ids.dense_shape[0] if batch_size is None else tf.cast(batch_size, tf.int64)
        last = tf.math.unsorted_segment_max(ids.indices[:, 1] + 1, ids.indices[:, 0], rows)
        lengths = tf.maximum(last, 0)  # a sample without ids has the lowest int64
    lengths = tf.minimum(lengths, limit)
    lengths.set_shape([batch_size if isinstance(batch_size, int) else None])
    return lengths


def row_major(indices: Tensor, sizes: Sequence[int] | Tensor, num_axes: int) -> Tensor:
    """Returns the row-major position of each index in an array.

    Args:
        indices: `[n, num_axes or more]` integers.
        sizes: sizes of the array; the first one is not used.
        num_axes: number of columns of `indices` to use.

    >>> row_major(tf.constant([[0, 2], [3, 1]]), [4, 5], 2).numpy().tolist()
    [2, 16]
    """
    rows = indices[:, 0]
    for axis in range(1, num_axes):
        rows = rows * sizes[axis] + indices[:, axis]
    return rows


def stack(parts: list[SparseIds], row_counts: list[Tensor]) -> SparseIds:
    """Concatenates the activations of several features along axis 0.

    Args:
        parts: the ids of each feature.
        row_counts: scalars, the rows of activations of each feature.
    """
    if len(parts) == 1:
        return parts[0]
    starts = tf.cumsum(tf.stack(row_counts), exclusive=True)
    rows = [part.rows + starts[k] for k, part in enumerate(parts)]
    weights = None
    if any(part.weights is not None for part in parts):
        weights = tf.concat([weights_or_ones(part) for part in parts], 0)
    return SparseIds(tf.concat([part.ids for part in parts], 0), tf.concat(rows, 0), weights)


def without_negative(sparse_ids: SparseIds) -> SparseIds:
    """Drops negative ids, which mark padding; without any, it only reads the ids once."""
    has_negative = tf.reduce_any(sparse_ids.ids < 0)
    tensors = [tensor for tensor in sparse_ids if tensor is not None]

    def drop():
        kept = tf.where(sparse_ids.ids >= 0)[:, 0]
        return [tf.gather(tensor, kept) for tensor in tensors]

    kept = tf.cond(has_negative, drop, lambda: [tf.identity(tensor) for tensor in tensors])
    return SparseIds(kept[0], kept[1], kept[2] if sparse_ids.weights is not None else None)


def in_order(sparse_ids: SparseIds, feature: str) -> SparseIds:
    """Sorts ids of a feature whose rows decrease, as in a SparseTensor that was not reordered.

    Ids of one row keep their order. Ids in order are only read once. The first sorting is logged.
    """
    rows = sparse_ids.rows
    tensors = [tensor for tensor in sparse_ids if tensor is not None]

    def sort() -> list[Tensor]:
        said = tf.raw_ops.Print(
            input=rows, data=[], first_n=1, summarize=0,
            message=f"tpu_estimator_embedding: Sample indices of feature {feature!r} decrease. Its "
            "ids are sorted in every step. Call tf.sparse.reorder on the SparseTensor in input_fn "
            "to save the time.")
        order = tf.argsort(said, stable=True)
        return [tf.gather(tensor, order) for tensor in tensors]

    sorted_ids = tf.cond(tf.reduce_all(rows[1:] >= rows[:-1]),
                         lambda: [tf.identity(tensor) for tensor in tensors], sort)
    return SparseIds(sorted_ids[0], sorted_ids[1],
                     sorted_ids[2] if sparse_ids.weights is not None else None)


def weights_or_ones(sparse_ids: SparseIds) -> Tensor:
    """Returns the weights `[n]` float32, ones if there are none."""
    if sparse_ids.weights is not None:
        return sparse_ids.weights
    return tf.ones_like(sparse_ids.ids, dtype=tf.float32)


def check_ids_are_integers(ids: Tensor | tf.SparseTensor | tf.RaggedTensor, feature: str) -> None:
    """Raises ValueError unless ids, in any kind of tensor, are integers."""
    checks.check(ids.dtype.is_integer, f"ids of feature {feature!r}", "integers", ids.dtype.name,
                 "Map strings to ids in input_fn, with tf.lookup for instance.")


def check_weights_are_numbers(weights: Tensor | tf.SparseTensor | tf.RaggedTensor | None,
                              feature: str) -> None:
    """Raises ValueError unless weights, in any kind of tensor, are None or real numbers."""
    if weights is None:
        return
    dtype = tf.as_dtype(weights.dtype if hasattr(weights, "dtype")
                        else tf.convert_to_tensor(weights).dtype)
    checks.check(dtype.is_floating or dtype.is_integer or dtype.is_bool,
                 f"weights of feature {feature!r}", "numbers, floats for instance", dtype.name,
                 "Convert them in input_fn, strings with tf.strings.to_number.",
                 sentence=f"Cast {dtype.name} to float is not supported.")


def flat_weights(weights: Tensor | None) -> Tensor | None:
    """Returns the weights as `[n]` float32, or None."""
    return None if weights is None else tf.cast(tf.reshape(weights, [-1]), tf.float32)


def _to_positions(sparse_ids: SparseIds, positions: Tensor, length: int) -> SparseIds:
    kept = tf.where(positions < length)[:, 0]
    rows = tf.gather(sparse_ids.rows * length + positions, kept)
    weights = sparse_ids.weights
    return SparseIds(tf.gather(sparse_ids.ids, kept), rows,
                     None if weights is None else tf.gather(weights, kept))
