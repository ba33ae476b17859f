# SPDX-License-Identifier: Apache-2.0
"""training_loop.repeat and while_loop on this machine, alone and over replicas."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.tpu import tpu_feed, training_loop

import tpu_estimator_embedding
from tests.fronts.estimator.replicas.test_tpu_computations import (
    X,
    Y,
    run,
    train_step,
    trained_by_numpy,
)

tpu_estimator_embedding.install()

v1 = tf.compat.v1


@pytest.mark.parametrize("num_shards", [1, 2, 4])
def test_steps_in_a_loop_are_steps(session, num_shards):
    def computation(x, y):
        def body(loss, count):
            del loss
            loss, train_op = train_step(x, y)
            return loss, count + 1, train_op

        return training_loop.repeat(5, body, [tf.constant(0.0), tf.constant(0)])

    losses, counts = run(session, v1.tpu.batch_parallel(
        computation, [tf.constant(X), tf.constant(Y)], num_shards))
    weights, step = session.run([v1.global_variables()[0], v1.train.get_global_step()])
    np.testing.assert_allclose(weights, trained_by_numpy(5), atol=1e-6)
    assert counts.tolist() == [5] * num_shards and step == 5
    last = X @ trained_by_numpy(4) - Y
    assert np.mean(losses) == pytest.approx(np.mean(last ** 2), rel=1e-5)


@pytest.mark.parametrize("num_shards", [1, 2])
def test_loop_without_values_runs_its_ops(session, num_shards):
    count = v1.get_variable("count", initializer=0, use_resource=True)

    def computation():
        return training_loop.repeat(3, lambda: count.assign_add(2, read_value=False))

    run(session, v1.tpu.shard(computation, num_shards=num_shards))
    assert session.run(count) == 6


@pytest.mark.parametrize("num_shards", [1, 2])
def test_outside_compilation_is_part_of_every_iteration(session, num_shards):
    seen = []

    def doubled(value):
        seen.append(float(value))
        return np.float32(2) * value  # an int would make it a double before NumPy 2

    def body(value):
        value = v1.tpu.outside_compilation(
            lambda value: tf.ensure_shape(tf.numpy_function(doubled, [value], tf.float32), []),
            value)
        return [value + 1]

    result = run(session, v1.tpu.shard(
        lambda: training_loop.repeat(3, body, [tf.constant(1.0)]), num_shards=num_shards))
    np.testing.assert_array_equal(np.ravel(result), [15.0] * num_shards)
    assert seen == sorted([1.0, 3.0, 7.0] * num_shards)


def test_replicas_end_when_their_own_condition_says(session):
    def computation(limit):
        return training_loop.while_loop(
            lambda iteration, value: iteration < limit[0],
            lambda iteration, value: (iteration + 1, value * 2),
            [tf.constant(0), tf.constant(1)])

    iterations, values = run(session, v1.tpu.shard(computation, [tf.constant([1, 3, 5, 2])], 4))
    assert iterations.tolist() == [1, 3, 5, 2] and values.tolist() == [2, 8, 32, 4]


def test_replicas_that_disagree_cannot_sum(session):
    def computation(limit):
        return training_loop.while_loop(
            lambda iteration, total: iteration < limit[0],
            lambda iteration, total: (iteration + 1, total + v1.tpu.cross_replica_sum(1)),
            [tf.constant(0), tf.constant(0)])

    outputs = v1.tpu.shard(computation, [tf.constant([1, 3])], 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="The replicas disagree on whether"):
        run(session, outputs)


def test_sums_within_and_after_and_loops_in_loops(session):
    def computation(x):
        before = v1.tpu.cross_replica_sum(x)  # 3

        def inner(total):
            return total + v1.tpu.cross_replica_sum(x * before)  # + 9

        def outer(total):
            [total] = training_loop.repeat(2, inner, [total])
            return total + x

        [total] = training_loop.repeat(3, outer, [tf.constant(0.0)])
        return total, v1.tpu.cross_replica_sum(total)

    results = v1.tpu.replicate(computation, [[1.0], [2.0]])
    assert run(session, results) == [[57, 117], [60, 117]]


def test_loop_outside_of_any_computation(session):
    value = training_loop.repeat(4, lambda value: value * 3, tf.constant(1))
    assert run(session, value) == [81]


@pytest.mark.parametrize("num_shards", [1, 2])
@pytest.mark.parametrize("body, error, sentence", [
    (lambda value: tf.cast(value, tf.float32), TypeError,
     "Mismatch between input types and output types"),
    (lambda value: [tf.no_op(), value], ValueError, "TPU training loop body must return zero or")])
def test_errors_begin_as_tensorflows(num_shards, body, error, sentence):
    with tf.Graph().as_default(), pytest.raises(error, match=sentence):
        v1.tpu.shard(lambda: training_loop.repeat(2, body, [tf.constant(1)]), None, num_shards)


def test_infeed_needs_replicas():
    queue = tpu_feed.InfeedQueue(1)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="^Can't build training loop"):
        training_loop.repeat(2, lambda x, fed: x, [1], infeed_queue=queue)
