# SPDX-License-Identifier: Apache-2.0
"""Reading rows and summing them."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.ops.lookup import gather_rows, lookup, sum_rows

VALUES = np.arange(12, dtype=np.float32).reshape([4, 3])


@pytest.fixture
def table():
    return tf.Variable(VALUES)


def test_gather_reads_rows_in_the_order_of_ids(table):
    np.testing.assert_array_equal(gather_rows(table, tf.constant([3, 0, 3])), VALUES[[3, 0, 3]])
    assert gather_rows(table, tf.constant([], tf.int64)).shape == [0, 3]


def test_rows_are_summed_and_missing_ones_are_zero():
    sums = sum_rows(tf.constant([[1.0], [2.0], [4.0]]), tf.constant([1, 1, 3]), 6)
    np.testing.assert_array_equal(sums, [[0.0], [3.0], [0.0], [4.0], [0.0], [0.0]])


@pytest.mark.parametrize("num_rows", [0, 3])
def test_sums_of_nothing_are_zero(num_rows):
    sums = sum_rows(tf.zeros([0, 2]), tf.constant([], tf.int64), num_rows)
    np.testing.assert_array_equal(sums, np.zeros([num_rows, 2]))


def test_lookup_weights_rows_before_it_sums_them(table):
    found = lookup(table, tf.constant([0, 1, 1]), tf.constant([0, 0, 2]),
                   tf.constant([0.5, 2.0, -1.0]), 3)
    wanted = [0.5 * VALUES[0] + 2.0 * VALUES[1], np.zeros(3), -VALUES[1]]
    np.testing.assert_array_equal(found, wanted)


def test_lookup_without_weights_counts_duplicates_each_time(table):
    found = lookup(table, tf.constant([2, 2, 1]), tf.constant([0, 0, 0]), None, 1)
    np.testing.assert_array_equal(found, [2 * VALUES[2] + VALUES[1]])


def test_static_shapes_survive_in_a_graph():
    with tf.Graph().as_default():
        table = tf.compat.v1.get_variable("t", initializer=VALUES, use_resource=True)
        ids = tf.compat.v1.placeholder(tf.int64, [None])
        assert lookup(table, ids, ids, None, tf.size(ids)).shape.as_list() == [None, 3]
