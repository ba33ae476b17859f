# SPDX-License-Identifier: Apache-2.0
"""All optimizers and everything around their update, against the NumPy oracle."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, many_ids, train_beside_oracle
from tests.runners import RULE_CLASSES, RUNNERS
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Optimizer, Oracle, Table

pytestmark = pytest.mark.usefixtures("kernels")

VOCABULARY_SIZE, BATCH_SIZE, STEPS = 12, 6, 4

# Dividing by roots of slots and by learning rates of down to 0.05 magnifies roundings.
TOLERANCE = {"rtol": 1e-5, "atol": 5e-6}

SETTING = Setting({"a": "sparse", "b": "ragged"})


def new_oracle(*optimizers, dimension=1, **options):
    """One table for each optimizer; feature `a` looks up the first, `b` the last."""
    rng = np.random.default_rng(1)
    tables = [Table(f"t{k}", rng.uniform(-1, 1, [VOCABULARY_SIZE, dimension]).astype(np.float32),
                    "mean", optimizer) for k, optimizer in enumerate(optimizers)]
    features = [Feature("a", tables[0].name), Feature("b", tables[-1].name)]
    return Oracle(tables, features, **options)


def new_batches():
    rng = np.random.default_rng(2)
    return [{name: many_ids(rng, BATCH_SIZE, VOCABULARY_SIZE) for name in ("a", "b")}
            for _ in range(STEPS)]


@pytest.fixture(params=RUNNERS)
def runner(request):
    return RUNNERS[request.param]


def test_cases_cover_every_optimizer_of_the_package():
    assert {case.kind for case in CASES.values()} == set(RULE_CLASSES)


@pytest.mark.all_cases
@pytest.mark.parametrize("runner", ["session", "eager"])
@pytest.mark.parametrize("case", CASES)
def test_optimizer_equals_oracle_at_every_step(runner, case):
    train_beside_oracle(RUNNERS[runner], new_oracle(CASES[case]), new_batches(), SETTING,
                        **TOLERANCE)


def test_gradient_limits_hold_the_sum_and_not_its_parts():
    oracle = new_oracle(Optimizer("SGD", 1.0, gradient_limits=(-1.0, 1.0)))
    oracle.tables["t0"] = Table("t0", np.zeros([3, 1]), "sum", oracle.tables["t0"].optimizer)
    setting = Setting({"a": "dense", "b": "dense"})
    engine = setting.runner(RUNNERS["eager"], list(oracle.tables.values()),
                            list(oracle.features.values()))
    ids = np.array([0, 0, 1, 2]), None, None
    gradients = np.array([[3.0], [-2.5], [0.75], [0.25]], np.float32)
    engine.train({"a": ids, "b": ids}, {"a": gradients, "b": gradients}, 4, 0)
    [table] = engine.read()["t0", None]
    np.testing.assert_array_equal(table, [[-1.0], [-1.0], [-0.5]])


def test_gradient_multiplier_is_a_function_of_the_step(runner):
    seen = []

    def multiplier(step):
        seen.append(step)
        return 1.0 / (1.0 + tf.cast(step, tf.float64))

    setting = dataclasses.replace(SETTING, plan_options={"gradient_multiplier_fn": multiplier})
    oracle = new_oracle(CASES["Adagrad"], CASES["SGD"], multiplier=lambda step: 1 / (1 + step))
    train_beside_oracle(runner, oracle, new_batches(), setting, **TOLERANCE)
    assert len(seen) == (STEPS if runner is RUNNERS["eager"] else 1)


def test_learning_rate_functions_are_called_once_each_per_step(runner):
    calls = []

    def as_float(step, caller):
        if not tf.is_tensor(step):
            return float(step)  # called by the oracle
        calls.append(caller)
        return tf.cast(step, tf.float64)

    def falling(step):
        return 0.5 / (1.0 + as_float(step, "falling"))

    def rising(step):
        return as_float(step, "rising") / 8.0  # a rate of 0 in the first step

    optimizers = [Optimizer("Adagrad", rate) for rate in (falling, rising, falling)]
    oracle = new_oracle(*optimizers, dimension=2)
    oracle.features["c"] = Feature("c", "t1")
    batches = [{**batch, "c": batch["a"]} for batch in new_batches()]
    setting = Setting({"a": "sparse", "b": "ragged", "c": "sparse"})
    train_beside_oracle(runner, oracle, batches, setting, **TOLERANCE)
    evaluations = STEPS if runner is RUNNERS["eager"] else 1
    assert sorted(calls) == ["falling"] * evaluations + ["rising"] * evaluations
