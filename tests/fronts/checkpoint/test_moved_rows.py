# SPDX-License-Identifier: Apache-2.0
"""Tables and slots are restored bit for bit from any layout into any other."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tests.spec.oracle import cut
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

v1 = tf.compat.v1
VOCABULARIES = {"many": 13, "even": 30, "few": 2, "one": 1}
LAYOUTS = list(itertools.product(["div", "mod"], [1, 2, 3, 4]))
KEYS = [*VOCABULARIES, "many/momenta", "many/velocities", "few/momenta", "few/velocities"]


@pytest.fixture(autouse=True, scope="module")
def savers_that_know_layouts():
    with patch.applied(patch_table.SAVERS):
        yield


def new_plan(strategy, num_hosts):
    return EmbeddingPlan(
        tuple(TablePlan(name, rows, 3, tf.ones_initializer(), "sum", RowOptimizer(
            Adam() if f"{name}/momenta" in KEYS else SGD(), 0.1))
              for name, rows in VOCABULARIES.items()),
        tuple(FeaturePlan(f"f_{name}", name) for name in VOCABULARIES),
        partition_strategy=strategy, num_hosts=num_hosts)


def value_of(key):
    """`[rows, 3]`, all different and told by the id."""
    rows = VOCABULARIES[key.split("/")[0]]
    return np.arange(rows * 3, dtype=np.float32).reshape(-1, 3) + 1000 * KEYS.index(key)


class Program:
    """Tables of one layout in their own graph, with a Saver of the program's."""

    def __init__(self, strategy, num_hosts, checkpoint_num_hosts=None, new_saver=v1.train.Saver):
        self.graph, self.layout = tf.Graph(), (num_hosts, strategy)
        with self.graph.as_default():
            plan = new_plan(strategy, num_hosts)
            variables = create_variables(plan, default_names(plan), checkpoint_num_hosts)
            self.parts = {key: parts for name, table in variables.items() for key, parts in (
                (name, table.parts), *((f"{name}/{slot}", of_slot)
                                       for slot, of_slot in table.slots.items()))}
            self.saver = new_saver()

    def save(self, path):
        with self.graph.as_default(), v1.Session() as session:
            for key, parts in self.parts.items():
                for part, rows in zip(parts, cut(value_of(key), *self.layout), strict=True):
                    part.load(rows, session)
            return self.saver.save(session, str(path))

    def restore(self, checkpoint):
        with v1.Session(graph=self.graph) as session:
            self.saver.restore(session, checkpoint)
            return session.run(self.parts)

    def assert_right(self, restored):
        for key in KEYS:
            for part, rows in zip(restored[key], cut(value_of(key), *self.layout), strict=True):
                np.testing.assert_array_equal(part, rows, err_msg=key)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory):
    directory = tmp_path_factory.mktemp("checkpoints")
    return {layout: Program(*layout).save(directory / "{}_{}".format(*layout))
            for layout in LAYOUTS}


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_go_where_they_belong_whatever_layout_they_come_from(checkpoints, layout):
    program = Program(*layout)
    for checkpoint in checkpoints.values():
        program.assert_right(program.restore(checkpoint))
