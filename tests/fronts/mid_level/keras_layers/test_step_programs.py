# SPDX-License-Identifier: Apache-2.0
"""Random training loops around layers learn what NumPy does."""

import pytest

from tests.fronts.mid_level.keras_layers import step_programs


@pytest.mark.all_cases
@pytest.mark.parametrize("seed", range(4))
def test_random_program_learns_what_numpy_learns(seed):
    step_programs.check(seed)


@pytest.mark.soak
def test_many_random_programs():
    for seed in range(1000, 1500):
        step_programs.check(seed)
