# SPDX-License-Identifier: Apache-2.0
"""What a session initializes, and reports as not initialized."""

import pytest
import tensorflow as tf

from tests.fronts.estimator import counting
from tests.fronts.estimator.counting import TPUEstimatorSpec
from tpu_estimator_embedding.estimator.step_session import add_ready_ops


def test_reports_of_readiness_name_what_is_not_initialized():
    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph, v1.Session() as session:
        for name, is_resource, collection in (
                ("a", True, v1.GraphKeys.GLOBAL_VARIABLES), ("b", False, "variables"),
                ("c", True, v1.GraphKeys.LOCAL_VARIABLES)):
            v1.get_variable(name, [2], use_resource=is_resource, collections=[collection])
        add_ready_ops()
        add_ready_ops()
        [ready] = graph.get_collection(v1.GraphKeys.READY_OP)
        [ready_for_local] = graph.get_collection(v1.GraphKeys.READY_FOR_LOCAL_INIT_OP)
        assert session.run(ready).tolist() == [b"a", b"b", b"c"]
        assert session.run(ready_for_local).tolist() == [b"a", b"b"]
        session.run(v1.global_variables_initializer())
        assert session.run(ready).tolist() == [b"c"]
        assert session.run(ready_for_local).tolist() == []


@pytest.mark.parametrize("value, device", [
    (None, "/device:CPU:0"), ("", ""), ("/cpu:1", "/device:CPU:1")])
def test_reports_are_on_the_device_that_tensorflows_variable_names(monkeypatch, value, device):
    variable = "TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING"
    monkeypatch.delenv(variable, raising=False)
    if value is not None:
        monkeypatch.setenv(variable, value)
    with tf.Graph().as_default() as graph:
        tf.compat.v1.get_variable("a", [2])
        add_ready_ops()
        assert {op.device for op in graph.get_operations() if op.type == "GatherNd"} == {device}


def _assign_two():
    [offset] = [variable for variable in tf.compat.v1.local_variables()
                if variable.op.name == "offset"]
    return offset.assign(2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("new_op", "expected"), [
    (tf.compat.v1.tables_initializer, None), (tf.no_op, None),
    (tf.compat.v1.local_variables_initializer, 1.0), (_assign_two, 2.0)])
def test_local_init_op_of_a_program_need_not_know_what_the_package_adds(
        new_op, expected, tmp_path):
    v1 = tf.compat.v1

    def model_fn(features, labels, mode, params):
        offset = tf.zeros([])
        if expected:
            offset = v1.get_local_variable("offset", initializer=1.0, use_resource=True)
        loss = tf.negative(tf.reduce_sum(features["id"]), name="loss")
        return TPUEstimatorSpec(
            mode, loss=loss, train_op=counting.count(loss) if mode == "train" else None,
            eval_metrics=(lambda ids: {"mean": v1.metrics.mean(ids)}, [features["id"]]),
            predictions={"offset": features["id"] * 0.0 + offset},
            scaffold_fn=lambda: v1.train.Scaffold(local_init_op=new_op()))

    estimator = counting.new_estimator(tmp_path, model_fn)
    estimator.train(counting.input_of([1, 2, 3, 3]), max_steps=2)
    assert counting.counts(estimator) == counting.counts_of(1, 2, 3, 3)
    assert estimator.evaluate(counting.input_of([1, 3]), steps=1)["mean"] == 1.5
    [first, _] = estimator.predict(counting.input_of([1, 3]))
    assert first["offset"] == (expected or 0.0)
