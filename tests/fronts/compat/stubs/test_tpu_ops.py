# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for ops without a kernel: no such op enters a graph, outside a TPU's context."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import tpu, tpu_function
from tensorflow.python.tpu.ops import tpu_ops as tensorflow_tpu_ops

from tpu_estimator_embedding.compat.stubs import tpu_ops, tpu_system

tpu_ops.install_stubs()


@pytest.fixture(name="tpu_is_there")
def a_process_that_has_met_a_tpu(monkeypatch):
    monkeypatch.setattr(tpu_system, "_answered", {"grpc://somewhere:8470"})


def run(*fetches):
    with tf.compat.v1.Session() as session:
        return session.run(fetches)


def stubs(graph):
    return [op for op in graph.get_operations() if tpu_ops.is_stub(op)]


def types_without_kernel(graph):
    return {op.type for op in graph.get_operations()
            if not kernels.get_registered_kernels_for_op(op.type).kernel}


@pytest.mark.parametrize("cross_replica_sum", [
    tf.compat.v1.tpu.cross_replica_sum, tensorflow_tpu_ops.cross_replica_sum,
    lambda x: tensorflow_tpu_ops.gen_tpu_ops.cross_replica_sum(x, [[0]]),
    lambda x: tf.raw_ops.CrossReplicaSum(input=x, group_assignment=[[0]])])
def test_sum_and_its_gradient_are_stubs(cross_replica_sum):
    with tf.Graph().as_default() as graph:
        x = tf.constant([1.0, 2.0])
        total = cross_replica_sum(x)
        (gradient,) = tf.gradients(total ** 2, x)
        assert [list(value) for value in run(total, gradient)] == [[1, 2], [2, 4]]
        assert len(stubs(graph)) == 2
        assert all(tpu_ops.SCOPE in op.name for op in stubs(graph))
        assert types_without_kernel(graph) == set()


def test_second_gradient_is_a_stub_too():
    with tf.Graph().as_default() as graph:
        x = tf.constant(3.0)
        (first,) = tf.gradients(tf.compat.v1.tpu.cross_replica_sum(x) ** 3, x)
        (second,) = tf.gradients(first, x)
        assert run(second) == (18.0,)
        assert len(stubs(graph)) > 2


def test_groups_can_be_read_back():
    with tf.Graph().as_default() as graph:
        x = tf.constant(1.0)
        total = tf.compat.v1.tpu.cross_replica_sum(x, [[0, 1], [2, 3]])
        computed = tf.compat.v1.tpu.cross_replica_sum(x, tf.constant([[0, 1]]))
        (gradient,) = tf.gradients(total, x)
        assert tpu_ops.group_assignment(total.op) == [[0, 1], [2, 3]]
        assert tpu_ops.group_assignment(gradient.op) == [[0, 1], [2, 3]]
        assert tpu_ops.group_assignment(computed.op) is None
        assert not tpu_ops.is_stub(tf.identity(x).op)
        assert len(stubs(graph)) == 3


def test_slices_stay_sparse():
    with tf.Graph().as_default() as graph:
        table = tf.compat.v1.get_variable("table", [1000, 2])
        (slices,) = tf.gradients(tf.gather(table, [3, 3, 5]), table)
        total = tf.compat.v1.tpu.cross_replica_sum(slices)
        assert isinstance(total, tf.IndexedSlices)
        assert total.indices is slices.indices
        assert stubs(graph) == [total.values.op]


def test_eager_and_tf_function_and_xla():
    def cube(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = tf.compat.v1.tpu.cross_replica_sum(x) ** 3
        return tape.gradient(y, x)

    for function in (cube, tf.function(cube), tf.function(cube, jit_compile=True)):
        assert function(tf.constant(2.0)).numpy() == 12.0


def test_steps_aside_in_a_tpu_context(tpu_is_there):
    with tf.Graph().as_default() as graph:
        def double(x):
            return 2 * tf.compat.v1.tpu.cross_replica_sum(x)

        tpu.replicate(double, [[tf.constant(1.0)], [tf.constant(2.0)]])
        assert "CrossReplicaSum" in {op.type for op in graph.get_operations()}
        assert stubs(graph) == []


def test_steps_aside_in_a_function_within_a_tpu_context(tpu_is_there):
    with tf.Graph().as_default() as graph:
        @tf.function
        def double(x):
            return 2 * tf.compat.v1.tpu.cross_replica_sum(x)

        tpu.rewrite(double, [tf.constant(1.0)])
        functions = [node.op for function in graph.as_graph_def().library.function
                     for node in function.node_def]
        assert "CrossReplicaSum" in functions


def test_cross_shard_optimizer_trains_dense_and_sparse_variables():
    with tf.Graph().as_default() as graph:
        table = tf.compat.v1.get_variable("table", initializer=tf.ones([4, 1]))
        scale = tf.compat.v1.get_variable("scale", initializer=3.0)
        loss = tf.reduce_sum(tf.gather(table, [0, 2, 2])) * scale
        step = tf.compat.v1.tpu.CrossShardOptimizer(
            tf.compat.v1.train.GradientDescentOptimizer(0.1)).minimize(loss)
        assert types_without_kernel(graph) == set()
        with tf.compat.v1.Session() as session:
            session.run(tf.compat.v1.global_variables_initializer())
            session.run(step)
            rows, factor = session.run([table, scale])
    np.testing.assert_allclose(rows[:, 0], [0.7, 1.0, 0.4, 1.0], rtol=1e-6)
    np.testing.assert_allclose(factor, 2.7, rtol=1e-6)


def test_all_to_all_of_one_replica_is_its_input():
    with tf.Graph().as_default() as graph:
        x = tf.constant([[1.0, 2.0]])
        y = tensorflow_tpu_ops.all_to_all(x, concat_dimension=0, split_dimension=1,
                                          split_count=1)
        assert run(y)[0].tolist() == [[1.0, 2.0]]
        assert types_without_kernel(graph) == set()
        with pytest.raises(ValueError, match=r"`split_count` must be 1 where there is one "
                                             r"replica, got 2\."):
            tensorflow_tpu_ops.all_to_all(x, 0, 1, 2)


@pytest.mark.parametrize("pairs, expected", [
    ([[0, 0]], [1.0, 2.0]), ([[1, 0]], [0.0, 0.0]), ([], [0.0, 0.0])])
def test_collective_permute_of_one_replica(pairs, expected):
    with tf.Graph().as_default() as graph:
        y = tensorflow_tpu_ops.collective_permute(tf.constant([1.0, 2.0]), pairs)
        assert run(y)[0].tolist() == expected
        assert types_without_kernel(graph) == set()


@pytest.mark.parametrize("call, message", [
    (lambda x: tensorflow_tpu_ops.all_to_all(x, 0, 0, 2, [[0, 1]]),
     r"`group_assignment` must be groups of 2 replicas that cover all 4, each once, "
     r"got \[\[0, 1\]\]"),
    (lambda x: tf.compat.v1.tpu.cross_replica_sum(x, [[0, 1]]),
     r"`group_assignment` must be groups of 2 replicas that cover all 4, each once"),
    (lambda x: tf.compat.v1.tpu.cross_replica_sum(x, [[0, 1, 2], [3]]), "groups of 3 replicas"),
    (lambda x: tf.compat.v1.tpu.cross_replica_sum(x, [[0, 1], [2, 4]]), "cover all 4"),
    (lambda x: tf.compat.v1.tpu.cross_replica_sum(x, tf.compat.v1.placeholder(tf.int32, [2, 2])),
     "`group_assignment` must be known when the graph is built"),
    (lambda x: tensorflow_tpu_ops.all_to_all(x, 0, 0, 4, [[0, 1, 2, 2]]), "each once"),
    (lambda x: tensorflow_tpu_ops.all_to_all(x, 0, 0, 4), "with a multiple of split_count=4 "
     "entries, got 0"),
    (lambda x: tensorflow_tpu_ops.collective_permute(x, [[0, 4]]), "pairs of 4 replicas"),
    (lambda x: tensorflow_tpu_ops.collective_permute(x, [[0, 1], [2, 1]]), "once a target"),
    (lambda x: tensorflow_tpu_ops.collective_permute(
        x, tf.compat.v1.placeholder(tf.int32, [1, 2])), "known when the graph is built")])
def test_wrong_exchange_between_replicas_is_an_error(call, message):
    with (tf.Graph().as_default(), tpu_function.tpu_shard_context(4),
          pytest.raises(ValueError, match=message)):
        call(tf.constant([1.0, 2.0]))


def test_exchange_steps_aside_in_a_tpu_context(tpu_is_there):
    with tf.Graph().as_default() as graph:
        def exchange(x):
            y = tensorflow_tpu_ops.all_to_all(x, 0, 0, 2)
            return tensorflow_tpu_ops.collective_permute(y, [[0, 1]])

        x = tf.constant([1.0, 2.0])
        tpu.replicate(exchange, [[x], [x]])
        assert {"AllToAll", "CollectivePermute"} <= {op.type for op in graph.get_operations()}
