# SPDX-License-Identifier: Apache-2.0
"""The optimizers of tf.contrib.opt, against their equations in NumPy."""

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
opt = tf.contrib.opt
ROWS, STEPS = 5, 4
START = np.linspace(-1, 2, ROWS * 2).reshape(ROWS, 2)
TARGET = np.linspace(1, -1, ROWS * 2).reshape(ROWS, 2)
IDS = np.array([[1, 3, 3], [0, 3, 1], [1, 1, 1], [4, 0, 3]])  # row 2 is never looked up


def train(make, use_resource, is_sparse, **minimize):
    """Returns the values of `w` after each step of sum((w - TARGET)²) / 2, of rows if sparse."""
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=START, use_resource=use_resource)
        ids = v1.placeholder(tf.int32, [None])
        found = tf.gather(w, ids) - tf.gather(TARGET, ids) if is_sparse else w - TARGET
        arguments = {name: value([w]) for name, value in minimize.items()}
        step = make().minimize(tf.reduce_sum(found ** 2) / 2, **arguments)
        session.run(v1.global_variables_initializer())
        values = []
        for now in IDS:
            session.run(step, {ids: now})
            values.append(session.run(w))
        return np.array(values)


def gradients(w, step, is_sparse):
    """Yields the rows that have a gradient, and the gradient summed over equal rows."""
    if not is_sparse:
        return np.arange(ROWS), w - TARGET
    rows, counts = np.unique(IDS[step], return_counts=True)
    return rows, (w[rows] - TARGET[rows]) * counts[:, None]


def adam(is_lazy=True, decay=0.0, nesterov=False):
    def expected(is_sparse):
        w, m, v = START.copy(), np.zeros_like(START), np.zeros_like(START)
        for t in range(1, STEPS + 1):
            rows, g = gradients(w, t - 1, is_sparse)
            dense = np.zeros_like(w)
            dense[rows] = g
            touched = rows if is_lazy else np.arange(ROWS)
            w[rows] -= decay * w[rows]
            m[touched] = 0.9 * m[touched] + 0.1 * dense[touched]
            v[touched] = 0.99 * v[touched] + 0.01 * dense[touched] ** 2
            rate = 0.1 * np.sqrt(1 - 0.99 ** t) / (1 - 0.9 ** t)
            ahead = 0.9 * m + 0.1 * dense if nesterov else m
            w[touched] -= rate * ahead[touched] / (np.sqrt(v[touched]) + 1e-6)
            yield w.copy()
    return expected


def momentum(decay=0.0, nesterov=False):
    def expected(is_sparse):
        w, a = START.copy(), np.zeros_like(START)
        for t in range(STEPS):
            rows, g = gradients(w, t, is_sparse)
            w[rows] -= decay * w[rows]
            a[rows] = 0.9 * a[rows] + g
            w[rows] -= 0.1 * (g + 0.9 * a[rows] if nesterov else a[rows])
            yield w.copy()
    return expected


def lars(nesterov=False, epsilon=0.0, is_skipped=False):
    def expected(is_sparse):
        assert not is_sparse
        w, a = START.copy(), np.zeros_like(START)
        for _ in range(STEPS):
            g, rate = w - TARGET, 0.1
            if not is_skipped:
                size, slope = np.linalg.norm(w), np.linalg.norm(g)
                rate *= 0.5 * size / (slope + 0.01 * size + epsilon)
                g = g + 0.01 * w
            a = 0.9 * a + g
            w = w - rate * (g + 0.9 * a if nesterov else a)
            yield w
    return expected


ADAM = {"learning_rate": 0.1, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6}
LARS = {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.01, "eeta": 0.5}
CASES = {
    "AdamW": (lambda: opt.AdamWOptimizer(0.05, **ADAM), adam(False, 0.05), (False, True)),
    "AdamW of a tensor": (lambda: opt.AdamWOptimizer(tf.constant(0.05), **ADAM),
                          adam(False, np.float32(0.05).astype(float)), (False,)),
    "MomentumW": (lambda: opt.MomentumWOptimizer(0.05, 0.1, 0.9), momentum(0.05), (False, True)),
    "MomentumW with nesterov": (
        lambda: opt.MomentumWOptimizer(0.05, 0.1, 0.9, use_nesterov=True), momentum(0.05, True),
        (False,)),
    "extended": (lambda: opt.extend_with_decoupled_weight_decay(v1.train.MomentumOptimizer)(
        weight_decay=0.05, learning_rate=0.1, momentum=0.9), momentum(0.05), (False, True)),
    "LazyAdam": (lambda: opt.LazyAdamOptimizer(**ADAM), adam(), (False, True)),
    "Nadam": (lambda: opt.NadamOptimizer(**ADAM), adam(nesterov=True), (False,)),
    "LARS": (lambda: opt.LARSOptimizer(**LARS), lars(), (False,)),
    "LARS with nesterov": (lambda: opt.LARSOptimizer(**LARS, use_nesterov=True, epsilon=0.1),
                           lars(True, 0.1), (False,)),
    "LARS that skips": (lambda: opt.LARSOptimizer(**LARS, skip_list=["bias", "w"]),
                        lars(is_skipped=True), (False,)),
}


@pytest.mark.parametrize("name", CASES)
def test_updates(name):
    make, expected, kinds = CASES[name]
    for is_sparse in kinds:
        for use_resource in (True, False):
            np.testing.assert_allclose(
                train(make, use_resource, is_sparse), list(expected(is_sparse)), 1e-5, 1e-6,
                err_msg=f"resource: {use_resource}, sparse: {is_sparse}")


def test_lazy_adam_differs_from_adam():
    lazy = train(lambda: opt.LazyAdamOptimizer(**ADAM), True, True)
    other = train(lambda: v1.train.AdamOptimizer(**ADAM), True, True)
    assert np.abs(lazy - other).max() > 1e-2


def test_only_listed_variables_decay():
    for variables, decay in ((lambda every: every, 0.05), (lambda every: None, 0.05),
                             (lambda every: [v1.get_variable("other", [])], 0.0)):
        np.testing.assert_allclose(
            train(lambda: opt.MomentumWOptimizer(0.05, 0.1, 0.9), True, False,
                  decay_var_list=variables), list(momentum(decay)(False)), rtol=1e-5,
            atol=1e-6)


def test_what_the_optimizers_refuse():
    with pytest.raises(ValueError, match="momentum should be positive: -0.5"):
        opt.LARSOptimizer(0.1, momentum=-0.5)
    with pytest.raises(NotImplementedError, match="'w:0' is looked up by rows"):
        train(opt.NadamOptimizer, True, True)


@pytest.mark.parametrize("is_sequential", [True, False])
def test_moving_averages_and_their_checkpoint(is_sequential, tmp_path):
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=START)
        untrained = v1.get_variable("other", initializer=3.0)
        optimizer = opt.MovingAverageOptimizer(
            v1.train.GradientDescentOptimizer(0.1), 0.9, sequential_update=is_sequential)
        with pytest.raises(RuntimeError, match="Must call apply_gradients or minimize before"):
            optimizer.swapping_saver()
        step = optimizer.minimize(tf.reduce_sum((w - TARGET) ** 2) / 2,
                                  v1.train.get_or_create_global_step())
        saver = optimizer.swapping_saver()
        with pytest.raises(ValueError, match="Variable to swap w/ExponentialMovingAverage is not"):
            optimizer.swapping_saver([w])
        session.run(v1.global_variables_initializer())
        value, average = START, START
        for _ in range(STEPS):
            session.run(step)
            before, value = value, value - 0.1 * (value - TARGET)
            average = 0.9 * average + 0.1 * (value if is_sequential else before)
        assert session.run(v1.train.get_global_step()) == STEPS
        path = saver.save(session, str(tmp_path / "model"))
        assert session.run(untrained) == 3
        saved = tf.train.load_checkpoint(path)
    if is_sequential:  # else it is a race
        np.testing.assert_allclose(saved.get_tensor("w"), average, rtol=1e-5)
    np.testing.assert_allclose(saved.get_tensor("w/ExponentialMovingAverage"), value, rtol=1e-5)
    assert saved.get_tensor("other") == 3
