# SPDX-License-Identifier: Apache-2.0
"""Layers on two replicas: one update of the sum of what all replicas give to their optimizer."""

import pathlib
import sys

import numpy as np
import pytest

from tests.fronts.mid_level.keras_layers.step_programs import KERASES
from tests.subprocesses import start


def adagrad(*gradients):
    row, squares = 0.0, 0.25
    for gradient in gradients:
        squares += gradient**2
        row -= gradient / np.sqrt(squares)
    return row


@pytest.mark.long
def test_replicas_make_one_update():
    program = pathlib.Path(__file__).with_name("layer_strategy_program.py")
    done = start([sys.executable, program, *KERASES])
    assert done.returncode == 0, done.stderr
    found = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
    ways = {"plain": adagrad(3, 7), "two towers": adagrad(6 - 4, 14 - 4),
            "own mean": adagrad(1.5, 3.5)}
    assert [name for name, _ in found] == [
        f"{keras} {way}" for keras in KERASES for _ in range(2) for way in ways]
    np.testing.assert_allclose([float(row) for _, row in found],
                               list(ways.values()) * 2 * len(KERASES), atol=1e-3)
