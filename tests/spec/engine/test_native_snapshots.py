# SPDX-License-Identifier: Apache-2.0
"""Compiled updates beside readers: who holds a value keeps it, and no reader sees half a row."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

pytestmark = pytest.mark.usefixtures("native_kernels")

ROWS, DIMENSION, UPDATES = 500, 48, 200


def new_plan(rule, num_tables=1):
    tables = [TablePlan(f"t{k}", ROWS, DIMENSION, tf.compat.v1.ones_initializer(), "sum",
                        RowOptimizer(rule, 1.0)) for k in range(num_tables)]
    return EmbeddingPlan.build(tables, [FeaturePlan(f"f{k}", f"t{k}") for k in range(num_tables)])


def all_ids(plan):
    data = {feature.name: EnqueueData(tf.range(ROWS)) for feature in plan.features}
    return prepare_ids(plan, data, ROWS, training=True)


def ones(plan):
    return {table.name: tf.ones([ROWS, DIMENSION]) for table in plan.tables}


def test_a_value_that_was_read_survives_updates():
    plan = new_plan(Adagrad(1.0))
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    table = engine.variables["t0"]
    read = [part.read_value() for part in (table.parts[0], table.slots["accumulators"][0])]
    engine.apply_gradients(all_ids(plan), ones(plan), 0)
    for value in read:
        np.testing.assert_array_equal(value, np.ones([ROWS, DIMENSION]))
    np.testing.assert_array_equal(table.slots["accumulators"][0], np.full([ROWS, DIMENSION], 2.0))


def test_threads_that_share_a_copy_leave_nothing_out():
    """A copy is shared out by the MiB; this table has three and a bit."""
    values = np.random.default_rng(1).uniform(size=[4099, 192]).astype(np.float32)
    plan = EmbeddingPlan.build(
        [TablePlan("t", *values.shape, tf.compat.v1.constant_initializer(values), "sum",
                   RowOptimizer(SGD(), 1.0))], [FeaturePlan("f", "t")])
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    part = engine.variables["t"].parts[0]
    ids = prepare_ids(plan, {"f": EnqueueData(tf.constant([4098]))}, 1, training=True)
    read = part.read_value()
    engine.apply_gradients(ids, {"t": tf.ones([1, 192])}, 0)
    np.testing.assert_array_equal(read, values)
    values[4098] -= 1
    np.testing.assert_array_equal(part, values)


def test_the_constant_that_a_table_began_with_survives_updates():
    plan = new_plan(SGD())
    constant = tf.constant(np.arange(ROWS * DIMENSION, dtype=np.float32), shape=[ROWS, DIMENSION])
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    engine.variables["t0"].parts[0].assign(constant)
    engine.apply_gradients(all_ids(plan), ones(plan), 0)
    np.testing.assert_array_equal(engine.variables["t0"].parts[0], constant - 1.0)
    assert float(constant[0, 0]) == 0.0


def test_a_table_without_other_holders_is_updated_in_place():
    plan = new_plan(SGD())
    engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
    part, ids = engine.variables["t0"].parts[0], all_ids(plan)
    engine.apply_gradients(ids, ones(plan), 0)  # gives the table its own buffer
    before = address_of(part)
    for _ in range(3):
        engine.apply_gradients(ids, ones(plan), 0)
        assert address_of(part) == before


def address_of(part):
    return np.array(memoryview(part.read_value()), copy=False).__array_interface__["data"][0]


class Program:
    """Two tables whose columns are equal at all times, if reads and updates take turns."""

    def __init__(self):
        plan = new_plan(SGD(), num_tables=2)
        with tf.Graph().as_default() as graph:
            engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
            ids = all_ids(plan)
            self.looked_up = engine.lookup(ids)
            self.whole = [table.parts[0].read_value() for table in engine.variables.values()]
            self.update = engine.apply_gradients(ids, ones(plan), 0)
            self.session = tf.compat.v1.Session(graph=graph)
            self.session.run(tf.compat.v1.global_variables_initializer())
            self.saver = tf.compat.v1.train.Saver()

    def save(self, path, step):
        with self.session.graph.as_default():
            return self.saver.save(self.session, str(path), step, write_meta_graph=False)

    def repeat(self, fetches, times=None):
        """Returns what fetching gives, `times` times, or until the updates are done."""
        results = []
        while len(results) < times if times else not self.done.is_set():
            results.append(self.session.run(fetches))
        return results


def test_readers_updates_and_saves_at_once(tmp_path):
    program = Program()
    program.done = threading.Event()
    seen, paths = [], []

    def save():
        while not program.done.is_set():
            paths.append(program.save(tmp_path / "model", len(paths)))

    readers = [threading.Thread(target=lambda fetch=fetch: seen.extend(program.repeat(fetch)))
               for fetch in (list(program.looked_up.values()), program.whole)]
    updaters = [threading.Thread(target=program.repeat, args=(program.update, UPDATES))
                for _ in range(2)]
    others = [*readers, threading.Thread(target=save)]
    for thread in (*updaters, *others):
        thread.start()
    for thread in updaters:
        thread.join()
    program.done.set()
    for thread in others:
        thread.join()
    for whole in program.session.run(program.whole):
        np.testing.assert_array_equal(whole, np.full([ROWS, DIMENSION], 1.0 - 2 * UPDATES))
    saved = [[tf.train.load_variable(path, name) for name in ("t0", "t1")] for path in paths[-3:]]
    assert saved
    assert len(seen) > 2
    for values in (*seen, *saved):
        for value in values:
            assert np.unique(value).size == 1
