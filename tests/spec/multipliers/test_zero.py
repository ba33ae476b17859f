# SPDX-License-Identifier: Apache-2.0
"""What a multiplier of 0 does to rows and slots: the table in the docstring of `multipliers`."""

import numpy as np
import pytest

from tests.kernel_choice import choose_kernels
from tests.spec.optimizer_cases import CASES
from tests.spec.properties.test_updates import new_batches, new_oracle, run, touched, used_slots
from tpu_estimator_embedding import multipliers

STAY, SHRINK = "stay", "shrink"

# Kind -> the effect on each slot of a looked-up row, and whether the row moves.
EFFECTS = {
    "SGD": ({}, False),
    "Adagrad": ({"accumulators": STAY}, False),
    "ProximalAdagrad": ({"accumulators": STAY}, False),
    "ProximalAdagrad, penalties": ({"accumulators": STAY}, True),
    "AdagradMomentum": ({"accumulators": STAY, "momenta": SHRINK}, True),
    "AdagradMomentum, Nesterov, averaged, cube root": (
        {"accumulators": SHRINK, "momenta": SHRINK}, True),
    "Momentum": ({"momenta": SHRINK}, True),
    "Momentum, Nesterov": ({"momenta": SHRINK}, True),
    "RMSProp": ({"ms": SHRINK, "mom": SHRINK}, True),
    "Adam": ({"momenta": SHRINK, "velocities": SHRINK}, True),
    "Adam, epsilon outside": ({"momenta": SHRINK, "velocities": SHRINK}, True),
    "FTRL": ({"accumulators": STAY, "linears": STAY}, True),
    "FTRL, multiplied": ({"accumulators": STAY, "linears": STAY}, True),
    "ProximalYogi": ({"v": STAY, "m": SHRINK}, True),
    "FrequencyEstimator": ({"last_hit_step": "step"}, True),
}
# These compute a row from slots or from steps alone, or shrink it without a gradient.
MOVED_FROM_THE_START = ("FTRL", "FrequencyEstimator", "penalties")


@pytest.fixture(autouse=True, params=["tf", "native"])
def kernels(request, monkeypatch):
    choose_kernels(request.param, monkeypatch)


def train_with_zero(case, slots):
    oracle = new_oracle(CASES[case])
    table = oracle.tables["t"]
    before = {"table": table.values.astype(np.float32), **slots(table)}
    after = run(oracle, new_batches(), slots=slots(table),
                gradient_multiplier_fn=multipliers.constant(0))
    rows = sorted(touched(new_batches()))
    return {name: values[rows] for name, values in before.items()}, {
        name: values[rows] for name, values in after.items()}


@pytest.mark.parametrize("case", EFFECTS)
def test_slots_and_rows_after_training_with_0(case):
    effects, moves = EFFECTS[case]
    before, after = train_with_zero(case, used_slots)
    assert set(effects) == set(before) - {"table"}
    for slot, effect in effects.items():
        if effect == STAY:
            np.testing.assert_array_equal(after[slot], before[slot])
        elif effect == SHRINK:
            assert (np.abs(after[slot]) < np.abs(before[slot])).all()
        else:
            assert not np.array_equal(after[slot], before[slot])
    assert np.array_equal(after["table"], before["table"]) != moves


@pytest.mark.parametrize("case", EFFECTS)
def test_rows_with_0_from_the_start(case):
    before, after = train_with_zero(case, lambda table: {})
    assert np.array_equal(after["table"], before["table"]) != any(
        word in case for word in MOVED_FROM_THE_START)


def test_the_docstring_has_every_optimizer():
    for kind in {CASES[case].kind for case in EFFECTS}:
        assert f"\n{kind} " in multipliers.__doc__
    assert {case.kind for case in CASES.values()} == {CASES[case].kind for case in EFFECTS}
