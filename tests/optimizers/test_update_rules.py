# SPDX-License-Identifier: Apache-2.0
"""The update rules against NumPy, step by step, and the properties that all of them have."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adagrad_momentum import AdagradMomentum
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL
from tpu_estimator_embedding.optimizers.momentum import Momentum
from tpu_estimator_embedding.optimizers.proximal_adagrad import ProximalAdagrad
from tpu_estimator_embedding.optimizers.proximal_yogi import ProximalYogi
from tpu_estimator_embedding.optimizers.rmsprop import RMSProp
from tpu_estimator_embedding.optimizers.sgd import SGD

SHAPE = (6, 3)

# Graphs may be rewritten, and vector instructions differ from those for a remainder, by a
# rounding of numbers of size 1.
ROUNDING = 3e-7


def sgd(rule, g, w, lr, step):
    return w - lr * g, []


def adagrad(rule, g, w, lr, step, a):
    a = a + g**2
    return w - lr * g / np.sqrt(a), [a]


def shrink(p, eta, rule):
    smaller = np.maximum(np.abs(p) - eta * rule.l1_regularization_strength, 0)
    return np.sign(p) * smaller / (1 + eta * rule.l2_regularization_strength)


def proximal_adagrad(rule, g, w, lr, step, a):
    a = a + g**2
    eta = lr / np.sqrt(a)
    return shrink(w - eta * g, eta, rule), [a]


def adagrad_momentum(rule, g, w, lr, step, a, m):
    a = a + g**2 if rule.beta2 == 1 else rule.beta2 * a + (1 - rule.beta2) * g**2
    s = g / (a + rule.epsilon) ** (1 / rule.exponent)
    m = rule.momentum * m + s
    return w - lr * (rule.momentum * m + s if rule.use_nesterov else m), [a, m]


def momentum(rule, g, w, lr, step, m):
    m = rule.momentum * m + g
    return w - lr * (g + rule.momentum * m if rule.use_nesterov else m), [m]


def rmsprop(rule, g, w, lr, step, ms, mom):
    ms = rule.rho * ms + (1 - rule.rho) * g**2
    mom = rule.momentum * mom + lr * g / np.sqrt(ms + rule.epsilon)
    return w - mom, [ms, mom]


def adam(rule, g, w, lr, step, m, v):
    m = rule.beta1 * m + (1 - rule.beta1) * g
    v = rule.beta2 * v + (1 - rule.beta2) * g**2
    inside = np.sqrt(v + rule.epsilon**2)
    return w - lr * m / (inside if rule.sum_inside_sqrt else np.sqrt(v) + rule.epsilon), [m, v]


def ftrl(rule, g, w, lr, step, a, z):
    p, l1, l2 = (rule.learning_rate_power, rule.l1_regularization_strength,
                 rule.l2_regularization_strength)
    new = a + g**2
    if rule.multiply_linear_by_learning_rate:
        z = z + lr * g - (new**-p - a**-p) * w
        return -np.sign(z) * np.maximum(np.abs(z) - lr * l1, 0) / (
            new**-p + rule.beta + 2 * lr * l2), [new, z]
    z = z + g - (new**-p - a**-p) / lr * w
    return -np.sign(z) * np.maximum(np.abs(z) - l1, 0) / (
        (new**-p + rule.beta) / lr + 2 * l2), [new, z]


def proximal_yogi(rule, g, w, lr, step, v, m):
    v = np.where(v > g**2, v - (1 - rule.beta2) * g**2, v + (1 - rule.beta2) * g**2)
    m = rule.beta1 * m + (1 - rule.beta1) * g
    eta = lr / (np.sqrt(v) + rule.epsilon)
    return shrink(w - eta * m, eta, rule), [v, m]


def frequency_estimator(rule, g, w, lr, step, last):
    delta = step - last
    seen = np.minimum(delta, rule.max_delta)
    mean = w + rule.tau * (seen - w)
    return np.where(delta >= rule.outlier_threshold * w, seen, mean), [np.full_like(w, step)]


CASES = {
    "sgd": (SGD(), sgd),
    "adagrad": (Adagrad(0.25), adagrad),
    "proximal adagrad": (ProximalAdagrad(0.25, 0.05, 0.5), proximal_adagrad),
    "adagrad momentum": (AdagradMomentum(0.9), adagrad_momentum),
    "adagrad momentum, nesterov": (AdagradMomentum(0.9, True), adagrad_momentum),
    "adagrad momentum, cube root of a mean": (
        AdagradMomentum(0.5, False, 3, 0.75, 1e-3), adagrad_momentum),
    "momentum": (Momentum(0.9), momentum),
    "momentum, nesterov": (Momentum(0.9, True), momentum),
    "rmsprop": (RMSProp(0.75, 0.5, 1e-3), rmsprop),
    "adam": (Adam(0.75, 0.9, 1e-2), adam),
    "adam, epsilon outside": (Adam(0.75, 0.9, 1e-2, sum_inside_sqrt=False), adam),
    "ftrl": (FTRL(), ftrl),
    "ftrl, regularized": (FTRL(-0.5, 0.25, 0.3, 0.1, False, 0.5), ftrl),
    "ftrl, other power": (FTRL(-0.75, 0.25, 0.05, 0.1, False, 1.0), ftrl),
    "ftrl, fixed rate": (FTRL(0.0, 0.25, 0.05, 0.1), ftrl),
    "ftrl, linear times rate": (FTRL(-0.5, 0.25, 0.3, 0.1, True, 0.5), ftrl),
    "proximal yogi": (ProximalYogi(0.75, 0.9, 1e-2, 0.05, 0.5, 0.1), proximal_yogi),
    "frequency estimator": (FrequencyEstimator(0.25, 9.0, 3.0), frequency_estimator),
}


def new_row(rng, rule):
    """Rows of weights, or of distances of 1 to 4 steps for the frequency estimator."""
    is_distance = isinstance(rule, FrequencyEstimator)
    return rng.uniform(1, 4, SHAPE) if is_distance else rng.uniform(-1, 1, SHAPE)


def new_slots(rule):
    return {name: tf.fill(SHAPE, value) for name, value in rule.slot_initial_values.items()}


@pytest.mark.parametrize("case", CASES)
def test_rule_equals_numpy_at_every_step(case):
    rule, reference = CASES[case]
    rng = np.random.default_rng(1)
    expected_row = new_row(rng, rule)
    expected_slots = [np.full(SHAPE, value) for value in rule.slot_initial_values.values()]
    row, slots = tf.constant(expected_row, tf.float32), new_slots(rule)
    for step in [0, 1, 5, 6, 40, 41, 42]:  # gaps, for the rule that counts steps
        gradient = rng.normal(size=SHAPE)
        gradient[0] = 0.0
        rate = 0.5 / (1 + step)
        expected_row, expected_slots = reference(
            rule, gradient, expected_row, rate, step, *expected_slots)
        row, slots = rule.update(tf.constant(gradient, tf.float32), row, slots, rate, step)
        np.testing.assert_allclose(row, expected_row, rtol=2e-5, atol=2e-6)
        for (name, slot), expected in zip(slots.items(), expected_slots, strict=True):
            np.testing.assert_allclose(slot, expected, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_update_returns_the_slots_it_declares_in_their_order(case):
    rule, _ = CASES[case]
    row = tf.ones(SHAPE)
    new, slots = rule.update(tf.ones(SHAPE), row, new_slots(rule), 0.5, 3)
    assert list(slots) == list(rule.slot_initial_values)
    assert {tuple(value.shape) for value in [new, *slots.values()]} == {SHAPE}
    assert {value.dtype for value in [new, *slots.values()]} == {tf.float32}


@pytest.mark.parametrize("case", CASES)
def test_rows_do_not_see_one_another(case):
    rule, _ = CASES[case]
    rng = np.random.default_rng(2)
    row = tf.constant(new_row(rng, rule), tf.float32)
    gradient = tf.constant(rng.normal(size=SHAPE), tf.float32)
    together, _ = rule.update(gradient, row, new_slots(rule), 0.5, 3)
    alone, _ = rule.update(gradient[2:3], row[2:3],
                           {name: slot[2:3] for name, slot in new_slots(rule).items()}, 0.5, 3)
    np.testing.assert_allclose(together[2:3], alone, rtol=1e-6, atol=ROUNDING)


@pytest.mark.parametrize("case", CASES)
def test_update_of_no_rows_gives_no_rows(case):
    rule, _ = CASES[case]
    nothing = tf.zeros([0, 3])
    row, slots = rule.update(nothing, nothing, dict.fromkeys(new_slots(rule), nothing), 0.5, 0)
    assert all(value.shape == (0, 3) for value in [row, *slots.values()])


@pytest.mark.parametrize("case", CASES)
def test_rate_and_step_may_be_tensors_in_a_graph(case):
    rule, _ = CASES[case]
    rng = np.random.default_rng(3)
    row = tf.constant(new_row(rng, rule), tf.float32)
    gradient = tf.constant(rng.normal(size=SHAPE), tf.float32)
    update = tf.function(lambda rate, step: rule.update(
        gradient, row, new_slots(rule), rate, step))
    in_graph = update(tf.constant(0.5), tf.constant(3, tf.int64))
    eager = rule.update(gradient, row, new_slots(rule), 0.5, 3)
    tf.nest.map_structure(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=ROUNDING), in_graph, eager)


@pytest.mark.parametrize("case", CASES)
def test_gradient_of_zero_from_the_start_gives_numbers(case):
    rule, _ = CASES[case]
    row, slots = rule.update(tf.zeros(SHAPE), tf.ones(SHAPE), new_slots(rule), 0.5, 0)
    assert all(np.isfinite(value).all() for value in [row, *slots.values()])


@pytest.mark.parametrize("case", CASES)
def test_rule_is_a_frozen_value(case):
    rule, _ = CASES[case]
    assert hash(rule) == hash(dataclasses.replace(rule))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.beta1 = 0.5


@pytest.mark.parametrize("case", CASES)
def test_only_adam_that_is_not_lazy_moves_untouched_rows(case):
    assert not CASES[case][0].updates_untouched_rows
    assert Adam(lazy_adam=False).updates_untouched_rows


def test_slots_start_with_the_values_of_the_rule():
    assert ProximalAdagrad(0.5).slot_initial_values == {"accumulators": 0.5}
    assert FTRL(initial_accumulator_value=0.0).slot_initial_values == {
        "accumulators": 0.0, "linears": 0.0}
    assert ProximalYogi(initial_accumulator_value=0.5).slot_initial_values == {"v": 0.5, "m": 0.0}
    assert RMSProp(0.9, 0.0, 1e-7).slot_initial_values == {"ms": 0.0, "mom": 0.0}


def test_ftrl_with_nothing_accumulated_gives_zero_instead_of_nan():
    rule = FTRL(initial_accumulator_value=0.0)
    row, slots = rule.update(tf.zeros(SHAPE), tf.ones(SHAPE), new_slots(rule), 0.5, 0)
    np.testing.assert_array_equal(row, np.zeros(SHAPE))
    row, _ = rule.update(tf.fill(SHAPE, 2.0), row, slots, 0.5, 1)
    np.testing.assert_allclose(row, np.full(SHAPE, -0.5), rtol=1e-6)  # -2 / (√4 / 0.5)


def test_both_forms_of_ftrl_give_the_same_weights_at_a_constant_rate():
    forms = [FTRL(-0.5, 0.25, 0.3, 0.1, multiply, 0.5) for multiply in (False, True)]
    rng = np.random.default_rng(4)
    gradients = tf.constant(rng.normal(size=[5, *SHAPE]), tf.float32)
    results = []
    for rule in forms:
        row, slots = tf.ones(SHAPE), new_slots(rule)
        for step, gradient in enumerate(gradients):
            row, slots = rule.update(gradient, row, slots, 0.25, step)
        results.append((row, slots["linears"]))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[0][1] * 0.25, results[1][1], rtol=1e-5, atol=1e-6)


def test_ftrl_with_linear_times_rate_allows_a_rate_of_zero():
    rule = FTRL(multiply_linear_by_learning_rate=True)
    row, slots = rule.update(tf.ones(SHAPE), tf.ones(SHAPE), new_slots(rule), 0.0, 0)
    assert np.isfinite(row).all() and np.isfinite(slots["linears"]).all()


def test_adam_at_zero_velocity_divides_by_epsilon_in_both_forms():
    for inside in (True, False):
        rule = Adam(beta1=0.5, epsilon=0.25, sum_inside_sqrt=inside)
        slots = {"momenta": tf.constant([[1.0]]), "velocities": tf.constant([[0.0]])}
        row, _ = rule.update(tf.constant([[0.0]]), tf.constant([[3.0]]), slots, 1.0, 0)
        assert row.numpy() == [[1.0]]  # 3 - 0.5 / 0.25


def test_frequency_estimator_ignores_gradient_and_learning_rate():
    rule = FrequencyEstimator(0.25, 100.0, 3.0)
    row = tf.constant([[4.0]])
    results = [rule.update(tf.constant([[gradient]]), row, {"last_hit_step": tf.zeros([1, 1])},
                           rate, 8) for gradient, rate in ((0.0, 1.0), (5.0, 0.1))]
    assert results[0][0].numpy() == results[1][0].numpy() == [[5.0]]


def test_frequency_estimator_caps_the_distance_but_not_the_test_for_outliers():
    rule = FrequencyEstimator(0.5, max_delta=6.0, outlier_threshold=2.0)
    row, slots = rule.update(tf.zeros([2, 1]), tf.constant([[4.0], [5.0]]),
                             {"last_hit_step": tf.constant([[1.0], [1.0]])}, 1.0, 10)
    # 9 ≥ 2·4 replaces 4 by min(9, 6); 9 < 2·5 takes the mean of 5 and 6.
    assert row.numpy().tolist() == [[6.0], [5.5]]
    assert slots["last_hit_step"].numpy().tolist() == [[10.0], [10.0]]
