# SPDX-License-Identifier: Apache-2.0
"""Optimizers of the stage keras3 against a TPU's updates, and how far Keras's own are off."""

import re
import sys

import numpy as np
import pytest

from tests.codemod.migration.test_keras3 import missing
from tests.docs import ROOT
from tests.spec import oracle_optimizers
from tests.subprocesses import start
from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.migration import keras3_text
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.ftrl import FTRL

PROGRAM = ROOT / "tests" / "codemod" / "migration" / "keras3_optimizers.py"
RUNTIME = ROOT / "tpu_estimator_embedding" / "migration" / "emitted"
TIMEOUT = 1800
STEPS, ROWS, DIM, IDS = 20, 50, 4, 24  # ids of a step, about a fifth of which repeat
FORMATS = {"tensorflow": "keras-rs", "jax": "keras-rs-jax"}
# Optimizer -> the same in the oracle: rule, hyperparameters, learning rate.
ORACLES = {
    "SGD": ("SGD", {}, 0.1),
    "Adagrad": ("Adagrad", {"initial_accumulator": 0.1}, 0.1),
    "Adam, lazy": ("Adam", {}, 0.01),
    "Adam, not lazy": ("Adam", {"lazy_adam": False}, 0.01),
    "Adam, ε outside": ("Adam", {"epsilon": 1e-3, "sum_inside_sqrt": False}, 0.01),
    "FTRL": ("FTRL", {"l1_regularization_strength": 0.01}, 0.1),
    "FTRL times rate": ("FTRL", {
        "l1_regularization_strength": 0.01, "l2_regularization_strength": 0.02, "beta": 0.5,
        "multiply_linear_by_learning_rate": True}, 0.1),
}
# Those that limit the summed gradients of a row, most of which are beyond it.
LIMIT = 0.3
LIMITED = ("SGD", "Adagrad", "Adam, lazy", "FTRL")


@pytest.fixture(name="batches", scope="module")
def random_batches():
    rng = np.random.default_rng(3)
    return {"start": rng.normal(0.0, 0.5, [ROWS, DIM]).astype(np.float32),
            "ids": rng.integers(1, ROWS, [STEPS, IDS]),
            "gradients": rng.normal(0.0, 1.0, [STEPS, IDS, DIM]).astype(np.float32)}


@pytest.fixture(name="trained", scope="module", params=FORMATS)
def directory_of_a_backend(request, batches, tmp_path_factory):
    backend = request.param
    if missing(backend):
        pytest.skip(f"needs the extra `jax`: {', '.join(missing(backend))} not installed")
    path = tmp_path_factory.mktemp(backend)
    np.savez(path / "batches.npz", **batches)
    done = start([sys.executable, PROGRAM, RUNTIME, path / "batches.npz", path], timeout=TIMEOUT,
                 KERAS_BACKEND=backend)
    assert done.returncode == 0, done.stderr
    return backend, path


def oracle(optimizer, batches, limit=np.inf):
    """Returns table and slots, one row and one summed gradient at a time, in float64."""
    rule, settings, rate = ORACLES[optimizer]
    table = batches["start"].astype(np.float64)
    slots = {name: np.full([ROWS, DIM], value) for name, value in
             oracle_optimizers.initial_slots(rule, settings).items()}
    for step, (ids, gradients) in enumerate(zip(
            batches["ids"], batches["gradients"].astype(np.float64), strict=True)):
        moves_all = oracle_optimizers.moves_untouched_rows(rule, settings)
        for row in range(ROWS) if moves_all else sorted(set(ids)):
            summed = np.clip(gradients[ids == row].sum(axis=0), -limit, limit)
            table[row], new = oracle_optimizers.update_row(
                rule, settings, summed, table[row],
                {name: values[row] for name, values in slots.items()}, rate, step)
            for name, values in new.items():
                slots[name][row] = values
    return [table, *slots.values()]


def differences(path, name, expected):
    with np.load(path / "tables.npz") as found:
        return [float(np.abs(found[f"{name}/{index}"] - values).max())
                for index, values in enumerate(expected)]


@pytest.mark.parametrize("optimizer", ORACLES)
def test_written_optimizer_is_that_of_a_tpu(trained, batches, optimizer):
    _, path = trained
    expected = oracle(optimizer, batches)
    for difference, values in zip(differences(path, optimizer, expected), expected, strict=True):
        assert difference <= 1e-5 * max(1.0, np.abs(values).max())


@pytest.mark.parametrize("optimizer", LIMITED)
def test_written_optimizer_limits_gradients_as_a_tpu_does(trained, batches, optimizer):
    _, path = trained
    expected = oracle(optimizer, batches, LIMIT)
    for difference, values in zip(differences(path, f"limited {optimizer}", expected), expected,
                                  strict=True):
        assert difference <= 1e-5 * max(1.0, np.abs(values).max())


def test_differences_are_of_the_order_that_the_page_states(trained, batches):
    backend, path = trained
    page = (ROOT / "migration_guide" / "jax.rst").read_text()
    column = 1 + list(FORMATS).index(backend)
    for optimizer in ORACLES:
        expected = oracle(optimizer, batches)[:1]
        [own] = differences(path, f"plain {optimizer}", expected)
        [written] = differences(path, optimizer, expected)
        print(f"{backend}: {optimizer}: {own:.1e}, written {written:.1e}")
        rows = [line for line in page.splitlines() if line.startswith(f"{optimizer}  ")]
        assert len(rows) == 1, optimizer
        stated = re.split(r"  +", rows[0])
        for value, text in ((own, stated[column]), (written, stated[3])):
            assert float(text) / 10 <= max(value, 1e-7) <= float(text) * 10, (optimizer, value)


def test_slots_go_to_checkpoints_of_tpuestimator_and_back(trained):
    backend, path = trained
    checkpoint.convert(path / "saved", path / "v1", "v1")
    contents = read_checkpoint(path / "v1")
    kinds = {name: (table.optimizer, set(table.slots)) for name, table in contents.tables.items()}
    assert kinds == {"words": ("Adam", {"momenta", "velocities"}),
                     "users": ("FTRL", {"accumulators", "linears"})}
    assert contents.global_step == 4
    for table in contents.tables.values():
        assert all(np.ptp(slot.read_rows(0, ROWS)) for slot in table.slots.values())
    checkpoint.convert(path / "v1", path / "back", FORMATS[backend], template=path / "saved")
    assert checkpoint.compare(path / "saved", path / "back").agree


def test_captured_tables_get_these_optimizers():
    adam, ftrl = (keras3_text._made(0.1, rule) for rule in (Adam(lazy_adam=False), FTRL(beta=0.5)))
    assert (adam[0], adam[1].split()) == ("keras_training.TableAdam", [
        "0.1,", "0.9,", "0.999,", "1e-08,", "is_lazy=False,", "sum_inside_sqrt=True"])
    assert (ftrl[0], ftrl[1].split()) == ("keras_training.TableFtrl", [
        "0.1,", "-0.5,", "0.1,", "0.0,", "0.0,", "0.5,",
        "multiply_linear_by_learning_rate=False"])
