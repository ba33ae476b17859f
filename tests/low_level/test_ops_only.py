# SPDX-License-Identifier: Apache-2.0
"""Programs whose only configuration is a message, beside the oracle."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests import oracle
from tests.batches import many_ids, with_holes
from tests.low_level.ops_only_program import (
    FEATURES,
    TABLES,
    VOCABULARIES,
    OpsOnly,
    config,
    gradient_of,
    random_tables,
)
from tests.optimizer_cases import CASES
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.low_level import chosen_cores

tpu_estimator_embedding.install()

v1 = tf.compat.v1

SHARE = 3  # samples of a core
TOLERANCE = {"rtol": 2e-5, "atol": 2e-6}


@pytest.fixture(autouse=True)
def a_machine_without_a_tpu(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", set())
    monkeypatch.delenv(chosen_cores.HOSTS, raising=False)
    monkeypatch.setenv(tpu_cores.VARIABLE, "1")  # ops on the hosts of a TPU run here


def random_batch(rng, size):
    words = VOCABULARIES["words"]
    return {"history": with_holes(rng, many_ids(rng, size, words), last_position=4),
            "shop": many_ids(rng, size, VOCABULARIES["shops"], weighted=True),
            "clicked": many_ids(rng, size, words, weighted=True, padded=True)}


class Beside:
    """A program of ops and the oracle of the same tables."""

    def __init__(self, optimizer, *, cores=1, rates=None, dimensions=(4, 3), seed=5, **options):
        self.rng = np.random.default_rng(seed)
        self.cores = cores
        tables = random_tables(self.rng, optimizer, dimensions)
        self.program = OpsOnly(config(tables, SHARE, cores=cores, **options), tables, rates)
        self.oracle = oracle.Oracle(tables, FEATURES, num_cores=cores)

    def step(self, number, apply=True):
        batch = random_batch(self.rng, SHARE * self.cores)
        expected = self.oracle.activations(batch)
        found = self.program.train(batch, number)
        for feature, of_cores in zip(FEATURES, zip(*found, strict=True), strict=True):
            np.testing.assert_allclose(np.concatenate(of_cores), expected[feature.name],
                                       err_msg=feature.name, **TOLERANCE)
        update = batch, {name: gradient_of(value) for name, value in expected.items()}, number
        if apply:
            self.oracle.apply(*update)
        return update

    def check_tables(self):
        found = self.program.retrieve()
        for name, table in self.oracle.tables.items():
            for value, expected in {"parameters": table.values, **table.slots}.items():
                parts = oracle.cut(expected, self.program.proto.num_hosts, self.program.strategy)
                for own, part in zip(found[name][value], parts, strict=True):
                    np.testing.assert_allclose(own, part, err_msg=f"{name} {value}", **TOLERANCE)


@pytest.mark.parametrize("cores, hosts, strategy", [(1, 1, "div"), (2, 2, "mod")])
@pytest.mark.parametrize("case", CASES)
def test_every_optimizer_loads_trains_and_retrieves(case, cores, hosts, strategy):
    options = {"cores": cores, "hosts": hosts, "strategy": strategy}
    optimizer = CASES[case]
    if optimizer.kind == "FrequencyEstimator":  # its learning rate is the step
        optimizer = dataclasses.replace(optimizer, hyperparameters={
            **optimizer.hyperparameters, "weight_exponent": 1.0})
        options |= {"tags": dict.fromkeys(TABLES, 0), "rates": lambda step: [step],
                    "dimensions": (1, 1)}
    pair = Beside(optimizer, **options)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


@pytest.mark.parametrize("cores, hosts, strategy", [(2, 1, "div"), (2, 2, "div"), (4, 2, "mod")])
def test_cores_and_hosts(cores, hosts, strategy):
    pair = Beside({"words": CASES["Adam"], "shops": CASES["FTRL"]}, cores=cores, hosts=hosts,
                  strategy=strategy)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


@pytest.mark.parametrize("cores", [1, 2])
def test_learning_rates_are_those_of_the_tags(cores):
    def of_words(step):
        return 0.5 / (1.0 + step)

    def of_shops(step):
        return 0.125 * (1.0 + step)

    pair = Beside({"words": dataclasses.replace(CASES["Adagrad"], learning_rate=of_words),
                   "shops": dataclasses.replace(CASES["SGD"], learning_rate=of_shops)},
                  cores=cores, tags={"words": 1, "shops": 0},
                  rates=lambda step: [of_shops(step), of_words(step)])
    for step in range(3):
        pair.step(step)
    pair.check_tables()


def test_limits_decay_and_accumulation_are_those_of_the_message():
    limited = dataclasses.replace(
        CASES["Adagrad"], gradient_limits=(-0.25, 0.5), weight_limits=(-0.75, 0.875), decay=0.125,
        multiply_decay_by_learning_rate=True)
    pair = Beside({"words": limited, "shops": dataclasses.replace(
        CASES["Momentum"], accumulate=False)}, cores=2)
    for step in range(3):
        pair.step(step)
    pair.check_tables()


def test_retrieving_in_another_session_applies_the_delayed_update():
    pair = Beside(CASES["Adagrad"], cores=2, pipelined=True)
    first = pair.step(0, apply=False)
    second = pair.step(1, apply=False)
    pair.oracle.apply(*first)
    pair.oracle.apply(*second)
    pair.check_tables()
    third = pair.step(2, apply=False)
    pair.oracle.apply(*third)
    pair.check_tables()


def test_loading_in_another_session_drops_the_delayed_update():
    pair = Beside(CASES["Adagrad"], pipelined=True)
    pair.step(0, apply=False)
    pair.program.load(pair.oracle.tables.values())
    pair.check_tables()
