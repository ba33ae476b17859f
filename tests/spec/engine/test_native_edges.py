# SPDX-License-Identifier: Apache-2.0
"""Edge cases of the compiled ops, and input that they reject."""

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import Setting, train_beside_oracle
from tests.runners import RUNNERS
from tests.spec.kernels.malformed_ops import recorded_calls
from tests.spec.optimizer_cases import CASES
from tests.spec.oracle import Entry, Feature, Oracle, Table
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.native import prepared_ids
from tpu_estimator_embedding.engine.native.prepared_ids import PreparedIds
from tpu_estimator_embedding.engine.native.rule_attributes import has_kernel
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step_ids import prepare_ids
from tpu_estimator_embedding.engine.variables import create_variables, default_names
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.optimizers.sgd import SGD
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

pytestmark = [pytest.mark.every_tensorflow, pytest.mark.usefixtures("native_kernels")]

ROWS_COLUMN = 2  # of `sizes`: the rows of activations of a table
TOLERANCE = {"rtol": 1e-6, "atol": 1e-6}


def new_plan(*rules, vocabulary_size=4, **options):
    """Tables `t0`, `t1`, … of ones, with features `f0`, `f1`, …"""
    return EmbeddingPlan.build(
        [TablePlan(f"t{k}", vocabulary_size, 2, tf.compat.v1.ones_initializer(), "sum",
                   RowOptimizer(rule, 0.5)) for k, rule in enumerate(rules)],
        [FeaturePlan(f"f{k}", f"t{k}") for k in range(len(rules))], **options)


def new_engine(plan):
    return PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))


def ids_of(plan, *ids, training=True):
    data = {feature.name: EnqueueData(tf.constant(ids, tf.int64)) for feature in plan.features}
    return prepare_ids(plan, data, len(ids), training=training)


def test_these_tests_run_on_compiled_ops():
    assert isinstance(ids_of(new_plan(SGD()), 1), PreparedIds)


def test_a_rule_of_a_users_own_runs_on_tensorflows_ops():
    class Own(SGD):
        pass

    assert not has_kernel(Own())
    assert not isinstance(ids_of(new_plan(Own()), 1), PreparedIds)


def test_a_rule_without_a_kernel_runs_on_tensorflows_ops(monkeypatch):
    kernels = load.kernels()
    monkeypatch.setattr(load, "kernels", lambda: kernels._replace(
        rules=kernels.rules - {"Adagrad"}))
    assert isinstance(ids_of(new_plan(SGD()), 1), PreparedIds)
    assert not isinstance(ids_of(new_plan(SGD(), Adagrad()), 1), PreparedIds)


@pytest.mark.parametrize("vocabulary_size, dimension", [(1, 1), (1, 2000), (3, 1), (1000, 7)])
def test_ids_at_both_ends_of_a_table(vocabulary_size, dimension):
    values = np.linspace(-1, 1, vocabulary_size * dimension, dtype=np.float32)
    table = Table("t", values.reshape([vocabulary_size, dimension]), "mean", CASES["Adagrad"])
    last = vocabulary_size - 1
    batches = [{"a": [[Entry(0), Entry(last, position=1)], [], [Entry(last)]]}] * 2
    train_beside_oracle(RUNNERS["eager"], Oracle([table], [Feature("a", "t")]), batches,
                        Setting({"a": "sparse"}), **TOLERANCE)


@pytest.mark.parametrize("kind", ["sparse", "flat sparse", "ragged"])
@pytest.mark.parametrize("case", ["Adagrad", "Adam, not lazy"])
def test_batches_and_features_without_ids(kind, case):
    tables = [Table(name, np.ones([3, 2]), "mean", CASES[case]) for name in "tu"]
    oracle = Oracle(tables, [Feature("a", "t"), Feature("b", "u")])
    batches = [{"a": [[], []], "b": [[Entry(1)], []]}, {"a": [[], []], "b": [[], []]},
               {"a": [[Entry(-1)], []], "b": [[], [Entry(-5)]]}, {"a": [], "b": []}]
    train_beside_oracle(RUNNERS["eager"], oracle, batches, Setting({"a": kind, "b": kind}),
                        **TOLERANCE)


@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (3, "div"), (3, "mod")])
def test_ids_and_places_of_either_width_at_once(num_hosts, strategy):
    plan = new_plan(SGD(), SGD(), vocabulary_size=9, num_hosts=num_hosts,
                    partition_strategy=strategy)
    engine = new_engine(plan)
    data = {"f0": RaggedEnqueueData(tf.constant([8, 0, 4], tf.int32), tf.constant([0, 1, 3])),
            "f1": EnqueueData(tf.constant([[8], [5]], tf.uint8),
                              tf.constant([[0], [1]], tf.int32))}
    ids = prepare_ids(plan, data, 2, training=True)
    engine.apply_gradients(ids, {"t0": tf.ones([2, 2]), "t1": tf.ones([2, 2])}, 0)
    stacked = engine.lookup(ids)
    np.testing.assert_array_equal(stacked["t0"][:, 0], [0.5, 1.0])
    np.testing.assert_array_equal(stacked["t1"][:, 0], [0.5, 0.5])


HUGE = 2 ** 33 + 5


@pytest.mark.parametrize("num_hosts, strategy, wanted", [
    (1, "div", [[HUGE - 1, 3, 2 ** 32]]),
    (2, "mod", [[(HUGE - 1) // 2, 2 ** 31], [1]]),
    (8, "div", [[3], [], [], [2 ** 30 - 3], [], [], [], [2 ** 30 - 1]])])
def test_ids_beyond_two_to_the_31(num_hosts, strategy, wanted):
    plan = new_plan(SGD(), vocabulary_size=HUGE, num_hosts=num_hosts, partition_strategy=strategy)
    data = {"f0": EnqueueData(tf.constant([HUGE - 1, 3, 2 ** 32], tf.int64))}
    hosts = prepared_ids.prepare_native_ids(plan, [(data, 3)], True, False).hosts
    assert [host.ids.numpy().tolist() for host in hosts] == wanted
    assert [host.run_ids.numpy().tolist() for host in hosts] == [sorted(rows) for rows in wanted]
    assert hosts[0].ids.dtype == (tf.int32 if num_hosts == 8 else tf.int64)


def test_ids_and_places_that_fill_more_than_64_bits_are_sorted():
    largest = 2 ** 62 - 1
    ids = [largest, 0, 5, largest, 2 ** 61, 5, 1, largest - 1, 0]
    plan = new_plan(SGD(), vocabulary_size=largest + 1)
    data = {"f0": EnqueueData(tf.constant(ids, tf.int64))}
    host, = prepared_ids.prepare_native_ids(plan, [(data, len(ids))], True, False).hosts
    assert host.run_ids.numpy().tolist() == sorted(set(ids))
    assert host.run_ends.numpy().tolist() == [2, 3, 5, 6, 7, 9]
    assert host.run_rows.numpy().tolist() == [1, 8, 6, 2, 5, 4, 7, 0, 3]


def test_more_rows_than_ends_can_number_are_refused():
    rows = TablePlan("t", 4, 2, tf.compat.v1.ones_initializer(), None, RowOptimizer(SGD(), 0.5))
    plan = EmbeddingPlan.build([rows], [FeaturePlan("f", "t", max_sequence_length=2 ** 30)])
    data = {"f": RaggedEnqueueData(tf.constant([1, 2], tf.int64), tf.constant([0, 1, 2]))}
    with pytest.raises(tf.errors.InvalidArgumentError,
                       match=f"must be at most .*got {2 ** 31}. Give smaller batches"):
        prepared_ids.prepare_native_ids(plan, [(data, 2)], True, False)


def test_rows_whose_gradients_64_bits_cannot_count_are_refused():
    """4 * (2^62 + n) is 4 * n there: as many gradients as were sent."""
    ops = load.native_ops()
    calls, _ = recorded_calls(ops, 2, on_servers=True)
    updates = [arguments for name, arguments in calls if name == "tpu_embedding_update"]
    assert updates
    for arguments in updates:
        assert [gradients.shape.rank for gradients in arguments["gradients"]] == [1]
        assert arguments["dims"][0] == 4
        sizes = arguments["sizes"].numpy()
        sizes[0, ROWS_COLUMN] += 2 ** 62
        with pytest.raises(tf.errors.InvalidArgumentError, match="Prepared ids must fit together"):
            ops.tpu_embedding_update(**{**arguments, "sizes": tf.constant(sizes)})


def test_the_first_id_beyond_a_vocabulary_is_reported_with_its_position():
    plan = new_plan(SGD(), vocabulary_size=HUGE)
    data = {"f0": EnqueueData(tf.constant([1, HUGE, HUGE + 1], tf.int64))}
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"got {HUGE}.*at position 1"):
        prepared_ids.prepare_native_ids(plan, [(data, 3)], True, False)


def test_gradients_of_another_shape_change_no_table():
    plan = new_plan(SGD(), SGD())
    engine = new_engine(plan)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"`gradients` of the activations "
                       r"of `t1.*` must be of shape \[2,2\], got \[2,3\]"):
        engine.apply_gradients(ids_of(plan, 1, 2), {"t0": tf.ones([2, 2]), "t1": tf.ones([2, 3])},
                               0)
    for table in engine.variables.values():
        np.testing.assert_array_equal(table.parts[0], np.ones([4, 2]))


def test_tables_of_another_shape_than_their_plan_are_refused():
    ids = ids_of(new_plan(SGD(), vocabulary_size=9), 8)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must be float32 of shape \[9,2\], "
                                                             r"got float of shape \[4,2\]"):
        new_engine(new_plan(SGD())).lookup(ids)


@pytest.mark.parametrize("missing", ["t0/part_0", "t0/accumulators/part_0"])
def test_variables_that_are_not_initialized_are_named(missing):
    plan = new_plan(Adagrad())
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        engine = new_engine(plan)
        ids = ids_of(plan, 1)
        stacked = engine.lookup(ids)
        update = engine.apply_gradients(ids, {"t0": tf.ones([1, 2])}, 0)
        session.run([variable.initializer for variable in tf.compat.v1.global_variables()
                     if variable.op.name != missing])
        fetch = stacked if missing == "t0/part_0" else update
        with pytest.raises(tf.errors.FailedPreconditionError,
                           match=f"`{missing}` must be initialized before it is looked up"):
            session.run(fetch)


def sharing(first, second):
    """An engine whose tables `t0` and `t1` have these variables, and ids of different rows."""
    plan = new_plan(*(rule for rule, _ in (first, second)))
    data = {"f0": EnqueueData(tf.constant([0])), "f1": EnqueueData(tf.constant([3]))}
    engine = PartitionedEmbedding(plan, {"t0": first[1], "t1": second[1]})
    return engine, prepare_ids(plan, data, 1, training=True)


def update_both(engine, ids):
    engine.apply_gradients(ids, {"t0": tf.ones([1, 2]), "t1": 2 * tf.ones([1, 2])}, 0)


def test_tables_that_update_different_rows_share_variables():
    stack = new_engine(new_plan(SGD())).variables["t0"]
    engine, ids = sharing((SGD(), stack), (SGD(), stack))
    update_both(engine, ids)
    np.testing.assert_array_equal(stack.parts[0], [[0.5] * 2, [1.0] * 2, [1.0] * 2, [0.0] * 2])


@pytest.mark.parametrize("case", ["every row moves", "table and slot"])
def test_variables_are_not_shared_where_rows_would_be_written_twice(case):
    if case == "every row moves":
        rule = Adam(lazy_adam=False)
        given = new_engine(new_plan(rule)).variables["t0"]
        engine, ids = sharing((rule, given), (rule, given))
    else:
        given = new_engine(new_plan(Adagrad())).variables["t0"]
        swapped = given._replace(parts=given.slots["accumulators"],
                                 slots={"accumulators": given.parts})
        engine, ids = sharing((Adagrad(), given), (Adagrad(), swapped))
    before = given.parts[0].numpy()
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a separate variable"):
        update_both(engine, ids)
    np.testing.assert_array_equal(given.parts[0], before)
