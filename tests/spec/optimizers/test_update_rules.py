# SPDX-License-Identifier: Apache-2.0
"""What all update rules have in common, and what is special about some.

Their equations are compared with NumPy in `tests/spec/engine/test_optimizers.py`.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.runners import to_row_optimizer
from tests.spec.optimizer_cases import CASES
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.optimizers.ftrl import FTRL

SHAPE = (6, 3)
RULES = {name: to_row_optimizer(case).rule for name, case in CASES.items()}


def new_slots(rule):
    return {name: tf.fill(SHAPE, value) for name, value in rule.slot_initial_values.items()}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_update_returns_the_slots_it_declares_in_their_order(rule):
    row = tf.ones(SHAPE)
    new, slots = rule.update(tf.ones(SHAPE), row, new_slots(rule), 0.5, 3)
    assert list(slots) == list(rule.slot_initial_values)
    assert {tuple(value.shape) for value in [new, *slots.values()]} == {SHAPE}
    assert {value.dtype for value in [new, *slots.values()]} == {tf.float32}


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_gradient_of_zero_from_the_start_gives_numbers(rule):
    row, slots = rule.update(tf.zeros(SHAPE), tf.ones(SHAPE), new_slots(rule), 0.5, 0)
    assert all(np.isfinite(value).all() for value in [row, *slots.values()])


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_rule_is_a_frozen_value(rule):
    assert hash(rule) == hash(dataclasses.replace(rule))
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.beta1 = 0.5


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
