# SPDX-License-Identifier: Apache-2.0
"""Names, shapes and initial values of the variables, and what they are in a checkpoint."""

import numpy as np
import pytest
import tensorflow as tf

from tests.spec.oracle import cut
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.engine.variables import TableNames, create_variables, default_names
from tpu_estimator_embedding.optimizers.adagrad import Adagrad
from tpu_estimator_embedding.optimizers.adam import Adam
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan

pytestmark = pytest.mark.every_tensorflow

VALUES = np.arange(13 * 4, dtype=np.float32).reshape([13, 4])


@pytest.fixture(autouse=True, scope="module")
def savers_that_know_layouts():
    with patch.applied(patch_table.SAVERS):
        yield


def new_plan(num_hosts=1, rows=13, rule=None, initializer=None, strategy="div"):
    optimizer = RowOptimizer(rule or Adagrad(0.25), 0.5)
    initializer = initializer or tf.compat.v1.zeros_initializer()
    return EmbeddingPlan.build(
        [TablePlan("T", rows, 4, initializer, "mean", optimizer)], [FeaturePlan("f", "T")],
        num_hosts=num_hosts, partition_strategy=strategy)


def in_new_session(plan, names=None):
    """Returns a session and the variables of the plan's one table, initialized."""
    graph = tf.Graph()
    with graph.as_default():
        [table] = create_variables(plan, names or default_names(plan)).values()
        session = tf.compat.v1.Session(graph=graph)
        session.run(tf.compat.v1.global_variables_initializer())
    return session, table


def assign(session, variables, values):
    with session.graph.as_default():
        for variable, value in zip(variables, values, strict=True):
            session.run(variable.assign(value, read_value=False))


@pytest.mark.parametrize("num_hosts, sizes", [
    (1, [13]), (2, [7, 6]), (5, [3, 3, 3, 2, 2]), (13, [1] * 13), (20, [1] * 13)])
def test_parts_are_named_and_sized_after_the_hosts(num_hosts, sizes):
    names = {"T": TableNames("scope/T", {"accumulators": "scope/T/Adagrad"})}
    _, table = in_new_session(new_plan(num_hosts), names)
    assert [part.name for part in table.parts] == [
        f"scope/T/part_{host}:0" for host in range(len(sizes))]
    assert [part.name for part in table.slots["accumulators"]] == [
        f"scope/T/Adagrad/part_{host}:0" for host in range(len(sizes))]
    for parts in (table.parts, table.slots["accumulators"]):
        assert [part.shape.as_list() for part in parts] == [[size, 4] for size in sizes]
        assert {part.dtype for part in parts} == {tf.float32}


def test_variables_are_global_and_not_trainable():
    session, table = in_new_session(new_plan(2))
    with session.graph.as_default():
        assert tf.compat.v1.trainable_variables() == []
        assert len(tf.compat.v1.global_variables()) == 4
        assert tf.compat.v1.local_variables() == []


def test_slots_start_with_their_constants():
    session, table = in_new_session(new_plan(3, rule=Adagrad(0.25)))
    for part in session.run(table.slots["accumulators"]):
        np.testing.assert_array_equal(part, 0.25)
    _, adam = in_new_session(new_plan(rule=Adam()))
    assert list(adam.slots) == ["momenta", "velocities"]


def test_no_graph_holds_a_constant_as_large_as_a_slot():
    session, _ = in_new_session(new_plan(rows=1000, rule=Adam()))
    constants = [op.outputs[0] for op in session.graph.get_operations() if op.type == "Const"]
    assert max(constant.shape.num_elements() for constant in constants) < 100


@pytest.mark.parametrize("num_hosts, sizes", [(1, [13]), (5, [3, 3, 3, 2, 2])])
@pytest.mark.parametrize("in_graph", [True, False])
def test_initializer_is_called_for_each_part_with_its_shape(in_graph, num_hosts, sizes):
    shapes = []

    def initializer(shape, dtype=None):
        assert dtype == tf.float32
        shapes.append(list(shape))
        return tf.fill(shape, 3.0)

    plan = new_plan(num_hosts, initializer=initializer)
    if in_graph:
        session, table = in_new_session(plan)
        parts = session.run(table.parts)
    else:
        [table] = create_variables(plan, default_names(plan)).values()
        parts = [part.numpy() for part in table.parts]
    assert shapes == [[size, 4] for size in sizes]
    np.testing.assert_array_equal(np.concatenate(parts), np.full([13, 4], 3.0))


@pytest.mark.parametrize("constant", [
    tf.constant_initializer, tf.compat.v1.constant_initializer])
@pytest.mark.parametrize("values", [VALUES, VALUES.tolist(), VALUES.ravel()],
                         ids=["array", "list", "flat"])
@pytest.mark.parametrize("num_hosts, strategy", [(1, "div"), (5, "div"), (5, "mod"), (20, "mod")])
def test_constant_for_every_row_is_dealt_out_to_the_hosts(num_hosts, strategy, values, constant):
    session, table = in_new_session(
        new_plan(num_hosts, initializer=constant(values), strategy=strategy))
    for part, expected in zip(session.run(table.parts), cut(VALUES, num_hosts, strategy),
                              strict=True):
        np.testing.assert_array_equal(part, expected)


@pytest.mark.parametrize("initializer", [
    lambda shape, dtype: VALUES, tf.constant_initializer(VALUES[:3])])
def test_initializer_that_does_not_fill_a_part_is_told_of_hosts(initializer):
    with pytest.raises(ValueError, match=r"(?s)table 'T' .* 2 hosts.*\[7, 4\].*partition_info"):
        in_new_session(new_plan(2, initializer=initializer))


def from_offset(shape, dtype, partition_info=None):
    return tf.constant(VALUES[:shape[0]], dtype)


@pytest.mark.parametrize("num_hosts, strategy, initializer, is_warned", [
    (2, "mod", from_offset, True), (2, "div", from_offset, False), (1, "mod", from_offset, False),
    (2, "mod", tf.compat.v1.truncated_normal_initializer(), False)])
def test_offsets_that_are_no_ids_are_warned_of(recwarn, num_hosts, strategy, initializer,
                                               is_warned):
    in_new_session(new_plan(num_hosts, initializer=initializer, strategy=strategy))
    said = [str(warning.message) for warning in recwarn if "var_offset" in str(warning.message)]
    assert len(said) == is_warned
    assert all("'T'" in text and "mod" in text for text in said)


@pytest.fixture(params=["div", "mod"])
def strategy(request):
    return request.param


@pytest.mark.parametrize("num_hosts", [1, 3, 8, 20])
def test_parts_are_saved_as_slices_of_one_tensor(tmp_path, num_hosts, strategy):
    path = save(tmp_path, num_hosts, strategy)
    assert dict(tf.train.list_variables(path)) == {
        "T": [13, 4], "T/accumulators": [13, 4], TABLE_LAYOUTS_KEY: []}
    wanted = np.concatenate(cut(VALUES, num_hosts, strategy))
    np.testing.assert_array_equal(tf.train.load_variable(path, "T"), wanted)
    np.testing.assert_array_equal(tf.train.load_variable(path, "T/accumulators"), -wanted)
    if strategy == "div":
        np.testing.assert_array_equal(wanted, VALUES)


@pytest.mark.parametrize("saved_on", [1, 3])
@pytest.mark.parametrize("num_hosts", [1, 2, 3])
def test_a_saved_table_restores_on_another_number_of_hosts(tmp_path, num_hosts, saved_on):
    path = save(tmp_path, saved_on)
    session, table = in_new_session(new_plan(num_hosts))
    with session.graph.as_default():
        tf.compat.v1.train.Saver().restore(session, path)
    for variables, values in ((table.parts, VALUES), (table.slots["accumulators"], -VALUES)):
        for part, wanted in zip(session.run(variables), cut(values, num_hosts, "div"),
                                strict=True):
            np.testing.assert_array_equal(part, wanted)


@pytest.mark.parametrize("saved_on", [1, 3, 8])
def test_a_saved_table_restores_into_a_variable_without_parts(tmp_path, saved_on):
    path = save(tmp_path, saved_on)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        whole = tf.compat.v1.get_variable("T", [13, 4])
        tf.compat.v1.train.Saver().restore(session, path)
        np.testing.assert_array_equal(session.run(whole), VALUES)


@pytest.mark.parametrize("num_hosts", [1, 3])
def test_a_variable_without_parts_restores_into_parts(tmp_path, num_hosts):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        whole = tf.compat.v1.get_variable("T", initializer=VALUES)
        session.run(whole.initializer)
        path = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    session, table = in_new_session(new_plan(num_hosts))
    with session.graph.as_default():
        tf.compat.v1.train.Saver(table.parts).restore(session, path)
    np.testing.assert_array_equal(np.concatenate(session.run(table.parts)), VALUES)


def save(directory, num_hosts, strategy="div"):
    """Saves VALUES as the table, and their negatives as its slot; returns the path."""
    session, table = in_new_session(new_plan(num_hosts, strategy=strategy))
    assign(session, table.parts, cut(VALUES, num_hosts, strategy))
    assign(session, table.slots["accumulators"], cut(-VALUES, num_hosts, strategy))
    with session.graph.as_default():
        return tf.compat.v1.train.Saver().save(session, str(directory / "model.ckpt"))
