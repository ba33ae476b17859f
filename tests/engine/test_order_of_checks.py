# SPDX-License-Identifier: Apache-2.0
"""No table is touched before every id has been checked: what depends on what in a graph."""

import numpy as np
import pytest
import tensorflow as tf

from tests.graphs import ancestors
from tests.optimizer_cases import CASES
from tests.oracle import Feature, Table
from tests.runners import to_plan
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    create_variables,
    default_names,
    prepare_ids,
)


@pytest.fixture
def update():
    """The op that updates two tables, of three features."""
    tables = [Table("t", np.zeros([9, 2]), "mean", CASES["Adagrad"]),
              Table("u", np.zeros([4, 2]), "mean", CASES["Adagrad"])]
    plan = to_plan(tables, [Feature("a", "t"), Feature("b", "t"), Feature("c", "u")])
    with tf.Graph().as_default():
        engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
        datas = {name: EnqueueData(tf.compat.v1.placeholder(tf.int64, [None]))
                 for name in ("a", "b", "c")}
        ids = prepare_ids(plan, datas, 2, training=True)
        yield engine.apply_gradients(ids, {"t": tf.ones([4, 2]), "u": tf.ones([2, 2])}, 0)


def test_every_write_waits_for_every_check(tf_kernels, update):
    operations = update.graph.get_operations()
    assertions = {op for op in operations if op.type == "Assert"}
    writes = [op for op in ancestors(update) if op.type == "ResourceScatterUpdate"]
    assert len(assertions) == 6  # ids and number of samples of three features
    assert len(writes) == 4  # table and accumulators of two tables
    for write in writes:
        assert assertions <= ancestors(write)


def test_a_step_is_three_compiled_ops_of_which_the_first_checks(native_kernels, update):
    [prepare] = [op for op in update.graph.get_operations()
                 if op.type == "TpuEmbeddingPrepareIds"]
    [write] = [op for op in ancestors(update) | {update} if op.type == "TpuEmbeddingUpdate"]
    assert prepare in ancestors(write)
