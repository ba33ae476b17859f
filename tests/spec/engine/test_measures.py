# SPDX-License-Identifier: Apache-2.0
"""Measures of updates, against NumPy; measuring changes no bit."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, many_ids, random_gradients
from tests.runners import RUNNERS, EagerRunner, state_of
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Oracle, Table, add_cores, clip
from tpu_estimator_embedding.engine.measures import create_marks, find_trained_rows
from tpu_estimator_embedding.engine.step_ids import prepare_replicas
from tpu_estimator_embedding.multipliers import TableMultipliers
from tpu_estimator_embedding.statistics.table_statistics import summarize

pytestmark = pytest.mark.usefixtures("kernels")

BATCH_SIZE, STEPS = 8, 3
SIZES = {"t": 30, "u": 4}
KINDS = {"a": "ragged", "b": "sparse", "c": "sparse"}
OPTIONS = {"gradient_limits": (-0.25, 0.3), "decay": 0.125, "weight_limits": (-0.75, 0.75)}
SETTINGS = {
    "one host": {}, "three hosts": {"num_hosts": 3},
    "mod": {"num_hosts": 3, "partition_strategy": "mod", "num_replicas": 2}}


class Measured(EagerRunner):
    """Updates by `measured_update`, and keeps what it returned."""

    measures = True

    def _create(self):
        engine = super()._create()
        self.marks = create_marks(engine.variables)
        return engine

    def _step(self, inputs):
        replicas = range(self.num_replicas)
        ids = prepare_replicas(self.plan, [(self._datas(inputs, replica), inputs["batch_size"])
                                           for replica in replicas], training=True)
        step = self.engine.step_gradients(self._stack(inputs), inputs["step"])
        self.measured = self.engine.measured_update(
            ids, step, self.marks, tf.constant(self.measures))
        return {}, None


class Counting(Measured):
    measures = False


def new_oracle(optimizer, num_cores, dimension=5):
    rng = np.random.default_rng(1)
    return Oracle([Table(name, rng.uniform(-1, 1, [size, dimension]).astype(np.float32), "mean",
                         optimizer) for name, size in SIZES.items()],
                  [Feature("a", "t"), Feature("b", "t", 2), Feature("c", "u")],
                  num_cores=num_cores, table_multipliers={"t": lambda step: 0.5})


def new_batch(rng):
    return {"a": many_ids(rng, BATCH_SIZE, SIZES["t"], weighted=True, max_ids=9),
            "b": many_ids(rng, BATCH_SIZE, SIZES["t"], padded=True),
            "c": many_ids(rng, BATCH_SIZE, SIZES["u"], padded=True)}


def expected_of(oracle, table, batch, gradients, step, trained):
    """What NumPy finds: applies the step to the oracle, too, if it is the last table."""
    of_cores = oracle._row_gradients(table, batch, gradients, step)
    of_rows = [add_cores(of_cores)] if table.optimizer.accumulate else of_cores
    sums = np.array([row for core in of_rows for row in core.values()])
    clipped = clip(sums, table.optimizer.gradient_limits)
    given = [entry.id for name, samples in batch.items() if oracle.features[name].table ==
             table.name for entries in samples for entry in entries]
    used = [entry.id for name, samples in batch.items() if oracle.features[name].table ==
            table.name for entries in samples for entry in entries if entry.id >= 0 and
            entry.position < (oracle.features[name].length or 99)]
    ids, counts = np.unique(used, return_counts=True)
    trained |= set(ids.tolist())
    before = table.values[ids].copy()
    return {
        "gradient_norm": np.linalg.norm(sums), "clipped_gradient_norm": np.linalg.norm(clipped),
        "clipped_share": np.mean((sums != clipped).any(1)), "unique_ids": len(ids),
        "total_ids": len(used), "dropped_ids": len(given) - len(used),
        "coverage": len(trained) / len(table.values)}, ids, counts, before


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case, options, dimension", [
    ("SGD", {}, 5), ("Adagrad", OPTIONS, 5), ("Adagrad", OPTIONS, 2100),  # of several tiles
    ("Adam, not lazy", OPTIONS, 5), ("Momentum", {**OPTIONS, "accumulate": False}, 5),
    ("FrequencyEstimator", {}, 1)])
def test_statistics_are_those_of_numpy(case, options, dimension, setting):
    setting = Setting(KINDS, weighted=("a",), **SETTINGS[setting])
    oracle = new_oracle(dataclasses.replace(CASES[case], **options), setting.num_replicas,
                        dimension)
    tables = list(oracle.tables.values())
    runner = setting.runner(Measured, tables, list(oracle.features.values()))
    runner.plan = runner.engine.plan = runner.plan.with_multipliers(
        TableMultipliers.of({"t": 0.5}))
    rng, trained = np.random.default_rng(2), {name: set() for name in SIZES}
    for step in range(STEPS):
        batch = new_batch(rng)
        gradients = random_gradients(rng, oracle.activations(batch))
        expected = {name: expected_of(oracle, table, batch, gradients, step, trained[name])
                    for name, table in oracle.tables.items()}
        oracle.apply(batch, gradients, step)
        runner.train(setting.arrays(batch), gradients, BATCH_SIZE, step)
        found = summarize(runner.plan, tf.nest.map_structure(
            lambda tensor: tensor.numpy(), runner.measured))
        assert list(found) == list(SIZES)
        for name, (numbers, ids, counts, before) in expected.items():
            after = oracle.tables[name].values[ids]
            numbers = {**numbers, "multiplier": 0.5 if name == "t" else 1.0,
                       "learning_rate": CASES[case].learning_rate,
                       "update_norm": np.linalg.norm(after - before),
                       "update_ratio": np.linalg.norm(after - before) / np.linalg.norm(before)}
            assert found[name].scalars == pytest.approx(numbers, rel=2e-5)
            np.testing.assert_allclose(np.sort(found[name].row_norms), np.sort(
                np.linalg.norm(after, axis=1)), 2e-5, 1e-6)
            hottest = sorted(zip(-counts, ids, strict=True))[:10]
            assert found[name].hot_rows == tuple((id, -count) for count, id in hottest)


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", CASES)
def test_measuring_changes_no_bit(case, setting):
    optimizer = dataclasses.replace(CASES[case], **OPTIONS)
    setting = Setting(KINDS, weighted=("a",), **SETTINGS[setting])
    states = []
    for runner_class in (RUNNERS["eager"], Counting, Measured):
        oracle = new_oracle(optimizer, setting.num_replicas,
                            1 if optimizer.kind == "FrequencyEstimator" else 5)
        rng = np.random.default_rng(2)
        runner = setting.runner(runner_class, list(oracle.tables.values()),
                                list(oracle.features.values()))
        for step in range(STEPS):
            batch = new_batch(rng)
            gradients = random_gradients(rng, oracle.activations(batch))
            runner.train(setting.arrays(batch), gradients, BATCH_SIZE, step)
        states.append({key: [part.tobytes() for part in parts]
                       for key, parts in runner.read().items()})
    assert states[0] == states[1] == states[2]


def test_rows_with_slots_that_changed_were_trained():
    oracle = new_oracle(CASES["Adagrad"], 1)
    table = oracle.tables["t"]
    table.slots["accumulators"][[3, 7], 1] += 1
    runner = Setting(KINDS).runner(Measured, list(oracle.tables.values()),
                                   list(oracle.features.values()))
    runner.write(state_of(oracle.tables.values(), 1, "div"))
    find_trained_rows(runner.plan, runner.engine.variables, runner.marks)
    assert np.flatnonzero(runner.marks["t"][0].numpy()).tolist() == [3, 7]
    assert not runner.marks["u"][0].numpy().any()
