# SPDX-License-Identifier: Apache-2.0
import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.optimizers.soft_threshold import soft_threshold


def test_soft_threshold_without_penalties_changes_nothing():
    point = tf.constant([-2.0, 0.0, 0.3])
    np.testing.assert_array_equal(soft_threshold(point, 0.7, 0.0, 0.0), point)


def test_soft_threshold_minimizes_its_objective():
    rng = np.random.default_rng(0)
    point, rate, l1, l2 = rng.normal(size=20), 0.7, 0.6, 0.4
    shrunk = soft_threshold(tf.constant(point, tf.float32), rate, l1, l2).numpy()[:, np.newaxis]
    assert 0 < np.count_nonzero(shrunk) < 20  # both branches

    def objective(w):
        distance = (w - point[:, np.newaxis]) ** 2
        return distance / (2 * rate) + l1 * np.abs(w) + l2 * w**2 / 2

    others = np.linspace(-3, 3, 601)[np.newaxis]
    assert (objective(shrunk) <= objective(others) + 1e-6).all()
