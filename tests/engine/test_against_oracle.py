# SPDX-License-Identifier: Apache-2.0
"""Optimizers, combiners and input kinds, step by step against the NumPy oracle."""

import numpy as np
import pytest

from tests.batches import Setting, many_ids, one_id_each, train_beside_oracle
from tests.oracle import Feature, Optimizer, Oracle, Table
from tests.runners import RUNNERS

pytestmark = pytest.mark.usefixtures("kernels")

BATCH_SIZE, STEPS = 7, 4

OPTIMIZERS = {
    "SGD": Optimizer("SGD", 0.5),
    "Adagrad": Optimizer("Adagrad", 0.5, {"initial_accumulator": 0.25}),
    "Adam": Optimizer("Adam", 0.01, {"beta1": 0.75, "beta2": 0.9, "epsilon": 1e-3}),
}
RTOL = {"SGD": 1e-6, "Adagrad": 1e-6, "Adam": 1e-5}

# Tables and gradients are of size 1, so one float32 rounding is up to 2**-24 = 6e-8; sums of
# up to ten of them that cancel to almost 0 keep that error while a relative bound shrinks.
ATOL = 5e-7


def new_oracle(rng, optimizer, combiner):
    """Two features share one table, a third has its own of another width and combiner."""
    tables = [Table("shared", rng.uniform(-1, 1, [11, 5]).astype(np.float32), combiner, optimizer),
              Table("alone", rng.uniform(-1, 1, [6, 3]).astype(np.float32), "sum", optimizer)]
    features = [Feature("title", "shared"), Feature("body", "shared"), Feature("user", "alone")]
    return Oracle(tables, features)


def new_batch(rng, combiner, kind):
    """Duplicates within a sample (where it has several ids), across samples and features."""
    single = combiner is None or kind == "dense"
    make = one_id_each if single else many_ids
    title = make(rng, BATCH_SIZE, 11)
    body = make(rng, BATCH_SIZE, 11)
    body[3] = title[0]
    return {"title": title, "body": body, "user": one_id_each(rng, BATCH_SIZE, 6)}


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("kind", ["sparse", "dense", "ragged"])
@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn", None])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_engine_equals_oracle_at_every_step(optimizer, combiner, kind, runner):
    rng = np.random.default_rng(len(kind))
    setting = Setting({"title": kind, "body": kind, "user": kind})
    train_beside_oracle(
        RUNNERS[runner], new_oracle(rng, OPTIMIZERS[optimizer], combiner),
        [new_batch(rng, combiner, kind) for _ in range(STEPS)], setting,
        rtol=RTOL[optimizer], atol=ATOL)


@pytest.mark.parametrize("runner", RUNNERS)
def test_kinds_may_differ_between_features_of_one_table(runner):
    rng = np.random.default_rng(5)
    setting = Setting({"title": "ragged", "body": "flat sparse", "user": "dense"})
    train_beside_oracle(
        RUNNERS[runner], new_oracle(rng, OPTIMIZERS["Adagrad"], "mean"),
        [new_batch(rng, "mean", "mixed") for _ in range(STEPS)], setting, rtol=1e-6, atol=ATOL)
