# SPDX-License-Identifier: Apache-2.0
"""The common form of every kind of input."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.ops.sparse_ids import SparseIds


def lists(found: SparseIds):
    """Returns ids, rows and weights as lists, after checking their dtypes."""
    assert found.ids.dtype == found.rows.dtype == tf.int64
    assert found.weights is None or found.weights.dtype == tf.float32
    return tuple(None if tensor is None else tensor.numpy().tolist() for tensor in found)


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
@pytest.mark.parametrize("ids", [[7, -1, 7], [[7], [-1], [7]]])
def test_dense_ids_are_one_for_each_sample(ids, dtype):
    found = sparse_ids.one_id_per_sample(tf.constant(ids, dtype), None)
    assert lists(found) == ([7, -1, 7], [0, 1, 2], None)


def test_dense_weights_are_flattened():
    found = sparse_ids.one_id_per_sample(tf.constant([7, 8]), tf.constant([[0.5], [2.0]]))
    assert lists(found) == ([7, 8], [0, 1], [0.5, 2.0])


@pytest.mark.parametrize("coordinates", [
    [0, 0, 2], [[0], [0], [2]], [[0, 0], [0, 5], [2, 0]], [[0, 0, 1], [0, 5, 2], [2, 0, 0]]])
def test_sample_indices_of_any_rank_give_rows(coordinates):
    found = sparse_ids.from_coordinates(tf.constant([3, 4, 5]), tf.constant(coordinates),
                                        tf.constant([1.0, 2.0, 3.0], tf.float64), 0)
    assert lists(found) == ([3, 4, 5], [0, 0, 2], [1.0, 2.0, 3.0])


def test_positions_of_a_sequence_give_rows_and_those_too_late_are_dropped():
    coordinates = tf.constant([[0, 0], [0, 2], [0, 3], [2, 1], [2, 9]])
    found = sparse_ids.from_coordinates(tf.constant([3, 4, 5, 6, 7]), coordinates,
                                        tf.constant([1.0, 2.0, 3.0, 4.0, 5.0]), 3)
    assert lists(found) == ([3, 4, 6], [0, 2, 7], [1.0, 2.0, 4.0])


def test_row_splits_give_rows():
    found = sparse_ids.from_row_splits(tf.constant([3, 4, 5]), tf.constant([0, 2, 2, 3]), None, 0)
    assert lists(found) == ([3, 4, 5], [0, 0, 2], None)


def test_row_splits_of_a_sequence_give_positions():
    found = sparse_ids.from_row_splits(
        tf.constant([3, 4, 5, 6]), tf.constant([0, 3, 3, 4], tf.int64),
        tf.constant([1.0, 2.0, 3.0, 4.0]), 2)
    assert lists(found) == ([3, 4, 6], [0, 1, 4], [1.0, 2.0, 4.0])


@pytest.mark.parametrize("length", [0, 2])
def test_no_ids_at_all(length):
    empty = tf.constant([], tf.int64)
    from_coordinates = sparse_ids.from_coordinates(empty, tf.zeros([0, 2], tf.int64), None, length)
    from_splits = sparse_ids.from_row_splits(empty, tf.constant([0, 0, 0]), None, length)
    for found in (from_coordinates, from_splits):
        assert lists(found) == ([], [], None)


def test_stacked_features_have_their_rows_under_one_another():
    a = SparseIds(tf.constant([1, 2], tf.int64), tf.constant([0, 2], tf.int64), None)
    b = SparseIds(tf.constant([3], tf.int64), tf.constant([1], tf.int64), None)
    counts = [tf.constant(4, tf.int64), tf.constant(2, tf.int64)]
    assert lists(sparse_ids.stack([a, b, a], [*counts, counts[0]])) == (
        [1, 2, 3, 1, 2], [0, 2, 5, 6, 8], None)
    assert sparse_ids.stack([a], counts[:1]) is a


def test_stacked_weights_are_one_where_a_feature_has_none():
    a = SparseIds(tf.constant([1, 2], tf.int64), tf.constant([0, 2], tf.int64), None)
    b = SparseIds(tf.constant([3], tf.int64), tf.constant([1], tf.int64), tf.constant([0.5]))
    counts = [tf.constant(4, tf.int64), tf.constant(2, tf.int64)]
    assert lists(sparse_ids.stack([a, b], counts)) == ([1, 2, 3], [0, 2, 5], [1.0, 1.0, 0.5])


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 3.0, 4.0]])
@pytest.mark.parametrize("ids, kept", [
    ([5, -1, 0, -9], [0, 2]), ([5, 6, 7, 8], [0, 1, 2, 3]), ([-1, -1, -1, -2], [])])
def test_negative_ids_are_dropped_with_their_rows_and_weights(ids, kept, weights):
    rows = [0, 0, 1, 3]
    found = sparse_ids.without_negative(SparseIds(
        tf.constant(ids, tf.int64), tf.constant(rows, tf.int64),
        None if weights is None else tf.constant(weights)))
    assert lists(found) == ([ids[k] for k in kept], [rows[k] for k in kept],
                            None if weights is None else [weights[k] for k in kept])


def test_weights_or_ones():
    ids = SparseIds(tf.constant([5, 6], tf.int64), tf.constant([0, 1], tf.int64), None)
    np.testing.assert_array_equal(sparse_ids.weights_or_ones(ids), [1.0, 1.0])
    weighted = ids._replace(weights=tf.constant([0.5, 0.0]))
    assert sparse_ids.weights_or_ones(weighted) is weighted.weights
