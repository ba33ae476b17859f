# SPDX-License-Identifier: Apache-2.0
"""How gradients of replicas are summed, and which cannot be summed."""

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator import replica_model
from tests.fronts.estimator.counting import TPUEstimatorSpec
from tests.fronts.estimator.replica_model import (
    BATCH_SIZE,
    V2,
    assert_same_values,
    input_of,
    linear,
    minimize,
    new_model_fn,
    new_replicated,
    train,
    v1,
)
from tpu_estimator_embedding.config.optimization_parameters import (
    StochasticGradientDescentParameters,
)

GROUPS = [[0, 1], [2, 3]]
Reduction = v1.losses.Reduction


def changes(tmp_path, name, num_replicas, num_samples=BATCH_SIZE, batch_size=BATCH_SIZE,
            **cross_shard):
    """Returns what one step of SGD adds to the kernel and to the table."""
    def train_op(loss):
        return minimize(loss, lambda: v1.tpu.CrossShardOptimizer(
            v1.train.GradientDescentOptimizer(0.5), **cross_shard))

    spec = replica_model.new_spec(StochasticGradientDescentParameters(0.5))
    before, after = train(tmp_path / name, new_model_fn(linear, train_op), num_replicas,
                          input_of(num_samples), batch_size=batch_size, spec=spec)
    return {name: after[name] - before[name] for name in ("kernel", "t")}


@pytest.mark.slow
def test_mean_is_the_gradient_of_the_batch_and_sum_is_replicas_times_it(tmp_path):
    one = changes(tmp_path, "one", 1)
    mean = changes(tmp_path, "mean", 4, reduction=Reduction.MEAN)
    total = changes(tmp_path, "sum", 4, reduction=Reduction.SUM)
    assert_same_values(mean, one)
    assert_same_values(total, {name: 4 * change for name, change in one.items()})
    assert np.abs(one["t"]).max() > 0.01


@pytest.mark.slow
def test_groups_train_with_the_first_and_look_up_with_all(tmp_path):
    """The loss is scaled by the size of a group; tables sum over all replicas."""
    halves = changes(tmp_path, "groups", 4, group_assignment=GROUPS)
    first_half = changes(tmp_path, "half", 1, BATCH_SIZE // 2, BATCH_SIZE // 2)
    whole = changes(tmp_path, "whole", 1)
    assert_same_values(halves, {"kernel": first_half["kernel"], "t": 2 * whole["t"]})


@pytest.mark.parametrize("groups", [None, GROUPS, [[0, 3], [1, 2]]])
def test_sum_is_over_the_replicas_of_a_group(tmp_path, groups):
    def model_fn(features, labels, mode, params):
        total = v1.tpu.cross_replica_sum(tf.reduce_sum(features["x"], 0), groups)
        return TPUEstimatorSpec(mode, loss=tf.reduce_mean(linear(features, params)), eval_metrics=(
            lambda totals: {"totals": v1.metrics.mean_tensor(totals)}, [total[tf.newaxis]]))

    actual = new_replicated(tmp_path, model_fn, 4).evaluate(input_of(), steps=1)["totals"]
    shares = replica_model.arrays(BATCH_SIZE)["x"].reshape([4, -1, 2]).sum(1)
    group_of = {replica: group for group in groups or [range(4)] for replica in group}
    expected = [sum(shares[other] for other in group_of[replica]) for replica in range(4)]
    np.testing.assert_allclose(actual, expected, 1e-5, 1e-6)


def test_loss_of_training_is_the_first_replicas(tmp_path):
    losses = []

    class See(v1.train.SessionRunHook):
        def before_run(self, run_context):
            return v1.train.SessionRunArgs(["loss:0", "errors:0"])

        def after_run(self, run_context, run_values):
            loss, errors = run_values.results
            losses.append((loss, np.mean(errors), len(errors)))

    def model_fn(features, labels, mode, params):
        errors = tf.square(linear(features, params) - labels, name="errors")
        loss = tf.reduce_mean(errors, name="loss")
        return TPUEstimatorSpec(mode, loss=loss, train_op=minimize(loss))

    train(tmp_path, model_fn, 2, input_mode=V2, hooks=[See()])
    for loss, mean, size in losses:
        assert loss == pytest.approx(mean)
        assert size == BATCH_SIZE // 2


def test_optimizer_that_sums_nothing_is_refused(tmp_path):
    def train_op(loss):
        return minimize(loss, lambda: v1.train.GradientDescentOptimizer(0.1))

    model_fn = new_model_fn(linear, train_op)
    train(tmp_path / "one", model_fn, 1, max_steps=1)
    with pytest.raises(ValueError, match="`?model_fn`? must sum its gradients over replicas.*"
                       "Wrap its optimizer in tf.compat.v1.tpu.CrossShardOptimizer"):
        train(tmp_path / "two", model_fn, 2, max_steps=1)


def sum_in_a_function(loss):
    return tf.function(v1.tpu.cross_replica_sum)(loss)


def sum_in_a_branch(loss):
    return tf.cond(loss > 0.0, lambda: v1.tpu.cross_replica_sum(loss), lambda: loss)


def sum_in_a_loop(loss):
    return tf.while_loop(lambda i, _: i < 2, lambda i, total: (
        i + 1, v1.tpu.cross_replica_sum(total)), [0, loss])[1]


@pytest.mark.slow
@pytest.mark.parametrize("control_flow", ["v1", "v2"])
@pytest.mark.parametrize("add", [sum_in_a_function, sum_in_a_branch, sum_in_a_loop])
def test_sum_that_cannot_be_connected_is_refused(tmp_path, add, control_flow):
    model_fn = new_model_fn(linear, lambda loss: minimize(add(loss)))
    if control_flow == "v1":
        v1.disable_control_flow_v2()
    try:
        with pytest.raises(ValueError, match="cross_replica_sum must be called outside of "
                           "tf.function, tf.while_loop and tf.cond.*set num_shards=1"):
            train(tmp_path, model_fn, 2, max_steps=1)
    finally:
        v1.enable_control_flow_v2()


@pytest.mark.slow
def test_gradients_that_are_summed_before_a_branch_may_be_applied_in_it(tmp_path):
    """As the page on troubleshooting says."""
    def train_op(loss):
        optimizer, step = v1.train.GradientDescentOptimizer(0.5), v1.train.get_global_step()
        gradients = v1.tpu.CrossShardOptimizer(optimizer).compute_gradients(loss)
        summed = [(v1.tpu.cross_replica_sum(gradient), variable)
                  for gradient, variable in gradients]
        apply = tf.cond(step < 1, lambda: optimizer.apply_gradients(summed), tf.no_op)
        return tf.group(apply, v1.assign_add(step, 1))

    spec = replica_model.new_spec(StochasticGradientDescentParameters(0.5))
    before, after, later = train(tmp_path / "branch", new_model_fn(linear, train_op), 2,
                                 max_steps=2, spec=spec)
    expected = changes(tmp_path, "one", 1)
    assert_same_values({"kernel": after["kernel"] - before["kernel"],
                        "t": after["t"] - before["t"]}, expected)
    np.testing.assert_array_equal(later["kernel"], after["kernel"])  # the branch was not taken
    assert np.abs(later["t"] - after["t"]).max() > 0


@pytest.mark.slow
def test_gradient_of_py_function_needs_one_replica(tmp_path):
    def predict(features, params):
        predictions = linear(features, params)
        doubled = tf.py_function(lambda values: 2.0 * values, [predictions], tf.float32)
        return tf.reshape(doubled, [-1])

    train(tmp_path / "one", new_model_fn(predict), 1, max_steps=1)
    with pytest.raises(ValueError, match="With several replicas, tf.py_function has no "
                       "gradients, got .*tf.custom_gradient, or set num_shards=1"):
        train(tmp_path / "two", new_model_fn(predict), 2, max_steps=1)
