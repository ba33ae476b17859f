# SPDX-License-Identifier: Apache-2.0
"""One gradient for each touched row."""

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.ops.gradients import sum_duplicates

GRADIENTS = np.array([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]], np.float32)


def sum_for(ids, rows, weights=None):
    """Returns id -> summed gradient."""
    unique_ids, positions = tf.unique(tf.constant(ids, tf.int64))
    found = sum_duplicates(tf.constant(GRADIENTS), tf.constant(rows, tf.int64),
                           None if weights is None else tf.constant(weights, tf.float32),
                           unique_ids, positions)
    assert len(found.ids) == len(found.gradients) == len(set(ids))
    return {id: gradient.tolist() for id, gradient in
            zip(found.ids.numpy().tolist(), found.gradients.numpy(), strict=True)}


def test_gradients_of_duplicates_are_summed():
    """Within a sample, across samples, and not at all."""
    assert sum_for([7, 7, 3, 7], [0, 0, 1, 2]) == {7: [102.0, 204.0], 3: [10.0, 20.0]}


def test_weights_scale_what_an_id_gets():
    assert sum_for([7, 7, 3], [0, 2, 1], [0.5, -1.0, 0.0]) == {
        7: [0.5 - 100, 1.0 - 200], 3: [0.0, 0.0]}


def test_row_without_ids_goes_nowhere():
    assert sum_for([5], [1]) == {5: [10.0, 20.0]}


def test_no_ids_give_no_gradients():
    assert sum_for([], []) == {}
