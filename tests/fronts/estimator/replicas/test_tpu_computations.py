# SPDX-License-Identifier: Apache-2.0
"""tpu.rewrite, replicate, shard and batch_parallel on this machine: numbers, forms, errors."""


import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu import compilation_result_pb2
from tensorflow.python.tpu import tpu, tpu_feed, training_loop
from tensorflow.python.tpu.ops import tpu_ops

import tpu_estimator_embedding

tpu_estimator_embedding.install()

v1 = tf.compat.v1
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
Y = np.random.default_rng(1).normal(size=8).astype(np.float32)


def run(session, fetches):
    session.run(v1.global_variables_initializer())
    return session.run(fetches)


def train_step(x, y):
    """Linear regression by momentum, with an optimizer that sums gradients over replicas."""
    weights = v1.get_variable("weights", [3], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean((tf.linalg.matvec(x, weights) - y) ** 2)
    optimizer = v1.tpu.CrossShardOptimizer(v1.train.MomentumOptimizer(0.1, 0.9))
    return loss, optimizer.minimize(loss, v1.train.get_or_create_global_step())


def trained_by_numpy(steps):
    weights, momentum = np.zeros(3), np.zeros(3)
    for _ in range(steps):
        momentum = 0.9 * momentum + 2 * X.T @ (X @ weights - Y) / len(X)
        weights = weights - 0.1 * momentum
    return weights


def test_rewrite_returns_what_a_tpu_would(session):
    x = tf.constant([1.0, 2.0])
    variable = v1.get_variable("variable", initializer=3.0, use_resource=True)
    one = v1.tpu.rewrite(lambda x: x + variable, [x])
    several = v1.tpu.rewrite(lambda x, y: (x, None, y, variable.assign(y[0])), [x, 2 * x])
    nested = v1.tpu.rewrite(lambda: {"a": x, "b": [x, None], "c": tf.sparse.from_dense(x)})
    nothing = v1.tpu.rewrite(lambda: None)
    only_op = v1.tpu.rewrite(lambda: variable.assign_add(1.0).op)
    assert isinstance(one, list) and isinstance(several, list) and several[1] is None
    assert isinstance(nothing, tf.Operation) and isinstance(only_op, tf.Operation)
    assert [value.tolist() for value in run(session, one)] == [[4, 5]]
    assert [value.tolist() for value in session.run([several[0], several[2]])] == [[1, 2], [2, 4]]
    assert session.run(variable) == 2
    session.run([nothing, only_op])
    assert session.run(variable) == 3
    values = session.run({"a": nested["a"], "b": nested["b"][0], "c": nested["c"]})
    assert values["b"].tolist() == values["c"].values.tolist() == [1, 2]
    assert nested["b"][1] is None


def test_every_op_runs_also_those_that_nothing_returned_needs(session):
    count = v1.get_variable("count", initializer=0, use_resource=True)

    def computation(x):
        count.assign_add(1)
        v1.get_variable("made_inside", initializer=5.0)
        return 2 * x

    [doubled] = v1.tpu.rewrite(computation, [tf.constant(1.0)])
    run(session, doubled)
    session.run(doubled)
    assert session.run(count) == 2
    assert session.run(v1.global_variables()[1]) == 5  # and is not initialized by it again


def test_replicas_have_their_own_inputs_and_sum_over_all(session):
    calls = []

    def computation(x, extra):
        calls.append(x)
        total = v1.tpu.cross_replica_sum(tf.reduce_sum(x))
        return x / total, {"twice": v1.tpu.cross_replica_sum(2 * total), "extra": extra}

    results = v1.tpu.replicate(computation, [[[1.0, 2.0], 1], [[3.0, 4.0], 2], [[5.0, 5.0], 3]])
    assert len(calls) == 1
    values = run(session, results)
    np.testing.assert_allclose([x for x, _ in values], np.array([[1, 2], [3, 4], [5, 5]]) / 20)
    assert [(more["twice"], more["extra"]) for _, more in values] == [(120, 1), (120, 2), (120, 3)]


def test_groups_sum_among_themselves(session):
    results = v1.tpu.replicate(
        lambda x: v1.tpu.cross_replica_sum(x, [[0, 2], [1, 3]]), [[1.0], [2.0], [4.0], [8.0]])
    assert run(session, results) == [[5], [10], [5], [10]]


def all_to_all(parts, groups, concat, split):
    """What each replica receives, by NumPy."""
    received = list(parts)
    for group in groups:
        pieces = [np.split(parts[replica], len(group), split) for replica in group]
        for place, replica in enumerate(group):
            received[replica] = np.concatenate([piece[place] for piece in pieces], concat)
    return received


@pytest.mark.parametrize("groups, concat, split", [
    ([[0, 1, 2, 3]], 0, 0), ([[0, 1, 2, 3]], 0, 1), ([[3, 1], [2, 0]], 1, 0),
    ([[1, 0, 3, 2]], -1, 0), ([[0], [1], [2], [3]], 0, 1)])
def test_all_to_all_moves_pieces_and_gradients_back(session, groups, concat, split):
    parts = np.random.default_rng(2).normal(size=(4, 4, 8)).astype(np.float32)
    weights = np.random.default_rng(3).normal(
        size=(4, *all_to_all(parts, groups, concat, split)[0].shape)).astype(np.float32)

    def computation(x, weight):
        y = tpu_ops.all_to_all(x, concat, split, len(groups[0]), groups)
        assert y.shape == weights.shape[1:]
        [gradient] = tf.gradients(y * weight, x)
        return 2 * y, gradient

    results = run(session, v1.tpu.replicate(computation, [
        [tf.constant(part), tf.constant(weight)]
        for part, weight in zip(parts, weights, strict=True)]))
    expected = all_to_all(parts, groups, concat, split)
    back = all_to_all(weights, groups, split, concat)
    for (value, gradient), wanted, wanted_gradient in zip(results, expected, back, strict=True):
        np.testing.assert_array_equal(value, 2 * wanted)
        np.testing.assert_array_equal(gradient, wanted_gradient)


def test_collective_permute_moves_tensors_and_gradients_back(session):
    pairs = [[0, 1], [1, 0], [3, 2]]

    def computation(x, weight):
        y = tpu_ops.collective_permute(x, pairs)
        [gradient] = tf.gradients(y * weight, x)
        return y, gradient

    results = run(session, v1.tpu.replicate(
        computation, [[tf.constant([x, x + 0.5]), 10 * x] for x in (1.0, 2.0, 3.0, 4.0)]))
    assert [value.tolist() for value, _ in results] == [[2, 2.5], [1, 1.5], [4, 4.5], [0, 0]]
    assert [gradient.tolist() for _, gradient in results] == [
        [20, 20], [10, 10], [0, 0], [30, 30]]


def test_replicas_exchange_in_every_iteration_of_a_loop(session):
    def computation(x):
        return training_loop.repeat(
            3, lambda x: tpu_ops.collective_permute(x, [[0, 1], [1, 2], [2, 0]]) + 1, [x])

    results = run(session, v1.tpu.replicate(computation, [[1.0], [20.0], [300.0]]))
    assert np.ravel(results).tolist() == [4, 23, 303]


def test_sums_and_exchanges_of_each_other(session):
    def computation(x):
        received = tpu_ops.collective_permute(2 * v1.tpu.cross_replica_sum(x) + x, [[0, 1], [1, 0]])
        return v1.tpu.cross_replica_sum(received * x)

    results = run(session, v1.tpu.replicate(computation, [[1.0], [2.0]]))
    assert np.ravel(results).tolist() == [8 + 14, 8 + 14]


def test_two_computations_of_a_graph_do_not_meet(session):
    def total(x):
        return v1.tpu.cross_replica_sum(x)

    first = v1.tpu.replicate(total, [[1.0], [2.0]])
    second = v1.tpu.replicate(total, [[1.0], [2.0], [3.0]])
    assert run(session, [first, second]) == [[[3]] * 2, [[6]] * 3]


def test_shares_of_the_input_and_outputs_put_together(session):
    x = np.arange(24.0).reshape(4, 6)
    results = v1.tpu.shard(
        lambda rows, columns: (2 * rows, columns, tf.reduce_sum(rows), tf.reduce_sum(rows)),
        [tf.constant(x), tf.constant(x)], num_shards=2, input_shard_axes=[0, 1],
        outputs_from_all_shards=[True, True, True, False], output_shard_axes=[0, 1, 0, 0])
    rows, columns, sums, first = run(session, results)
    np.testing.assert_array_equal(rows, 2 * x)
    np.testing.assert_array_equal(columns, x)
    assert sums.tolist() == [x[:2].sum(), x[2:].sum()] and first == x[:2].sum()


@pytest.mark.parametrize("num_shards", [1, 2, 4, 8])
def test_training_on_shards_is_training_on_the_batch(session, num_shards):
    [losses] = v1.tpu.batch_parallel(train_step, [tf.constant(X), tf.constant(Y)], num_shards)
    seen = [run(session, losses)] + [session.run(losses) for _ in range(4)]
    weights, step = session.run([v1.global_variables()[0], v1.train.get_global_step()])
    np.testing.assert_allclose(weights, trained_by_numpy(5), atol=1e-6)
    assert step == 5 and seen[0].shape == (num_shards,)
    assert np.mean(seen[0]) == pytest.approx(np.mean(Y ** 2))


def test_static_shape_is_what_all_replicas_have_in_common(session):
    shapes = []
    results = v1.tpu.replicate(lambda x: (shapes.append(x.shape), tf.reduce_sum(x))[1],
                               [[tf.ones([2, 3])], [tf.ones([4, 3])]],
                               maximum_shapes=[tf.TensorShape([None, None])])
    assert shapes[0].as_list() == [None, 3]
    assert run(session, results) == [[6], [12]]


def test_variables_are_resources_of_one_part(session, logged):

    def computation():
        return v1.get_variable("whole", [4], partitioner=v1.fixed_size_partitioner(2))

    run(session, v1.tpu.rewrite(computation))
    assert [variable.name for variable in v1.global_variables()] == ["whole:0"]
    assert logged("Partitioned variables are not supported on TPU: whole")
    assert v1.get_variable_scope().custom_getter is None


def test_compilation_has_succeeded(session):
    for compiled, results in (
            tpu.split_compile_and_replicate(lambda x: x, [[1.0], [2.0]]),
            tpu.split_compile_and_shard(lambda x: x, [tf.constant([1.0, 2.0])], num_shards=2)):
        proto = compilation_result_pb2.CompilationResultProto()
        proto.ParseFromString(run(session, compiled))
        assert proto.status_error_message == "" and results


def test_outside_compilation_is_part_of_the_computation(session):
    def computation(x):
        text = v1.tpu.outside_compilation(lambda x: tf.strings.as_string(x), x)
        return v1.tpu.outside_compilation(tf.strings.to_number, text)

    assert run(session, v1.tpu.replicate(computation, [[1.0], [2.0]])) == [[1], [2]]


def test_rewrite_for_inference(session):
    def computation(x):
        return x * v1.get_variable("factor", initializer=3.0)

    assert run(session, tpu.rewrite_for_inference(computation, [tf.constant(2.0)])) == [6]
    tpu.validate_inference_rewrite_for_variables(session.graph)


def test_function_of_tensorflow_2():
    @tf.function
    def totals(x, y):
        return v1.tpu.replicate(lambda x: v1.tpu.cross_replica_sum(x) + x, [[x], [y]])

    assert [value.numpy() for (value,) in totals(tf.constant(1.0), tf.constant(2.0))] == [4, 5]
    with pytest.raises(RuntimeError, match="build a graph: call them under tf.Graph"):
        v1.tpu.rewrite(lambda x: x, [1.0])


@pytest.mark.parametrize("call, error, sentence", [
    (lambda: v1.tpu.replicate(len, (1, 2)), TypeError,
     r"^tpu\.replicate\(\) inputs must be a list of lists/tuples, received"),
    (lambda: v1.tpu.rewrite(len, 3), TypeError,
     r"^tpu\.replicate\(\) inputs must be a list of lists/tuples, received"),
    (lambda: v1.tpu.replicate(lambda x: x, [[1.0], [1.0, 2.0]]), ValueError,
     "^Replicas must have the same number of inputs. Replica 0 had 1"),
    (lambda: v1.tpu.replicate(lambda x: x, [[1.0], [2]]), ValueError,
     "^Replicas must have matching input types"),
    (lambda: v1.tpu.rewrite(lambda x: x, []), TypeError,
     "^Supplied computation cannot be called with the specified inputs. You specified 0"),
    (lambda: v1.tpu.rewrite(lambda: (tf.no_op(), 1.0)), ValueError,
     "^TPU functions must return zero-or more Tensor values followed by zero or more Operations"),
    (lambda: v1.tpu.rewrite(lambda: {"op": tf.no_op()}), ValueError,
     "^tpu.rewrite does not support Operation as return value in non-flat output structure"),
    (lambda: v1.tpu.rewrite(object), ValueError,
     "^TPU function return values must all either be Operations or convertible to Tensors"),
    (lambda: v1.tpu.shard(lambda: 1.0, num_shards=0), ValueError,
     "^num_shards must be a positive integer. Received 0"),
    (lambda: v1.tpu.shard(lambda x: x, tf.constant([1.0])), TypeError,
     r"^tpu\.shard\(\)'s inputs must be a list of Tensors or None"),
    (lambda: v1.tpu.shard(lambda x: x, [[1.0]], input_shard_axes=[0, 0]), ValueError,
     "^Length of input_shard_axes must be equal to the number of inputs"),
    (lambda: v1.tpu.shard(lambda x: x, [[1.0]], output_shard_axes=[0, 0]), ValueError,
     "^Length of output_shard_axes must be equal to the number of outputs"),
    (lambda: v1.tpu.rewrite(lambda x: x, [1.0], infeed_queue=tpu_feed.InfeedQueue(2)), TypeError,
     "You specified 1 inputs and 2 additional inputs from infeed, but the computation needs"),
    (lambda: v1.tpu.replicate(
        lambda x: v1.tpu.replicate(lambda y: y, [[x], [x]]), [[1.0], [2.0]]), NotImplementedError,
     "^tpu_shard_context cannot be nested")])
def test_errors_begin_as_tensorflows(call, error, sentence):
    with tf.Graph().as_default(), pytest.raises(error, match=sentence):
        call()


def test_sum_in_a_loop_of_tensorflow_is_refused_with_the_fix():
    with tf.Graph().as_default(), pytest.raises(
            ValueError, match="outside of .* tf.while_loop .* loop by tpu.training_loop"):
        v1.tpu.replicate(lambda x: tf.while_loop(
            lambda x: x < 10, lambda x: v1.tpu.cross_replica_sum(x), [x]), [[1.0], [2.0]])


def test_computation_may_change_its_inputs_in_place(session):
    """Those of the other replicas are what they were: 2 x of each."""
    def computation(features):
        features["x"] *= 2
        total = v1.tpu.cross_replica_sum(features.pop("x"))
        del features["y"]
        inputs.clear()
        return total

    inputs = [[{"x": tf.constant([float(replica)]), "y": tf.zeros([])}] for replica in range(4)]
    first = inputs[0][0]
    outputs = v1.tpu.replicate(computation, inputs)
    assert [value.tolist() for (value,) in run(session, outputs)] == [[12.0]] * 4
    assert sorted(first) == ["x", "y"] and inputs == []


def test_sharded_computation_may_change_its_list_of_inputs(session):
    def computation(x, y):
        inputs.append(x)
        return v1.tpu.cross_replica_sum(tf.reduce_sum(x) * 2), y

    inputs = [tf.range(8.0), tf.range(8.0)]
    total, y = v1.tpu.shard(computation, inputs, num_shards=4)
    values = run(session, [total, y])
    assert values[0].tolist() == [56.0] * 4 and values[1].tolist() == list(range(8))
