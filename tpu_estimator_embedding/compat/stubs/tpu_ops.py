# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for TPU ops without a CPU kernel.

A session refuses a graph that contains an op without a kernel, even if the op is never fetched.
`tf.compat.v1.tpu.cross_replica_sum`, `CrossShardOptimizer` and the gradients of both create the
op CrossReplicaSum through `gen_tpu_ops.cross_replica_sum`, so the stub replaces this function.
The two other collective ops that a model can call are replaced too.
"""

import contextlib
import json
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.distribute import tpu_util
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu_function

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat import patch, patch_table
from tpu_estimator_embedding.types import Tensor

# The scope marks a stub for readers of a graph, the gradient name marks it for programs.
SCOPE = "cross_replica_sum_stub"
GRADIENT = "CrossReplicaSumStandIn"
GROUPS = "_group_assignment"
GATHERED = "_gathered"

_tpu_cross_replica_sum = gen_tpu_ops.cross_replica_sum
_tpu_all_to_all = gen_tpu_ops.all_to_all
_tpu_collective_permute = gen_tpu_ops.collective_permute


def install_stubs() -> None:
    """Installs the stubs permanently; further calls change nothing.

    >>> install_stubs()
    >>> with tf.Graph().as_default() as graph:
    ...     total = tf.compat.v1.tpu.cross_replica_sum(tf.constant(3.0), [[0]])
    ...     float(tf.compat.v1.Session().run(total))
    3.0
    >>> is_stub(total.op), group_assignment(total.op)
    (True, [[0]])
    """
    for row in patch_table.TPU_OPS:
        patch.apply(row)


def stubs_installed() -> contextlib.AbstractContextManager[None]:
    """Returns a context in which the stubs are installed."""
    return patch.applied(patch_table.TPU_OPS)


def is_stub(op: tf.Operation) -> bool:
    """Whether `op` stands in for a sum over replicas."""
    return op.type == "Identity" and is_stub_node(op.node_def)


def is_stub_node(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node, of a graph or a function, is such an op."""
    return node.op == "Identity" and node.attr["_gradient_op_type"].s == GRADIENT.encode()


def group_assignment(op: tf.Operation) -> list[list[int]] | None:
    """The groups of replicas that sum with each other; None if the graph computes them."""
    groups = op.node_def.attr[GROUPS].s
    return json.loads(groups) if groups else None


def is_gathered(op: tf.Operation) -> bool:
    """Whether a stub is part of IndexedSlices, whose sum is a concatenation."""
    return op.node_def.attr[GATHERED].b


def cross_replica_sum(input: Any, group_assignment: Any = None, name: str | None = None) -> Any:
    """Returns the sum of `input` over the replicas; without a TPU, `input` itself.

    Args:
        input: tensor or `IndexedSlices` of any shape. The sum of slices concatenates the slices
            of all replicas and stays sparse.
        group_assignment: `[groups, replicas per group]` integers: the replicas that sum with
            each other.
        name: name of the op.

    Returns:
        A tensor or `IndexedSlices`, like `input`, of the same shape and dtype.
    """
    if _is_in_tpu_context():
        return _tpu_cross_replica_sum(input, group_assignment, name=name)
    if tf.executing_eagerly():
        return tf.identity(input)
    with tf.name_scope(SCOPE):
        if isinstance(input, tf.IndexedSlices):
            return _sum_of_slices(input, group_assignment, name)
        return _marked_identity(input, group_assignment, name)


def all_to_all(input: Any, group_assignment: Any, concat_dimension: int, split_dimension: int,
               split_count: int, name: str | None = None) -> Tensor:
    """Returns the pieces of `input` that the replicas send to this one; with one, `input`.

    Raises:
        ValueError: if `split_count` is not 1, the size of a group with one replica.
        RuntimeError: if the graph is built for several replicas.
    """
    if _is_in_tpu_context():
        return _tpu_all_to_all(input, group_assignment, concat_dimension, split_dimension,
                               split_count, name=name)
    _check_one_replica("all_to_all")
    checks.check(split_count == 1, "split_count", "1 where there is one replica", split_count)
    return tf.identity(input, name=name)


def collective_permute(input: Any, source_target_pairs: Any, name: str | None = None) -> Tensor:
    """Returns the tensor that the pairs send to this replica; with one, `input` or zeros.

    Raises:
        RuntimeError: if the graph is built for several replicas.
    """
    if _is_in_tpu_context():
        return _tpu_collective_permute(input, source_target_pairs, name=name)
    _check_one_replica("collective_permute")
    pairs = tf.reshape(tf.convert_to_tensor(source_target_pairs, tf.int32), [-1, 2])
    is_sent = tf.reduce_any(tf.reduce_all(tf.equal(pairs, 0), axis=1))
    return tf.where(is_sent, input, tf.zeros_like(input), name=name)


def _is_in_tpu_context() -> bool:
    # XLA alone is not enough: XLA on a CPU has no kernels for these ops either.
    return tpu_util.enclosing_tpu_context() is not None


def _num_replicas() -> int:
    return tpu_function.get_tpu_context().number_of_shards or 1


def _check_one_replica(function: str) -> None:
    replicas = _num_replicas()
    if replicas > 1:
        raise RuntimeError(f"{function} exchanges rows between {replicas} replicas, which only a "
                           f"TPU does here. Set `num_shards=1` in the TPUConfig.")


def _sum_of_slices(slices: tf.IndexedSlices, groups: Any, name: str | None) -> tf.IndexedSlices:
    if _num_replicas() == 1:
        return tf.IndexedSlices(_marked_identity(slices.values, groups, name), slices.indices,
                                slices.dense_shape)
    values, indices = (_marked_identity(_of_any_length(part), groups, name, is_gathered=True)
                       for part in (slices.values, slices.indices))
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _of_any_length(tensor: Tensor) -> Tensor:
    """Hides the static number of slices, which is that of one replica, not of the sum."""
    return tf.compat.v1.placeholder_with_default(tensor, [None, *tensor.shape[1:].as_list()])


def _marked_identity(value: Tensor, groups: Any, name: str | None, *,
                     is_gathered: bool = False) -> Tensor:
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"Identity": GRADIENT}):
        result = tf.identity(value, name=name)
    if groups is not None and not tf.is_tensor(groups):
        text = json.dumps([list(map(int, group)) for group in groups])
        result.op._set_attr(GROUPS, attr_value_pb2.AttrValue(s=text.encode()))
    if is_gathered:
        result.op._set_attr(GATHERED, attr_value_pb2.AttrValue(b=True))
    return result


@tf.RegisterGradient(GRADIENT)
def _gradient(op: tf.Operation, gradient: Any) -> Any:
    # Every replica's loss depends on the sum, so the gradient is a sum over replicas too.
    return cross_replica_sum(gradient, group_assignment(op))
