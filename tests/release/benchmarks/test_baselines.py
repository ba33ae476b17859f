# SPDX-License-Identifier: Apache-2.0
"""Every baseline computes the same: after the same steps, the same tables."""

import importlib

import numpy as np
import pytest

from benchmarks import baselines
from benchmarks.batches import make_batches, make_gradients, unique_rows
from benchmarks.workloads import (
    INITIAL_ACCUMULATOR,
    INITIAL_VALUE,
    LEARNING_RATE,
    TINY,
)
from tests.kernel_choice import found_compiler

KERNELS = "TPU_ESTIMATOR_EMBEDDING_KERNELS"
STEPS = 3
BATCHES = make_batches(TINY, 2)


def make(entry: baselines.Entry):
    """Returns the baseline, in this process."""
    module = importlib.import_module(f"benchmarks.baselines.{entry.module}")
    return module.Baseline(TINY, BATCHES, **dict(entry.options))


def expected_tables() -> list[np.ndarray]:
    """Adagrad in plain loops over NumPy arrays."""
    tables = []
    for table, ids_per_sample in enumerate(TINY.ids_per_sample):
        rows = np.full((TINY.rows, TINY.dim), INITIAL_VALUE)
        accumulators = np.full_like(rows, INITIAL_ACCUMULATOR)
        share = 1 / ids_per_sample if TINY.combiner(table) == "mean" else 1
        gradient = np.repeat(make_gradients(TINY)[table] * share, ids_per_sample, axis=0)
        for step in range(STEPS):
            sums = np.zeros_like(rows)
            np.add.at(sums, BATCHES[step % 2].ids[table], gradient)
            accumulators += sums ** 2
            rows -= LEARNING_RATE * sums / np.sqrt(accumulators)
        tables.append(rows)
    return tables


@pytest.mark.parametrize("name", [
    "tf_ops", "native", "native_function", "native_statistics", "stock_graph", "keras", "torch",
    "fbgemm", "low_level", "tpu_embedding", "tpu_embedding_v2", "layer_fit"])
def test_tables_are_those_of_plain_adagrad(name, monkeypatch):
    entry = baselines.ALL[name]
    for module in entry.needs:
        pytest.importorskip(module)
    if dict(entry.environment).get(KERNELS) == "native":
        found_compiler()
    for variable, value in entry.environment:
        monkeypatch.setenv(variable, value)
    baseline = make(entry)
    baseline.run(0, STEPS)
    for table, expected in zip(baseline.tables(), expected_tables(), strict=True):
        np.testing.assert_allclose(table, expected, rtol=1e-5, atol=1e-6)
    baseline.close()


def test_stock_and_this_estimator_train_the_same_tables(monkeypatch):
    monkeypatch.setenv(KERNELS, "tf")
    trained = []
    for name in ("estimator", "stock_estimator_records"):
        baseline = make(baselines.ALL[name])
        assert baseline.run(0, STEPS) > 0
        trained.append(baseline.tables())
        baseline.close()
    for ours, stock in zip(*trained, strict=True):
        assert np.abs(ours - INITIAL_VALUE).max() > 1e-4
        np.testing.assert_allclose(ours, stock, rtol=1e-5, atol=1e-6)


def test_parsing_reads_batch_after_batch():
    baseline = make(baselines.ALL["parsing"])
    assert baseline.run(0, 5) > 0
    baseline.close()


def test_memory_bound_updates_every_distinct_row_once_a_step():
    found_compiler()
    baseline = make(baselines.ALL["bound"])
    assert baseline.run(0, STEPS) > 0
    counts = np.zeros(TINY.rows * TINY.num_tables)
    for step in range(STEPS):
        for table, rows in enumerate(unique_rows(TINY, BATCHES[step % 2])):
            counts[rows + table * TINY.rows] += 1
    slots = baseline.slots()
    assert (slots == slots[:, :1]).all()
    np.testing.assert_array_equal(slots[:, 0] - 1, counts)
    baseline.close()


def test_presorted_step_is_a_lookup_and_a_step_of_adagrad():
    found_compiler()
    baseline = make(baselines.ALL["bound_ids"])
    assert baseline.run(0, STEPS) > 0
    rows = np.full((TINY.num_tables, TINY.rows, TINY.dim), INITIAL_VALUE)
    slots = np.full_like(rows, INITIAL_ACCUMULATOR)
    looked_up = np.zeros((TINY.num_tables, TINY.batch_size, TINY.dim))
    for step in range(STEPS):
        for table, gradients in enumerate(make_gradients(TINY)):
            of_samples = BATCHES[step % 2].ids[table].reshape(TINY.batch_size, -1)
            looked_up[table] = rows[table][of_samples].sum(1)
            sums = np.zeros((TINY.rows, TINY.dim))
            np.add.at(sums, of_samples, gradients[:, None])
            slots[table] += sums ** 2
            rows[table] -= LEARNING_RATE * sums / np.sqrt(slots[table])
    np.testing.assert_allclose(baseline.activations(), looked_up.reshape(-1, TINY.dim), rtol=1e-4,
                               atol=1e-5)
    np.testing.assert_allclose(baseline.rows(), rows.reshape(-1, TINY.dim), rtol=1e-4, atol=1e-5)
    baseline.close()
