# SPDX-License-Identifier: Apache-2.0
"""Tables partitioned over hosts, part by part against the NumPy oracle."""

import numpy as np
import pytest

from tests.batches import Setting, many_ids, train_beside_oracle
from tests.oracle import Feature, Optimizer, Oracle, Table
from tests.runners import RUNNERS

pytestmark = pytest.mark.usefixtures("kernels")

ATOL = 1e-6  # values of size 1 in float32: see test_against_oracle.py


@pytest.mark.parametrize("num_hosts, runner", [
    (1, "session"), (2, "eager"), (3, "function"), (3, "session"), (8, "eager"), (8, "session")])
@pytest.mark.parametrize("strategy", ["div", "mod"])
def test_parts_equal_the_cut_table_after_every_step(num_hosts, strategy, runner):
    """The vocabularies divide evenly, leave a remainder, or are smaller than the hosts."""
    rng = np.random.default_rng(num_hosts)
    sizes = {"even": 24, "uneven": 13, "small": 2, "one": 1}
    tables = [Table(name, rng.uniform(-1, 1, [size, 3]).astype(np.float32), "mean",
                    Optimizer("Adagrad", 0.5)) for name, size in sizes.items()]
    features = [Feature(name, name) for name in sizes] + [Feature("sequence", "uneven", 3)]
    oracle = Oracle(tables, features)
    batches = [{feature.name: many_ids(rng, 8, sizes[feature.table], padded=True)
                for feature in features} for _ in range(3)]
    setting = Setting({feature.name: "sparse" for feature in features},
                      num_hosts=num_hosts, partition_strategy=strategy)
    runner = train_beside_oracle(RUNNERS[runner], oracle, batches, setting, rtol=1e-6, atol=ATOL)
    assert {name: len(table.parts) for name, table in runner.engine.variables.items()} == {
        name: min(size, num_hosts) for name, size in sizes.items()}


@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (3, "mod")])
def test_weights_follow_their_ids_to_the_hosts(num_hosts, strategy):
    rng = np.random.default_rng(7)
    table = Table("t", rng.uniform(-1, 1, [10, 2]).astype(np.float32), "sqrtn",
                  Optimizer("Adagrad", 0.5))
    oracle = Oracle([table], [Feature("a", "t")])
    batches = [{"a": many_ids(rng, 8, 10, weighted=True)} for _ in range(3)]
    setting = Setting({"a": "ragged"}, weighted=("a",), num_hosts=num_hosts,
                      partition_strategy=strategy)
    train_beside_oracle(RUNNERS["session"], oracle, batches, setting, rtol=1e-6, atol=ATOL)
