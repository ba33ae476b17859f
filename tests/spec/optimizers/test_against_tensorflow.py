# SPDX-License-Identifier: Apache-2.0
"""The update rules against TensorFlow's own optimizers where both define the same thing."""

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.sgd import SGD

pytestmark = pytest.mark.every_tensorflow

train = tf.compat.v1.train
RATE, STEPS, SHAPE = 0.25, 6, (4, 3)

PAIRS = {
    "sgd": (SGD(), lambda: train.GradientDescentOptimizer(RATE)),
    "adagrad": (Adagrad(0.2), lambda: train.AdagradOptimizer(RATE, 0.2)),
    "momentum": (Momentum(0.9), lambda: train.MomentumOptimizer(RATE, 0.9)),
    "momentum, nesterov": (
        Momentum(0.9, True), lambda: train.MomentumOptimizer(RATE, 0.9, use_nesterov=True)),
    "proximal adagrad": (
        ProximalAdagrad(0.2, 0.1, 0.5),
        lambda: train.ProximalAdagradOptimizer(RATE, 0.2, 0.1, 0.5)),
    "ftrl": (FTRL(), lambda: train.FtrlOptimizer(RATE)),
    "ftrl, regularized": (
        FTRL(-0.5, 0.2, 0.3, 0.1), lambda: train.FtrlOptimizer(RATE, -0.5, 0.2, 0.3, 0.1)),
    "ftrl, other power": (
        FTRL(-0.7, 0.2, 0.3, 0.1), lambda: train.FtrlOptimizer(RATE, -0.7, 0.2, 0.3, 0.1)),
    "ftrl, beta": (FTRL(beta=0.5), lambda: train.FtrlOptimizer(RATE, beta=0.5)),
}


def trajectory_of_tensorflow(make_optimizer, first, gradients):
    """Returns the weights after each step of a `tf.compat.v1.train` optimizer."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        weights = tf.compat.v1.get_variable("weights", initializer=first, use_resource=True)
        gradient = tf.compat.v1.placeholder(tf.float32, SHAPE)
        step = make_optimizer().apply_gradients([(gradient, weights)])
        session.run(tf.compat.v1.global_variables_initializer())
        rows = []
        for value in gradients:
            session.run(step, {gradient: value})
            rows.append(session.run(weights))
        return rows


def trajectory_of_rule(rule, first, gradients, rates=None, slots=None):
    row = tf.constant(first)
    slots = slots or {name: tf.fill(SHAPE, value)
                      for name, value in rule.slot_initial_values.items()}
    rows = []
    for step, gradient in enumerate(gradients):
        rate = RATE if rates is None else rates[step]
        row, slots = rule.update(tf.constant(gradient), row, slots, rate, step)
        rows.append(row.numpy())
    return rows


@pytest.fixture(name="problem")
def new_problem():
    rng = np.random.default_rng(7)
    gradients = rng.normal(size=(STEPS, *SHAPE)).astype(np.float32)
    gradients[:, 0] = 0.0
    return rng.uniform(-1, 1, SHAPE).astype(np.float32), gradients


@pytest.mark.parametrize("name", PAIRS)
def test_rule_equals_optimizer(name, problem):
    rule, make_optimizer = PAIRS[name]
    np.testing.assert_allclose(
        trajectory_of_rule(rule, *problem), trajectory_of_tensorflow(make_optimizer, *problem),
        rtol=1e-5, atol=1e-6)


def test_adam_equals_optimizer_through_its_learning_rate(problem):
    beta1, beta2 = 0.8, 0.95
    rates = [RATE * np.sqrt(1 - beta2**t) / (1 - beta1**t) for t in range(1, STEPS + 1)]
    np.testing.assert_allclose(
        trajectory_of_rule(Adam(beta1, beta2, 1e-3, sum_inside_sqrt=False), *problem, rates),
        trajectory_of_tensorflow(lambda: train.AdamOptimizer(RATE, beta1, beta2, 1e-3), *problem),
        rtol=1e-5, atol=1e-6)


def test_rmsprop_equals_optimizer_that_starts_from_one(problem):
    slots = {"ms": tf.ones(SHAPE), "mom": tf.zeros(SHAPE)}
    np.testing.assert_allclose(
        trajectory_of_rule(RMSProp(0.8, 0.5, 1e-3), *problem, slots=slots),
        trajectory_of_tensorflow(lambda: train.RMSPropOptimizer(RATE, 0.8, 0.5, 1e-3), *problem),
        rtol=1e-5, atol=1e-6)
