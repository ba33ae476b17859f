# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for TPU ops without a CPU kernel.

A session refuses a graph that contains an op without a kernel, even if the op is never fetched.
`tf.compat.v1.tpu.cross_replica_sum`, `CrossShardOptimizer` and the gradients of both create the
op CrossReplicaSum through `gen_tpu_ops.cross_replica_sum`, so the stub replaces this function.
The two other collective ops that a model can call are replaced too, and so are the ops whose value
is another one on each core.

A stub passes its input on. Where a model is copied for several replicas, the copies of a stub are
connected: see `estimator.replicas.replicate_step`.
"""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.core.framework import attr_value_pb2, node_def_pb2
from tensorflow.python.distribute import tpu_util
from tensorflow.python.ops import gen_tpu_ops
from tensorflow.python.tpu import tpu_function

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.ops import core_values
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.types import Tensor

# The scope marks a stub for readers of a graph, the gradient name marks it for programs.
SCOPE = "cross_replica_sum_stub"
GRADIENT = "CrossReplicaSumStandIn"
GROUPS = "_group_assignment"
GATHERED = "_gathered"
EXCHANGE_GRADIENT = "ReplicaExchangeStandIn"
EXCHANGE_GROUPS, EXCHANGE_PAIRS = "_exchange_groups", "_exchange_pairs"
EXCHANGE_AXES = "_exchange_axes"  # of concatenation and of the split

_tpu_cross_replica_sum = gen_tpu_ops.cross_replica_sum
_tpu_all_to_all = gen_tpu_ops.all_to_all
_tpu_collective_permute = gen_tpu_ops.collective_permute
_tpu_replicated_input = gen_tpu_ops.tpu_replicated_input
_tpu_replicated_output = gen_tpu_ops.tpu_replicated_output
_xla_replica_id = gen_xla_ops.xla_replica_id


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
    """Whether `op` stands in for a sum over replicas, or for an exchange between them."""
    return op.type == "Identity" and is_stub_node(op.node_def)


def is_stub_node(node: node_def_pb2.NodeDef) -> bool:
    """Whether a node, of a graph or a function, is such an op."""
    return node.op == "Identity" and node.attr["_gradient_op_type"].s.decode() in (
        GRADIENT, EXCHANGE_GRADIENT)


def group_assignment(op: tf.Operation) -> list[list[int]] | None:
    """The groups of replicas that sum with each other; None if the graph computes them."""
    return _matrix_of(op, GROUPS)


def is_gathered(op: tf.Operation) -> bool:
    """Whether a stub is part of IndexedSlices, whose sum is a concatenation."""
    return op.node_def.attr[GATHERED].b

# `[groups, replicas per group]` integers, or pairs of replicas.
Groups: TypeAlias = Tensor | np.ndarray | Sequence[Sequence[int]]


def cross_replica_sum(input: Tensor | tf.IndexedSlices, group_assignment: Groups | None = None,
                      name: str | None = None) -> Tensor | tf.IndexedSlices:
    """Returns the sum of `input` over the replicas; without a TPU, `input` itself.

    Args:
        input: tensor or `IndexedSlices` of any shape. The sum of slices concatenates the slices
            of all replicas and stays sparse.
        group_assignment: `[groups, replicas per group]` integers: the replicas that sum with
            each other.
        name: name of the op.

    Returns:
        A tensor or `IndexedSlices`, like `input`, of the same shape and dtype.

    Raises:
        ValueError: with several replicas, if the groups differ in size, do not have all replicas,
            each once, or are not known when the graph is built.
    """
    if _is_in_tpu_context():
        return _tpu_cross_replica_sum(input, group_assignment, name=name)
    if tf.executing_eagerly():
        return tf.identity(input)
    if group_assignment is not None and _num_replicas() > 1:
        group_assignment = _integers("group_assignment", group_assignment)
        if group_assignment:  # without a group, all replicas are one
            _check_groups(group_assignment, len(group_assignment[0]))
    with tf.name_scope(SCOPE):
        if isinstance(input, tf.IndexedSlices):
            return _sum_of_slices(input, group_assignment, name)
        return _marked_identity(input, group_assignment, name)


@dataclasses.dataclass(frozen=True)
class Exchange:
    """What replicas send to each other.

    Attributes:
        groups: for `all_to_all`, the replicas that exchange with each other.
        concat_dimension: the axis along which what a replica receives is concatenated.
        split_dimension: the axis along which what it sends is split, in the order of its group.
        pairs: for `collective_permute`, (source, target) of what is sent; groups are empty.
    """

    groups: Sequence[Sequence[int]] = ()
    concat_dimension: int = 0
    split_dimension: int = 0
    pairs: Sequence[Sequence[int]] = ()

    def reversed(self) -> "Exchange":
        """Returns the exchange that sends everything back, as gradients are."""
        return Exchange(self.groups, self.split_dimension, self.concat_dimension,
                        [[target, source] for source, target in self.pairs])

    def received(self, sent: Sequence[Tensor]) -> list[Tensor]:
        """Returns what each replica receives if replica i sends `sent[i]`."""
        if not self.groups:
            source_of = {target: source for source, target in self.pairs}
            return [sent[source_of[replica]] if replica in source_of else tf.zeros_like(own)
                    for replica, own in enumerate(sent)]
        results = list(sent)
        for group in self.groups:
            pieces = [tf.split(sent[replica], len(group), self.split_dimension)
                      for replica in group]
            for place, replica in enumerate(group):
                results[replica] = tf.concat([piece[place] for piece in pieces],
                                             self.concat_dimension)
        return results


def exchange(op: tf.Operation) -> Exchange | None:
    """The exchange that a stub stands in for; None if it is a sum."""
    axes = op.node_def.attr[EXCHANGE_AXES].list.i
    if not axes:
        return None
    concat_dimension, split_dimension = axes
    return Exchange(_matrix_of(op, EXCHANGE_GROUPS) or (), concat_dimension, split_dimension,
                    _matrix_of(op, EXCHANGE_PAIRS) or ())


def all_to_all(input: Tensor, group_assignment: Groups, concat_dimension: int, split_dimension: int,
               split_count: int, name: str | None = None) -> Tensor:
    """Returns the pieces of `input` that the replicas send to this one; with one, `input`.

    Replica i of a group receives the i-th piece of every replica of the group.

    Args:
        input: tensor whose axis `split_dimension` has a multiple of `split_count` entries.
        group_assignment: `[groups, split_count]` integers: the replicas that exchange pieces.
        concat_dimension: axis along which the pieces received are concatenated.
        split_dimension: axis along which `input` is split.
        split_count: pieces, one for every replica of a group.
        name: name of the op.

    Raises:
        ValueError: if `split_count` is not the size of a group, or the groups are not all
            replicas, each once.
    """
    if _is_in_tpu_context():
        return _tpu_all_to_all(input, group_assignment, concat_dimension, split_dimension,
                               split_count, name=name)
    if _num_replicas() == 1:
        checks.check(split_count == 1, "split_count", "1 where there is one replica", split_count)
        return tf.identity(input, name=name)
    groups = _integers("group_assignment", group_assignment)
    _check_groups(groups, split_count)
    value = tf.convert_to_tensor(input)
    sizes = _size_by_axis(value)
    if sizes is not None:
        axes = range(-len(sizes), len(sizes))
        checks.check(concat_dimension in axes, "concat_dimension", f"an axis of {value.shape}",
                     concat_dimension)
        checks.check(split_dimension in axes and (sizes[split_dimension] or 0) % split_count == 0,
                     "split_dimension", f"an axis of {value.shape} with a multiple of split_count="
                     f"{split_count} entries", split_dimension)
        if sizes[split_dimension] is not None:
            sizes[split_dimension] //= split_count
        if sizes[concat_dimension] is not None:
            sizes[concat_dimension] *= split_count
    return _marked_exchange(value, Exchange(groups, concat_dimension, split_dimension), sizes, name)


def collective_permute(input: Tensor, source_target_pairs: Groups,
                       name: str | None = None) -> Tensor:
    """Returns the tensor that the pairs send to this replica; zeros if none does.

    Args:
        input: tensor of any shape.
        source_target_pairs: `[pairs, 2]` integers: which replica sends its tensor to which.
        name: name of the op.

    Raises:
        ValueError: with several replicas, if a pair has another replica, or one sends or receives
            twice.
    """
    if _is_in_tpu_context():
        return _tpu_collective_permute(input, source_target_pairs, name=name)
    if _num_replicas() == 1:
        pairs = tf.reshape(tf.convert_to_tensor(source_target_pairs, tf.int32), [-1, 2])
        is_sent = tf.reduce_any(tf.reduce_all(tf.equal(pairs, 0), axis=1))
        return tf.where(is_sent, input, tf.zeros_like(input), name=name)
    sent = _integers("source_target_pairs", source_target_pairs)
    sources, targets = ([pair[side] for pair in sent] for side in (0, 1))
    checks.check(
        all(len(set(side)) == len(side) and set(side) <= set(range(_num_replicas()))
            for side in (sources, targets)), "source_target_pairs",
        f"pairs of {_num_replicas()} replicas, each at most once a source and once a target", sent)
    value = tf.convert_to_tensor(input)
    return _marked_exchange(value, Exchange(pairs=sent), _size_by_axis(value), name)


def tpu_replicated_input(inputs: Sequence[Tensor], is_mirrored_variable: bool = False,
                         index: int = -1, is_packed: bool = False,
                         name: str | None = None) -> Tensor:
    """Returns the tensor that is `inputs[i]` in the computation of replica i.

    Args:
        inputs: for each replica, its value: a tensor, or the handle of a variable.
        is_mirrored_variable: is ignored: each replica has its own value in either case.
        index: is ignored; it orders the inputs of a TPU's computation.
        is_packed: must be False.
        name: name of the op.

    Raises:
        ValueError: if the number of inputs is not that of the replicas, or they are packed.
    """
    if _is_in_tpu_context():
        return _tpu_replicated_input(inputs, is_mirrored_variable, index, is_packed, name)
    checks.check(not is_packed, "is_packed", "False without a TPU", is_packed)
    replicas = tpu_function.get_tpu_context().number_of_shards
    checks.check(len(inputs) == replicas if replicas else len(inputs) > 0, "inputs",
                 f"a value for each of the {replicas or ''} replicas".replace("  ", " "), inputs)
    return core_values.core_value(inputs, name)


def tpu_replicated_output(input: Tensor, num_replicas: int,
                          name: str | None = None) -> list[Tensor]:
    """Returns the values of a tensor of a computation outside of it; of one replica only.

    Args:
        input: the tensor.
        num_replicas: must be 1.
        name: name of the op.

    Raises:
        ValueError: if there are several replicas.
    """
    if _is_in_tpu_context() or "_tpu_replicate" in input.op.node_def.attr:  # made for a TPU
        return _tpu_replicated_output(input, num_replicas, name)
    checks.check(num_replicas == 1, "num_replicas", "1 without a TPU", num_replicas,
                 "Return the tensor from the computation: tpu.replicate returns its value of each "
                 "replica.")
    return [tf.identity(input, name)]


def xla_replica_id(name: str | None = None) -> Tensor:
    """Returns the number of the replica that runs a computation, a scalar int32.

    Raises:
        RuntimeError: outside of a computation of replicas, where XLA ends the process.
    """
    if _is_in_tpu_context():
        return _xla_replica_id(name=name)
    replicas = tpu_function.get_tpu_context().number_of_shards
    if replicas is None:
        raise RuntimeError(
            "xla.replica_id() must be called in a computation of replicas: in the model_fn of a "
            "TPUEstimator with use_tpu=True, or in tpu.replicate.")
    return core_values.core_value([tf.constant(replica) for replica in range(replicas)], name)


def _integers(argument: str, matrix: Groups) -> list[list[int]]:
    values = tf.get_static_value(matrix) if tf.is_tensor(matrix) else matrix
    checks.check(values is not None, argument, "known when the graph is built, where there are "
                 "several replicas", matrix)
    return [[int(value) for value in row] for row in values]


def _check_groups(groups: list[list[int]], size: int) -> None:
    replicas = _num_replicas()
    checks.check(
        all(len(group) == size for group in groups)
        and sorted(sum(groups, [])) == list(range(replicas)), "group_assignment",
        f"groups of {size} replicas that cover all {replicas}, each once", groups)


def _set_matrix(op: tf.Operation, attribute: str, matrix: Groups) -> None:
    integers = tf.make_tensor_proto(matrix, tf.int32)
    op._set_attr(attribute, attr_value_pb2.AttrValue(tensor=integers))


def _matrix_of(op: tf.Operation, attribute: str) -> list[list[int]] | None:
    value = op.node_def.attr[attribute]
    return tf.make_ndarray(value.tensor).tolist() if value.HasField("tensor") else None


def _size_by_axis(value: Tensor) -> list[Any] | None:
    return None if value.shape.rank is None else value.shape.as_list()


def _marked_exchange(value: Tensor, what: Exchange, shape: list[int | None] | None,
                     name: str | None) -> Tensor:
    # The received and the sent tensor may differ in shape.
    sent = tf.compat.v1.placeholder_with_default(
        value, None if value.shape.rank is None else [None] * value.shape.rank)
    with tf.compat.v1.get_default_graph().gradient_override_map({"Identity": EXCHANGE_GRADIENT}):
        result = tf.identity(sent, name=name)
    _set_matrix(result.op, EXCHANGE_GROUPS, what.groups)
    _set_matrix(result.op, EXCHANGE_PAIRS, what.pairs)
    axes = attr_value_pb2.AttrValue.ListValue(i=[what.concat_dimension, what.split_dimension])
    result.op._set_attr(EXCHANGE_AXES, attr_value_pb2.AttrValue(list=axes))
    result.set_shape(shape)
    return result


@tf.RegisterGradient(EXCHANGE_GRADIENT)
def _gradient_of_exchange(op: tf.Operation, gradient: Tensor | tf.IndexedSlices) -> Tensor:
    what = exchange(op)
    assert what is not None
    sent = op.inputs[0].op.inputs[0]
    return _marked_exchange(tf.convert_to_tensor(gradient), what.reversed(), _size_by_axis(sent),
                            None)


def _is_in_tpu_context() -> bool:
    # XLA alone is not enough: XLA on a CPU has no kernels for these ops either.
    return tpu_util.enclosing_tpu_context() is not None


def _num_replicas() -> int:
    return tpu_function.get_tpu_context().number_of_shards or 1


def _sum_of_slices(slices: tf.IndexedSlices, groups: Groups | None,
                   name: str | None) -> tf.IndexedSlices:
    if _num_replicas() == 1:
        return tf.IndexedSlices(_marked_identity(slices.values, groups, name), slices.indices,
                                slices.dense_shape)
    values, indices = (_marked_identity(_of_any_length(part), groups, name, is_gathered=True)
                       for part in (slices.values, slices.indices))
    return tf.IndexedSlices(values, indices, slices.dense_shape)


def _of_any_length(tensor: Tensor) -> Tensor:
    """Hides the static number of slices, which is that of one replica, not of the sum."""
    return tf.compat.v1.placeholder_with_default(tensor, [None, *tensor.shape[1:].as_list()])


def _marked_identity(value: Tensor, groups: Groups | None, name: str | None, *,
                     is_gathered: bool = False) -> Tensor:
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"Identity": GRADIENT}):
        result = tf.identity(value, name=name)
    if groups is not None and not tf.is_tensor(groups):
        _set_matrix(result.op, GROUPS, groups)
    if is_gathered:
        result.op._set_attr(GATHERED, attr_value_pb2.AttrValue(b=True))
    return result


@tf.RegisterGradient(GRADIENT)
def _gradient(op: tf.Operation,
              gradient: Tensor | tf.IndexedSlices) -> Tensor | tf.IndexedSlices:
    # Every replica's loss depends on the sum, so the gradient is a sum over replicas too.
    return cross_replica_sum(gradient, group_assignment(op))
