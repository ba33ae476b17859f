# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of servers hold tables and slots of one step while threads train them."""

import ctypes
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from tests.kernel_choice import choose_kernels
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

NUM_TABLES = 40


@pytest.fixture
def trained(monkeypatch):
    """A session whose tables three threads train: every step adds 1 to all slots."""
    choose_kernels("native", monkeypatch)
    tables = [TablePlan(f"t{i}", 3, 2, tf.zeros_initializer(), "sum",
                        RowOptimizer(Adagrad(), 0.1))
              for i in range(NUM_TABLES)]
    plan = EmbeddingPlan.build(tables, [FeaturePlan(f"f{i}", f"t{i}") for i in range(NUM_TABLES)])
    stop = threading.Event()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
        ids = prepare_ids(plan, {f"f{i}": EnqueueData(tf.constant([0, 1, 2]))
                                 for i in range(NUM_TABLES)}, batch_size=3, training=True)
        update = engine.apply_gradients(
            ids, {table.name: tf.ones([3, 2]) for table in tables}, step=tf.constant(0))
        session.run(tf.compat.v1.global_variables_initializer())
        session.steps = []  # of all threads

        def train():
            while not stop.is_set():
                session.run(update)
                session.steps.append(1)

        threads = [threading.Thread(target=train) for _ in range(3)]
        for thread in threads:
            thread.start()
        yield session, [parts[0] for table in engine.variables.values()
                        for parts in (table.parts, *table.slots.values())]
        stop.set()
        for thread in threads:
            thread.join()


def wait():
    time.sleep(0.05)
    return 0


def is_of_one_step(values):
    """Whether all slots are of one step, and all tables: they begin alike."""
    tables, slots = values[::2], values[1::2]
    return all(np.array_equal(of_kind[0], value) for of_kind in (tables, slots)
               for value in of_kind)


@pytest.mark.slow
def test_plain_reads_are_torn(trained):
    session, variables = trained
    reads = [variable.read_value() for variable in variables]
    assert any(not is_of_one_step(session.run(reads)) for _ in range(10_000))


@pytest.mark.slow
def test_snapshots_are_of_one_step_and_updates_do_not_change_them(trained):
    session, variables = trained
    snapshot = load.native_ops().tpu_embedding_snapshot(
        [variable.handle for variable in variables])
    steps = set()
    for _ in range(300):
        values = session.run(snapshot)
        assert is_of_one_step(values)
        steps.add(float(values[1][0, 0]))
    assert len(steps) > 1  # it was trained meanwhile
    # Values wait for a while, as for a slow disk: updates write elsewhere.
    with tf.control_dependencies(snapshot):
        late = tf.numpy_function(wait, [], tf.int64)
    with tf.control_dependencies([late]):
        waited = [tf.identity(value) for value in snapshot]
    assert all(is_of_one_step(session.run(waited)) for _ in range(5))


def test_only_initialized_tables_have_a_snapshot(monkeypatch):
    choose_kernels("native", monkeypatch)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        table = tf.compat.v1.get_variable("table", [2, 2], use_resource=True)
        vector = tf.compat.v1.get_variable("vector", [2], use_resource=True)
        both = [load.native_ops().tpu_embedding_snapshot([each.handle])
                for each in (table, vector)]
        with pytest.raises(tf.errors.FailedPreconditionError, match="`table` must be initialized"):
            session.run(both[0])
        session.run(vector.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError,
                           match=r"`vector` must be float32 of two dimensions, got float"):
            session.run(both[1])


def begin(session, variables, most_bytes):
    """Begins a snapshot that is read while updates go on; returns its number."""
    return int(session.run(load.native_ops().tpu_embedding_begin_snapshot(
        [variable.handle for variable in variables], tf.constant(most_bytes, tf.int64))))


def read(number, part, row, rows=1):
    values = np.full([rows, 2], np.nan, np.float32)
    functions = load.kernels().functions
    functions.tpu_embedding_snapshot_read.restype = ctypes.c_bool
    is_read = functions.tpu_embedding_snapshot_read(
        *map(ctypes.c_int64, (number, part, row, rows)), values.ctypes.data_as(ctypes.c_void_p))
    return values if is_read else None


def end(number):
    load.kernels().functions.tpu_embedding_snapshot_end.restype = ctypes.c_int64
    return load.kernels().functions.tpu_embedding_snapshot_end(ctypes.c_int64(number))


@pytest.mark.slow
def test_rows_that_are_read_while_threads_train_are_of_one_step(trained):
    session, variables = trained
    for _ in range(20):
        number = begin(session, variables, 1 << 30)
        values = [np.concatenate([read(number, part, row) for row in range(3)])
                  for part in range(len(variables))]
        assert is_of_one_step(values) and np.isfinite(values).all()
        assert read(number, 0, 0) is None  # which is read already
        assert end(number) >= 0 and end(number) == -1


@pytest.mark.slow
def test_updates_wait_for_memory(trained):
    session, variables = trained
    number = begin(session, variables, 0)
    begun = len(session.steps)
    for _ in range(6):
        wait()
    waited = len(session.steps)
    assert end(number) > 0
    # Each thread may have ended a step that it had begun, and one that kept the first rows.
    assert waited - begun <= 6
    while len(session.steps) < waited + 10:
        wait()


@pytest.mark.slow
def test_a_snapshot_excludes_another_of_its_tables(trained):
    session, variables = trained
    number = begin(session, variables[:2], 1 << 30)
    with pytest.raises(tf.errors.FailedPreconditionError, match="still being written"):
        begin(session, variables[1:3], 1 << 30)
    end(number)
    end(begin(session, variables, 1 << 30))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`most_bytes` must be"):
        begin(session, variables, -1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be given once"):
        begin(session, [variables[0], variables[0]], 0)
