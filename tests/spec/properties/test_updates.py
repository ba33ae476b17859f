# SPDX-License-Identifier: Apache-2.0
"""Properties that every optimizer must have, whatever its equation."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, many_ids, random_gradients
from tests.runners import RULE_CLASSES, RUNNERS
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Oracle, Table, cut

VOCABULARY_SIZE, BATCH_SIZE, STEPS = 13, 6, 3

# With a rate of 0 these still move rows. FTRL recomputes a row from its slots, of which
# a loaded row knows nothing; its plain form divides by the rate. FrequencyEstimator has no
# use for a rate.
MOVED_WITHOUT_A_RATE = ("FTRL", "FrequencyEstimator")


def new_oracle(optimizer, vocabulary_size=VOCABULARY_SIZE):
    rng = np.random.default_rng(1)
    dimension = 1 if optimizer.kind == "FrequencyEstimator" else 3
    table = Table("t", rng.uniform(0.5, 1.5, [vocabulary_size, dimension]).astype(np.float32),
                  "mean", optimizer)
    return Oracle([table], [Feature("a", "t"), Feature("b", "t")])


def new_batches(vocabulary_size=VOCABULARY_SIZE):
    rng = np.random.default_rng(2)
    return [{name: many_ids(rng, BATCH_SIZE, vocabulary_size) for name in ("a", "b")}
            for _ in range(STEPS)]


def run(oracle, batches, *, gradients=None, setting=None, slots=None, **plan_options):
    """Trains an engine that starts as the oracle; returns its tables and slots, uncut by host.

    Args:
        gradients: for each batch, of each feature; random ones unless given.
        slots: loaded in place of the optimizer's initial values.
    """
    setting = setting or Setting({"a": "sparse", "b": "sparse"})
    setting = dataclasses.replace(setting, plan_options=plan_options)
    [table] = oracle.tables.values()
    table.slots.update(slots or {})
    engine = setting.runner(RUNNERS["eager"], [table], list(oracle.features.values()))
    gradients = gradients or new_gradients(oracle, batches)
    for step, batch in enumerate(batches):
        engine.train(setting.arrays(batch), gradients[step], BATCH_SIZE, step)
    order = np.argsort(np.concatenate(
        cut(np.arange(len(table.values)), setting.num_hosts, setting.partition_strategy)))
    return {slot or "table": np.concatenate(parts)[order]
            for (_, slot), parts in engine.read().items()}


def new_gradients(oracle, batches):
    rng = np.random.default_rng(3)
    return [random_gradients(rng, oracle.activations(batch)) for batch in batches]


def used_slots(table):
    """Slot values as after some training: positive, so that roots exist."""
    rng = np.random.default_rng(4)
    return {slot: rng.uniform(0.25, 1.0, table.values.shape).astype(np.float32)
            for slot in table.slots}


def touched(batches):
    return {entry.id for batch in batches for samples in batch.values()
            for sample in samples for entry in sample}


def test_cases_cover_every_optimizer_of_the_package():
    assert {case.kind for case in CASES.values()} == set(RULE_CLASSES)


@pytest.mark.parametrize("case", [name for name, optimizer in CASES.items()
                                  if optimizer.kind not in MOVED_WITHOUT_A_RATE])
def test_learning_rate_of_zero_changes_no_weight(case):
    optimizer = dataclasses.replace(CASES[case], learning_rate=0.0)
    oracle = new_oracle(optimizer)
    # RMSProp's momentum already has the rates of past steps in it; it starts at 0.
    slots = {} if optimizer.kind == "RMSProp" else used_slots(oracle.tables["t"])
    state = run(oracle, new_batches(), slots=slots)
    np.testing.assert_array_equal(state["table"], oracle.tables["t"].values.astype(np.float32))


def divides_by_rate(optimizer):
    return optimizer.kind == "FTRL" and not optimizer.hyperparameters.get(
        "multiply_linear_by_learning_rate")


@pytest.mark.parametrize("case", [name for name, optimizer in CASES.items()
                                  if optimizer.kind in MOVED_WITHOUT_A_RATE
                                  and not divides_by_rate(optimizer)])
def test_what_moves_without_a_learning_rate_is_listed_rightly(case):
    oracle = new_oracle(dataclasses.replace(CASES[case], learning_rate=0.0))
    state = run(oracle, new_batches())
    assert np.isfinite(state["table"]).all()
    assert not np.array_equal(state["table"], oracle.tables["t"].values.astype(np.float32))


@pytest.mark.parametrize("case", [name for name, optimizer in CASES.items()
                                  if divides_by_rate(optimizer)])
def test_learning_rate_of_zero_is_refused_where_a_rule_divides_by_it(case):
    oracle = new_oracle(dataclasses.replace(CASES[case], learning_rate=0.0))
    with pytest.raises(tf.errors.InvalidArgumentError, match="lr is not a positive scalar: 0"):
        run(oracle, new_batches())


@pytest.mark.parametrize("num_hosts", [1, 3])
@pytest.mark.parametrize("case", CASES)
def test_rows_that_no_id_touched_stay_bit_identical(case, num_hosts):
    oracle = new_oracle(dataclasses.replace(CASES[case], decay=0.1, weight_limits=(0.6, 1.4)))
    batches = [{name: [[Entry(1), Entry(12)]] * BATCH_SIZE for name in ("a", "b")}] * STEPS
    table = oracle.tables["t"]
    slots = used_slots(table)
    setting = Setting({"a": "sparse", "b": "sparse"}, num_hosts=num_hosts)
    after = run(oracle, batches, slots=slots, setting=setting)
    untouched = sorted(set(range(VOCABULARY_SIZE)) - {1, 12})
    before = {"table": table.values.astype(np.float32), **slots}
    is_lazy = CASES[case].hyperparameters.get("lazy_adam", True)
    for name, values in before.items():
        assert np.array_equal(after[name][untouched], values[untouched]) == is_lazy
        assert not np.array_equal(after[name][[1, 12]], values[[1, 12]])


@pytest.mark.parametrize("case", CASES)
def test_splitting_and_reordering_duplicates_gives_the_same(case):
    """An id twice with gradients g and h is the id once with g + h, in any order."""
    rng = np.random.default_rng(5)
    optimizer = dataclasses.replace(CASES[case], gradient_limits=(-1.5, 1.5))
    dimension = 1 if optimizer.kind == "FrequencyEstimator" else 3
    apart = rng.uniform(-1, 1, [2 * BATCH_SIZE, dimension]).astype(np.float32)
    ids = np.concatenate([np.arange(BATCH_SIZE)] * 2)
    order = rng.permutation(2 * BATCH_SIZE)
    batches = {
        "together": (ids[:BATCH_SIZE], apart[:BATCH_SIZE] + apart[BATCH_SIZE:]),
        "split": (ids, apart),
        "reordered": (ids[order], apart[order]),
    }
    states = {}
    for name, (batch_ids, gradients) in batches.items():
        oracle = new_oracle(optimizer)
        setting = Setting({"a": "dense", "b": "dense"})
        [table], features = oracle.tables.values(), list(oracle.features.values())
        table.slots.update(used_slots(table))
        engine = setting.runner(RUNNERS["eager"], [table], features)
        half = len(batch_ids) // 2
        for step in range(STEPS):
            engine.train({"a": (batch_ids[:half], None, None), "b": (batch_ids[half:], None, None)},
                         {"a": gradients[:half], "b": gradients[half:]}, half, step)
        states[name] = engine.read()
    for name in ("split", "reordered"):
        for key, [wanted] in states["together"].items():
            np.testing.assert_allclose(states[name][key][0], wanted, 2e-6, 1e-6)


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize("case", CASES)
def test_any_number_of_hosts_equals_one(case, strategy):
    """From the same loaded tables and slots; the vocabulary of 5 is smaller than 8 hosts."""
    for vocabulary_size in (VOCABULARY_SIZE, 5):
        batches = new_batches(vocabulary_size)
        states = {}
        for num_hosts in (1, 2, 3, 8):
            oracle = new_oracle(CASES[case], vocabulary_size)
            setting = Setting({"a": "sparse", "b": "ragged"}, num_hosts=num_hosts,
                              partition_strategy=strategy)
            states[num_hosts] = run(oracle, batches, setting=setting,
                                    slots=used_slots(oracle.tables["t"]))
        for num_hosts in (2, 3, 8):
            for name, values in states[1].items():
                # A vectorised pow rounds an element by its place: a few 6e-8 for size 1.
                np.testing.assert_allclose(states[num_hosts][name], values, 1e-6, 5e-7)
