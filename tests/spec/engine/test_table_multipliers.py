# SPDX-License-Identifier: Apache-2.0
"""Tables with separate gradient multipliers, against the NumPy oracle."""

import numpy as np
import pytest

from tests.batches import Setting, many_ids, random_gradients, train_beside_oracle
from tests.runners import RUNNERS
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Feature, Oracle, Table
from tpu_estimator_embedding import multipliers
from tpu_estimator_embedding.multipliers import TableMultipliers
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

pytestmark = pytest.mark.usefixtures("kernels")

BATCH_SIZE, STEPS = 8, 3
TABLES = {"user": 7, "user_city": 5, "item": 9}
KINDS = dict.fromkeys(TABLES, "sparse")
TOLERANCE = {"rtol": 1e-5, "atol": 5e-6}

COMMON = multipliers.cosine(0.5, 4)
OWN = {"user": multipliers.linear_warmup(2, start=0.25), "user_city": multipliers.constant(0.5)}


def new_oracle(optimizer, num_cores=1, **multipliers_of):
    rng = np.random.default_rng(1)
    dimension = 1 if optimizer.kind == "FrequencyEstimator" else 3
    return Oracle([Table(name, rng.uniform(-1, 1, [rows, dimension]).astype(np.float32), "mean",
                         optimizer) for name, rows in TABLES.items()],
                  [Feature(name, name) for name in TABLES], num_cores=num_cores, **multipliers_of)


def new_batches():
    rng = np.random.default_rng(2)
    return [{name: many_ids(rng, BATCH_SIZE, rows) for name, rows in TABLES.items()}
            for _ in range(STEPS)]


class Multiplied(Setting):
    """Plans in which tables have their own multipliers."""

    own = TableMultipliers.of({"user": OWN["user"], "user_*": OWN["user_city"]})

    def runner(self, runner_class, tables, features):
        build = EmbeddingPlan.build
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(EmbeddingPlan, "build", lambda *args, **options: build(
                *args, **options).with_multipliers(self.own))
            return super().runner(runner_class, tables, features)


def check(case, runner, **setting):
    oracle = new_oracle(CASES[case], setting.get("num_replicas", 1), multiplier=COMMON,
                        table_multipliers=OWN)
    train_beside_oracle(
        RUNNERS[runner], oracle, new_batches(),
        Multiplied(KINDS, plan_options={"gradient_multiplier_fn": COMMON}, **setting),
        **TOLERANCE)


@pytest.mark.parametrize("case", CASES)
def test_every_optimizer(case):
    check(case, "session")


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("case", ["Adagrad", "Adam, not lazy"])
@pytest.mark.parametrize("setting", [
    {"num_hosts": 3}, {"num_hosts": 3, "partition_strategy": "mod", "num_replicas": 2},
    {"num_replicas": 4}], ids=str)
def test_hosts_and_replicas(case, runner, setting):
    check(case, runner, **setting)


def trained(case, runner, own):
    """Tables and slots after training with these multipliers of tables."""
    oracle, rng = new_oracle(CASES[case]), np.random.default_rng(3)
    setting = Multiplied(KINDS)
    object.__setattr__(setting, "own", TableMultipliers.of(own))
    engine = setting.runner(RUNNERS[runner], list(oracle.tables.values()),
                            list(oracle.features.values()))
    before = engine.read()
    for step, batch in enumerate(new_batches()):
        gradients = random_gradients(rng, oracle.activations(batch))
        engine.train(setting.arrays(batch), gradients, BATCH_SIZE, step)
    return before, engine.read()


def bits(state, tables=TABLES):
    return {key: [part.tobytes() for part in parts] for key, parts in state.items()
            if key[0] in tables}


@pytest.mark.parametrize("case", CASES)
def test_1_is_no_multiplier_bit_for_bit(case):
    _, without = trained(case, "session", {})
    _, of_one = trained(case, "session", {"*": 1})
    assert bits(of_one) == bits(without)


@pytest.mark.parametrize("case", ["SGD", "Adagrad"])
def test_0_leaves_tables_and_slots_bit_for_bit_and_the_others_alone(case):
    _, without = trained(case, "session", {})
    before, after = trained(case, "session", {"user*": 0})
    users = [name for name in TABLES if name != "item"]
    assert bits(after, users) == bits(before, users) != bits(without, users)
    assert bits(after, ["item"]) == bits(without, ["item"])
