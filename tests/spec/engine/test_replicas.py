# SPDX-License-Identifier: Apache-2.0
"""Several replicas with a share of the batch each, against the NumPy oracle."""

import dataclasses
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, many_ids, train_beside_oracle
from tests.runners import RUNNERS, to_plan
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Optimizer, Oracle, Table
from tpu_estimator_embedding.engine.stacked_activations import (
    split_activations,
    split_replicas,
    stack_gradients,
)

pytestmark = pytest.mark.usefixtures("kernels")

BATCH_SIZE, STEPS = 8, 3
SIZES = {"t": 7, "u": 3}
TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}  # values of size 1, some of them divided
LAZY = [name for name in CASES if name != "Adam, not lazy"]  # which needs accumulation


def new_oracle(optimizer, num_cores):
    rng = np.random.default_rng(1)
    dimension = 1 if optimizer.kind == "FrequencyEstimator" else 2
    tables = [Table(name, rng.uniform(-1, 1, [size, dimension]).astype(np.float32), "mean",
                    optimizer) for name, size in SIZES.items()]
    features = [Feature("a", "t"), Feature("b", "t", 2), Feature("c", "u")]
    return Oracle(tables, features, num_cores=num_cores)


def new_batches():
    rng = np.random.default_rng(2)
    return [{"a": many_ids(rng, BATCH_SIZE, SIZES["t"], weighted=True),
             "b": many_ids(rng, BATCH_SIZE, SIZES["t"], padded=True),
             "c": many_ids(rng, BATCH_SIZE, SIZES["u"])} for _ in range(STEPS)]


def new_setting(num_replicas, **options):
    return Setting({"a": "ragged", "b": "sparse", "c": "sparse"}, weighted=("a",),
                   num_replicas=num_replicas, **options)


class StepOfFour(NamedTuple):
    """The part of StepIds that says how long the shares of two replicas with 4 samples are."""

    def rows_of_replicas(self, plan):
        return {"t": tf.constant([12, 12]), "u": tf.constant([4, 4])}


def test_gradients_are_stacked_in_the_order_of_the_activations():
    oracle = new_oracle(CASES["SGD"], 2)
    plan = to_plan(list(oracle.tables.values()), list(oracle.features.values()))
    stacked = {name: np.arange(2.0 * rows, dtype=np.float32).reshape(-1, 2)
               for name, rows in (("t", 24), ("u", 8))}
    replicas = [split_activations(plan, part, 4)
                for part in split_replicas(plan, stacked, StepOfFour(), 2)]
    np.testing.assert_array_equal(replicas[1]["a"], stacked["t"][12:16])
    np.testing.assert_array_equal(replicas[1]["b"], stacked["t"][16:].reshape(4, 2, 2))
    for name, gradients in stack_gradients(plan, replicas).items():
        np.testing.assert_array_equal(gradients, stacked[name])


@pytest.mark.all_cases  # the two kernels decide by other conditions whether cores update
@pytest.mark.parametrize("case", LAZY)
def test_cores_update_one_after_another_without_accumulation(case):
    check_core_by_core(case, "eager", new_setting(4))


def check_core_by_core(case, runner, setting):
    optimizer = dataclasses.replace(CASES[case], accumulate=False, decay=0.125,
                                    weight_limits=(-0.75, 0.75))
    train_beside_oracle(RUNNERS[runner], new_oracle(optimizer, setting.num_replicas),
                        new_batches(), setting, **TOLERANCE)


@pytest.mark.parametrize("id, first, second", [(0, 1.0, 3.0), (1, 3.0, 1.0)])
def test_the_core_that_a_row_lives_on_updates_it_first(id, first, second):
    """Two cores with gradients 1 and 3: momentum m = 0.5 m + g, w = w - m."""
    table = Table("t", np.zeros([2, 1]), "sum", Optimizer("Momentum", 1.0, {"momentum": 0.5},
                                                          accumulate=False))
    oracle = Oracle([table], [Feature("a", "t")], num_cores=2)
    setting = Setting({"a": "dense"}, num_replicas=2)
    engine = setting.runner(RUNNERS["eager"], [table], list(oracle.features.values()))
    engine.train(setting.arrays({"a": [[Entry(id)], [Entry(id)]]}),
                 {"a": np.array([[1.0], [3.0]])}, 2, 0)
    momentum = 0.5 * first + second
    [values], [momenta] = engine.read()["t", None], engine.read()["t", "momenta"]
    assert momenta[id] == momentum
    assert values[id] == -first - momentum
