# SPDX-License-Identifier: Apache-2.0
"""Random plans on random batches: the engine equals the oracle.

Every commit tries other plans, 120 of them for each backend, half with several replicas;
`pytest tests/spec/properties --hypothesis-profile=thorough` tries 10,000.
"""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.batches import Setting, random_gradients
from tests.runners import RUNNERS, state_of
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Oracle, Table, contributions

pytestmark = pytest.mark.all_cases  # on every backend

# Float32 keeps 6e-8 of a value; weights that almost cancel in a mean, roots and learning
# rates magnify that up to a hundredfold.
TOLERANCE = 1e-5

# Gradients that cancel leave an error of 6e-8 of the sum of their sizes, up to 1 each before
# their coefficients; the rules divide it by roots of down to 1/10.
TOLERANCE_OF_SUMS = 6e-7

EIGHTHS = st.integers(-8, 16).map(lambda number: number / 8)  # their sums are exact


@st.composite
def optimizers(draw, num_replicas):
    optimizer = CASES[draw(st.sampled_from(sorted(CASES)))]
    is_lazy = optimizer.hyperparameters.get("lazy_adam", True)
    accumulate = draw(st.booleans()) if is_lazy and num_replicas > 1 else True
    rate = optimizer.learning_rate
    if draw(st.booleans()):
        optimizer = dataclasses.replace(optimizer, learning_rate=falling_from(rate))
    return dataclasses.replace(
        optimizer, accumulate=accumulate,
        gradient_limits=draw(limits()) if accumulate else (None, None),
        weight_limits=draw(limits()), decay=draw(st.sampled_from([0.0, 0.125, 0.5])),
        multiply_decay_by_learning_rate=draw(st.booleans()))


def falling_from(rate):
    """A function of the step for the engine, whose steps are tensors, and for the oracle."""
    return lambda step: rate / (1.0 + (tf.cast(step, tf.float32) if tf.is_tensor(step) else step))


def limits():
    return st.tuples(st.sampled_from([None, -1.0, -0.25]), st.sampled_from([None, 0.25, 1.0]))


@st.composite
def tables(draw, num_replicas):
    result = []
    for name in draw(st.sampled_from(["t", "t", "tu", "tuv"])):
        optimizer = draw(optimizers(num_replicas))
        vocabulary_size = draw(st.one_of(st.integers(1, 12), st.integers(1, 1000)))
        dimension = 1 if optimizer.kind == "FrequencyEstimator" else draw(
            st.one_of(st.integers(1, 4), st.integers(1, 130)))
        values = np.random.default_rng(draw(st.integers(0, 99))).uniform(
            -1, 1, [vocabulary_size, dimension]).astype(np.float32)
        result.append(Table(name, values, draw(st.sampled_from(["sum", "mean", "sqrtn", None])),
                            optimizer))
    return result


@st.composite
def samples(draw, batch_size, table, kind, weighted, length):
    """Ids from a small pool, so that most of them repeat; -1 and -2 are padding."""
    pool = draw(st.lists(st.integers(-2, len(table.values) - 1), min_size=1, max_size=4))
    single = kind == "dense" or (table.combiner is None and not length)
    at_least, at_most = (1, 1) if single else (0, 5)
    result = []
    for _ in range(batch_size):
        ids = draw(st.lists(st.sampled_from(pool), min_size=at_least, max_size=at_most))
        positions = range(len(ids))
        if kind == "sparse" and length:  # with holes, and beyond the length
            positions = sorted(draw(st.permutations(range(7)))[:len(ids)])
        result.append([Entry(id, draw(EIGHTHS) if weighted else 1.0, position)
                       for id, position in zip(ids, positions, strict=False)])
    return result


@st.composite
def programs(draw, numbers_of_replicas):
    """Returns an oracle, the setting of an engine, and batches for both."""
    num_replicas = draw(st.sampled_from(numbers_of_replicas))
    plan_tables = draw(tables(num_replicas))
    features, kinds, weighted = [], {}, []
    for table in plan_tables:
        for number in range(draw(st.sampled_from([1, 1, 2, 3]))):
            name = f"{table.name}{number}"
            length = draw(st.sampled_from([0, 0, 1, 3]))
            kinds[name] = draw(st.sampled_from(
                ["sparse", "ragged"] if length else ["sparse", "flat sparse", "dense", "ragged"]))
            features.append(Feature(name, table.name, length))
            weighted += [name] if draw(st.booleans()) else []
    factor = draw(st.sampled_from([None, 0.0, 0.5, 4.0]))
    oracle = Oracle(plan_tables, features, num_cores=num_replicas,
                    multiplier=None if factor is None else lambda step: factor / (1 + step))
    setting = Setting(
        kinds, tuple(weighted), draw(st.sampled_from([np.int32, np.int64])),
        draw(st.sampled_from([1, 1, 2, 3, 8])), draw(st.sampled_from(["div", "mod"])),
        num_replicas,
        plan_options={"gradient_multiplier_fn": None if factor is None else falling_from(factor)})
    batches = [draw(new_batches(oracle, setting)) for _ in range(draw(st.integers(1, 2)))]
    return oracle, setting, batches


@st.composite
def new_batches(draw, oracle, setting):
    batch_size = setting.num_replicas * draw(st.integers(0, 4))
    return {feature.name: draw(samples(batch_size, oracle.tables[feature.table],
                                       setting.kinds[feature.name],
                                       feature.name in setting.weighted, feature.length))
            for feature in oracle.features.values()}


WAYS = st.sampled_from(["eager", "eager", *RUNNERS])  # of which eager steps take the least time


@given(programs([1]), st.integers(0, 99), WAYS)
def test_engine_equals_oracle_on_any_plan_and_batch(program, seed, way):
    check(*program, seed, way)


@settings(max_examples=settings().max_examples // 4)  # each takes four times as long
@given(programs([2, 3]), st.integers(0, 99), WAYS)
def test_engine_with_replicas_equals_oracle_on_any_plan_and_batch(program, seed, way):
    check(*program, seed, way)


def check(oracle, setting, batches, seed, way):
    rng = np.random.default_rng(seed)
    plan_tables = list(oracle.tables.values())
    engine = setting.runner(RUNNERS[way], plan_tables, list(oracle.features.values()))
    summed = 0.0
    for step, batch in enumerate(batches):
        expected = oracle.activations(batch)
        gradients = random_gradients(rng, expected)
        batch_size = len(next(iter(batch.values())))
        activations = engine.train(setting.arrays(batch), gradients, batch_size, step)
        assert_close(activations, expected, summed)
        summed += largest_sum(oracle, batch, step)
        oracle.apply(batch, gradients, step)
        state = state_of(plan_tables, setting.num_hosts, setting.partition_strategy)
        assert_close(joined(engine.read()), joined(state), summed)


def largest_sum(oracle, batch, step):
    """The largest sum of sizes of what gradients of 1 would give to one row."""
    sums = {}
    for name, samples in batch.items():
        feature = oracle.features[name]
        combiner = oracle.tables[feature.table].combiner
        for _, _, id, coefficient in contributions(feature, combiner, samples):
            row = feature.table, id
            sums[row] = sums.get(row, 0.0) + abs(coefficient * oracle.multiplier(step))
    return max(sums.values(), default=0.0)


def joined(state):
    return {key: np.concatenate(parts) for key, parts in state.items()}


def assert_close(actual, expected, summed):
    assert actual.keys() == expected.keys()
    for key, values in expected.items():
        scale = max(1.0, np.abs(values).max(initial=0.0))
        np.testing.assert_allclose(
            actual[key], values, TOLERANCE, TOLERANCE * scale + TOLERANCE_OF_SUMS * summed,
            err_msg=str(key))
