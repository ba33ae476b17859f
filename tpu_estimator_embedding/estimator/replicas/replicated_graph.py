# SPDX-License-Identifier: Apache-2.0
"""A graph under construction that several replicas share, built for the first of them.

Ops built on the first replica's inputs are copied for the others, as in a step of the
Estimator. A training loop runs all replicas in one loop, so it needs their copies of its
inputs when it is built, and its body is such a graph again.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.framework import func_graph

from tpu_estimator_embedding.estimator.replicas import op_kinds, replicate_step
from tpu_estimator_embedding.estimator.replicas.graph_copy import FunctionCopies, writes_of_core
from tpu_estimator_embedding.ops import replica_graphs
from tpu_estimator_embedding.ops.graph_rewrites import late_tensor, set_late_tensor
from tpu_estimator_embedding.types import Tensor


class Late(NamedTuple):
    """A tensor of the first replica, and the late tensors of its copies for the others."""

    first: Tensor
    others: list[Tensor]


class ReplicatedGraph:
    """The default graph, from now on, as a graph of several replicas.

    Args:
        inputs: for each replica, its input tensors, each the only output of its op.
        outer: the graph that this one captures from, if it is that of a function.

    Attributes:
        has_sums: whether anything copied so far, or a loop in it, sums over the replicas.
    """

    def __init__(self, inputs: Sequence[Sequence[Tensor]],
                 outer: "ReplicatedGraph | None" = None) -> None:
        self._graph = tf.compat.v1.get_default_graph()
        self._context = self._graph._get_control_flow_context()
        self._start = self._first_op = len(self._graph.get_operations())
        self._inputs = [list(of_replica) for of_replica in inputs]
        self._outer = outer
        self._num_captured = 0
        self._late: list[Late] = []
        self.has_sums = False

    @property
    def num_replicas(self) -> int:
        """The number of replicas that share the graph."""
        return len(self._inputs)

    def is_default(self) -> bool:
        """Whether ops are built in this graph, not in a function, condition or loop within it."""
        return (tf.compat.v1.get_default_graph() is self._graph
                and self._graph._get_control_flow_context() is self._context)

    def copies(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Returns every replica's copies of tensors; the first replica has the tensors themselves.

        Raises:
            ValueError: if the graph cannot be copied, or has a sum in an unsupported place.
        """
        with self._graph.as_default():
            self._add_captures()
            sums = replicate_step.cross_replica_sums(self._start)
            self.has_sums |= bool(sums)
            late, self._late = self._late, []
            outputs = [op.outputs[0] for op in sums]
            writes = writes_of_core(self._graph.get_operations()[self._start:])
            replicas = replicate_step.replicate(
                [*tensors, *(of_one.first for of_one in late), *outputs, *writes],
                self._inputs, sums)
            for position, of_one in enumerate(late, start=len(tensors)):
                for tensor, of_replica in zip(of_one.others, replicas[1:], strict=True):
                    set_late_tensor(tensor, of_replica[position])
        start = len(tensors) + len(late)
        self.add_known([of_replica[start:start + len(sums)] for of_replica in replicas])
        return [of_replica[:len(tensors)] for of_replica in replicas]

    def late_copies(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Returns every replica's copies of tensors, which `copies` makes when it is called next.

        Tensors that are copied in one call share copies. A second copy of a part of the graph would
        read variables and draw random numbers a second time, and gradients may add outputs to a
        loop after it was copied.
        """
        found = [Late(tensor, [late_tensor(tf.TensorSpec(tensor.shape, tensor.dtype))
                               for _ in self._inputs[1:]]) for tensor in tensors]
        self._late += found
        return [list(tensors), *([of_one.others[replica] for of_one in found]
                                 for replica in range(self.num_replicas - 1))]

    def add_known(self, replicas: Sequence[Sequence[Tensor]]) -> None:
        """Adds tensors that differ by replica; ops built so far are not copied again."""
        self._start = len(self._graph.get_operations())
        self.add_inputs(replicas)

    def add_inputs(self, replicas: Sequence[Sequence[Tensor]]) -> None:
        """Adds tensors that each replica receives; every one is the only output of its op."""
        for inputs, of_replica in zip(self._inputs, replicas, strict=True):
            inputs.extend(of_replica)

    def writes(self) -> list[tf.Operation]:
        """Returns the ops built so far that write, except initializers of variables."""
        return writes_since(self._graph, self._first_op)

    def _add_captures(self) -> None:
        """Captures the tensors of every replica that correspond to captures of the first one."""
        if self._outer is None or not isinstance(self._graph, func_graph.FuncGraph):
            return
        captures = self._graph.captures[self._num_captured:]
        # A nested loop may capture a tensor of a graph further out.
        outside = [self._outer.seen(tensor) for tensor, _ in captures]
        replicas = self._outer.copies(outside)
        for (_, inside), first, *others in zip(captures, *replicas, strict=True):
            if any(own is not first for own in others):  # what all share is not copied
                for inputs, own in zip(self._inputs, [first, *others], strict=True):
                    inputs.append(inside if own is first else self._graph.capture(own))
        self._num_captured = len(self._graph.captures)

    def seen(self, tensor: Tensor) -> Tensor:
        """Returns a tensor of this graph; captures it if it belongs to another graph."""
        if isinstance(self._graph, func_graph.FuncGraph):
            return self._graph.capture(tensor)
        return tensor


def writes_since(graph: tf.Graph, start: int) -> list[tf.Operation]:
    """Returns the ops from the one numbered `start` on that change variables, files and so on.

    A computation on a TPU runs all of its ops, also those that its results do not need.
    Initializers of variables and tables are not part of it.
    """
    context = graph._get_control_flow_context()
    functions = FunctionCopies(graph.as_graph_def().library.function, "", 0)
    initializers = _initializers(graph)
    return [op for op in graph.get_operations()[start:]
            if op not in initializers and op._get_control_flow_context() is context
            and (op_kinds.writes(op.type) or replica_graphs.runs_once(op)
                 or functions.writes(op.node_def))]


def _initializers(graph: tf.Graph) -> set[tf.Operation]:
    made = [item for name in graph.get_all_collection_keys() for item in graph.get_collection(name)]
    return {getattr(item, "initializer", item) for item in made
            if isinstance(getattr(item, "initializer", item), tf.Operation)}
