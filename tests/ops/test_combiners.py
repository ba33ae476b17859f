# SPDX-License-Identifier: Apache-2.0
"""The factor by which each row of activations is scaled."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import SparseIds


def scales(combiner, rows, weights, num_rows):
    ids = SparseIds(tf.zeros([len(rows)], tf.int64), tf.constant(rows, tf.int64),
                    None if weights is None else tf.constant(weights, tf.float32))
    return row_scales(combiner, ids, num_rows)


@pytest.mark.parametrize("combiner", ["sum", None])
def test_sums_are_not_scaled(combiner):
    assert scales(combiner, [0, 0, 1], [1.0, 2.0, 3.0], 2) is None


def test_mean_divides_by_the_sum_of_weights():
    np.testing.assert_allclose(scales("mean", [0, 0, 0, 2], None, 4), [1 / 3, 0, 1, 0])
    np.testing.assert_allclose(scales("mean", [0, 0, 1], [0.5, 1.5, -4.0], 2), [0.5, -0.25])


def test_sqrtn_divides_by_the_root_of_the_sum_of_squares():
    np.testing.assert_allclose(scales("sqrtn", [0, 0, 0, 0, 2], None, 3), [0.5, 0, 1])
    np.testing.assert_allclose(scales("sqrtn", [0, 0, 1], [3.0, 4.0, -2.0], 2), [0.2, 0.5])


@pytest.mark.parametrize("combiner, weights", [
    ("mean", [1.0, -1.0]), ("mean", [0.0, 0.0]), ("sqrtn", [0.0, 0.0])])
def test_denominator_of_zero_gives_zero(combiner, weights):
    np.testing.assert_array_equal(scales(combiner, [1, 1], weights, 3), [0.0, 0.0, 0.0])


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_no_ids_and_no_rows(combiner):
    assert scales(combiner, [], None, 0).shape == [0]
    np.testing.assert_array_equal(scales(combiner, [], None, 2), [0.0, 0.0])
