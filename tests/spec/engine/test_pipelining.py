# SPDX-License-Identifier: Apache-2.0
"""Looking up a batch before the update of the previous batch: staleness of one step."""

import numpy as np
import pytest

from tests.batches import Setting, many_ids
from tests.runners import RUNNERS
from tests.spec.oracle import Entry, Feature, Optimizer, Oracle, Table, train
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.step_ids import prepare_ids

BATCH_SIZE, STEPS = 5, 5


def new_oracle(optimizer=None):
    rng = np.random.default_rng(1)
    table = Table("t", rng.uniform(-1, 1, [6, 2]).astype(np.float32), "mean",
                  optimizer or Optimizer("Adagrad", 0.5))
    return Oracle([table], [Feature("a", "t")])


def gradients_of(step, activations):
    return {name: values - 0.25 * step for name, values in activations.items()}


def test_oracle_sees_the_table_of_two_steps_before():
    """SGD on one row from 8 with a rate of 1/2 and the activation as its own gradient."""
    seen = {}
    for pipelined in (False, True):
        table = Table("t", [[8.0]], "sum", Optimizer("SGD", 0.5))
        oracle = Oracle([table], [Feature("a", "t")])
        steps = train(oracle, [{"a": [[Entry(0)]]}] * 4, lambda step, activations: activations,
                      pipelined=pipelined)
        seen[pipelined] = [float(activations["a"][0, 0]) for activations in steps]
    assert seen == {False: [8.0, 4.0, 2.0, 1.0], True: [8.0, 8.0, 4.0, 0.0]}


@pytest.mark.parametrize("pipelined", [False, True])
def test_engine_in_either_order_equals_oracle(pipelined):
    rng = np.random.default_rng(2)
    batches = [{"a": many_ids(rng, BATCH_SIZE, 6)} for _ in range(STEPS)]
    oracle, engine_oracle = new_oracle(), new_oracle()
    expected = train(oracle, batches, gradients_of, pipelined=pipelined)
    [table] = engine_oracle.tables.values()
    setting = Setting({"a": "sparse"})
    runner = setting.runner(RUNNERS["eager"], [table], list(engine_oracle.features.values()))
    engine, pending = runner.engine, None
    for step, batch in enumerate(batches):
        if pending and not pipelined:
            engine.apply_gradients(*pending)
        datas = {"a": EnqueueData(*setting.arrays(batch)["a"])}
        ids = prepare_ids(runner.plan, datas, BATCH_SIZE, training=True)
        activations = engine.lookup(ids)
        if pending and pipelined:
            engine.apply_gradients(*pending)
        pending = ids, gradients_of(step, activations), step
        np.testing.assert_allclose(activations["t"], expected[step]["a"], 1e-6, 1e-6)
    engine.apply_gradients(*pending)
    for slot, values in {None: oracle.tables["t"].values, **oracle.tables["t"].slots}.items():
        np.testing.assert_allclose(runner.read()["t", slot][0], values, 1e-6, 1e-6)
