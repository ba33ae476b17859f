# SPDX-License-Identifier: Apache-2.0
"""Legacy programs, step by step beside the oracle."""

import numpy as np
import pytest

from tests import oracle
from tests.v1_engine.legacy_program import (
    ADAGRAD,
    ADAM,
    FEATURES,
    RAGGED_KINDS,
    SGD,
    LegacyProgram,
    random_batch,
    random_tables,
    train_beside_oracle,
    without_holes,
)

STEPS = 5
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def train(optimizers, batch_size=4, steps=STEPS, ragged=False, run_once=True, **options):
    rng = np.random.default_rng(3)
    tables = random_tables(rng, optimizers)
    program = LegacyProgram(tables, batch_size, kinds=RAGGED_KINDS if ragged else None, **options)
    reference = oracle.Oracle(tables, FEATURES, num_cores=options.get("num_cores", 1))
    batches = [random_batch(rng, batch_size) for _ in range(steps)]
    if ragged:
        batches = [without_holes(batch) for batch in batches]
    train_beside_oracle(program, reference, batches, run_once=run_once, **TOLERANCE)


@pytest.mark.parametrize("num_cores", [1, 2])
@pytest.mark.parametrize("optimizer", [SGD, ADAGRAD, ADAM], ids=lambda case: case.kind)
def test_program_trains(optimizer, num_cores):
    train(optimizer, num_cores=num_cores)


def test_program_with_dummy_variables_trains():
    train(ADAM, dummies=True)


def test_program_with_dummy_variables_trains_on_two_cores():
    train(ADAGRAD, dummies=True, num_cores=2)
