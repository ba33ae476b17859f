# SPDX-License-Identifier: Apache-2.0
"""Copies the part of a graph that computes some tensors from some inputs.

A replica's step is a copy of the first one's, with other inputs. The copy consists of the ops
between the inputs and the wanted tensors, random ops, which draw different numbers in every
copy, and the state of v1 while loops. Ops that depend on none of these, such as variables and
their reads, are shared. Ops that write to a variable are not copied: they run once, and
whatever waited for them waits for them in every copy. Only an op that writes to a variable of each
core is copied. A function that writes to a variable, or draws random numbers, is copied as the ops
of a graph are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2, node_def_pb2
from tensorflow.core.framework.node_def_pb2 import NodeDef

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.replicas import op_kinds
from tpu_estimator_embedding.ops import core_values, replica_graphs
from tpu_estimator_embedding.ops.graph_rewrites import wait_for
from tpu_estimator_embedding.ops.graph_walk import closure, sources
from tpu_estimator_embedding.types import Tensor


class FunctionCopies:
    """Copies of those functions of a library that a replica cannot share."""

    def __init__(self, functions: Iterable[function_pb2.FunctionDef], scope: str, index: int):
        """Takes the functions of a graph.

        Args:
            functions: all of the library.
            scope: part of the names of the copies.
            index: the number of the copy, from 1; shifts the seeds of random ops.
        """
        self._functions = {function.signature.name: function for function in functions}
        self._scope, self._index = scope, index
        self._writing: dict[str, bool] = {}
        self._random: dict[str, bool] = {}
        self.copies: dict[str, function_pb2.FunctionDef] = {}

    def writes(self, node: NodeDef) -> bool:
        """Whether a node calls a function that writes to a variable."""
        return self._calls(node, self._writing, lambda inner: op_kinds.writes(inner.op))

    def is_random(self, node: NodeDef) -> bool:
        """Whether a node calls a function that draws random numbers."""
        return self._calls(node, self._random, op_kinds.is_random)

    def adapt(self, node: NodeDef) -> None:
        """Redirects a node to the copies of its functions, which are made on first use."""
        for called in op_kinds.called_functions(node):
            called.name = self._copy(called.name)

    def _calls(self, node: NodeDef, known: dict[str, bool],
               is_wanted: Callable[[NodeDef], bool]) -> bool:
        return any(self._contains(called.name, known, is_wanted)
                   for called in op_kinds.called_functions(node))

    def _contains(self, name: str, known: dict[str, bool],
                  is_wanted: Callable[[NodeDef], bool]) -> bool:
        if name not in known:
            function = self._functions.get(name)
            known[name] = function is not None and any(
                is_wanted(node) or self._calls(node, known, is_wanted)
                for node in function.node_def)
        return known[name]

    def _copy(self, name: str) -> str:
        is_shared = not (self._contains(name, self._writing, lambda node: op_kinds.writes(node.op))
                         or self._contains(name, self._random, op_kinds.is_random))
        if is_shared:
            return name
        new_name = f"{name}_{self._scope}"
        if new_name not in self.copies:
            copy = self.copies[new_name] = function_pb2.FunctionDef()
            copy.CopyFrom(self._functions[name])
            copy.signature.name = new_name
            _drop_writes(copy)
            for node in copy.node_def:
                op_kinds.shift_seed(node, self._index)
                self.adapt(node)
        return new_name


def copy_subgraph(targets: Sequence[Tensor | tf.Operation], replaced: Mapping[Any, Tensor],
                  scope: str, index: int) -> list[Tensor | tf.Operation]:
    """Copies the ops that compute `targets`, with other inputs.

    Args:
        targets: tensors of the default graph, and ops that write to variables of each core.
        replaced: input of the original -> input of the copy, of the same dtype. Keys are
            references (`tensor.ref()`).
        scope: name scope of the copies, and part of the names of copied while loops.
        index: the number of the copy, from 1; shifts the seeds of random ops.

    Returns:
        The copies of `targets`; a target that depends on no input is its own copy.

    Raises:
        ValueError: if the gradient of a `tf.py_function` is to be copied, or what writes to
            variables of a core and to others.
    """
    inputs = {reference.deref().name: tensor for reference, tensor in replaced.items()}
    graph = tf.compat.v1.get_default_graph()
    graph_def = graph.as_graph_def(add_shapes=False)
    _check_can_copy(graph_def)
    functions = FunctionCopies(graph_def.library.function, scope, index)
    random = {node.name for node in graph_def.node
              if op_kinds.is_random(node) or functions.is_random(node)}
    ops = _ops_to_copy(targets, {graph.get_operation_by_name(name.split(":")[0])
                                 for name in inputs}, random)
    if not ops:
        return [inputs.get(target.name, target) for target in targets]
    writing = {node.name for node in graph_def.node if functions.writes(node)}
    _check_calls(op for op in ops if op.name in writing)
    waits = _waits(ops, writing)
    _keep(graph_def, {op.name for op in ops}, functions, scope, index)
    outside = {tensor.name: inputs.get(tensor.name, tensor)
               for op in ops for tensor in op.inputs if tensor.op not in ops}
    copied_targets = [target.name for target in targets if _op(target) in ops]
    copies = tf.import_graph_def(graph_def, name=scope, input_map=outside, return_elements=[
        *copied_targets, *(op.name for op in waits)])
    for copy, awaited in zip(copies[len(copied_targets):], waits.values(), strict=True):
        wait_for(copy, awaited)
    copied = iter(copies)
    return [next(copied) if _op(target) in ops else inputs.get(target.name, target)
            for target in targets]


def writes_of_core(ops: Iterable[tf.Operation]) -> list[tf.Operation]:
    """Returns those of the ops that write to variables of each core.

    Raises:
        ValueError: if one writes to variables of a core and to others.
    """
    return [op for op in ops if op_kinds.writes(op.type) and core_values.takes_variable_of_core(op)]


def _op(target: Tensor | tf.Operation) -> tf.Operation:
    return target if isinstance(target, tf.Operation) else target.op


def _check_calls(ops: Iterable[tf.Operation]) -> None:
    found = [op.name for op in ops if core_values.takes_variable_of_core(op)]
    checks.check_with_sentence(
        not found, f"A function must not write to a per-core variable, got {found}.",
        "Write outside of tf.function, tf.cond and tf.while_loop.")


def _check_can_copy(graph_def: tf.compat.v1.GraphDef) -> None:
    found = [node.name for node in graph_def.node if op_kinds.is_gradient_of_py_function(node)]
    checks.check_with_sentence(
        not found, f"With several replicas, tf.py_function has no gradients, got {found}: "
        "TensorFlow keeps one tape for all replicas.",
        "Give tf.numpy_function a tf.custom_gradient, or set num_shards=1 in TPUConfig.")


def _ops_to_copy(targets: Sequence[Tensor | tf.Operation], boundary: set[tf.Operation],
                 random: set[str]) -> set[tf.Operation]:
    ancestors = closure((_op(target) for target in targets),
                         lambda op: () if op in boundary or _writes(op) else sources(op))
    ancestors = {op for op in ancestors if not _writes(op)} - boundary
    starts = [op for op in ancestors if op.name in random or op_kinds.is_of_one_step(op.type)
              or boundary.intersection(sources(op))]
    while True:
        copied = closure(starts, lambda op: ancestors.intersection(_consumers(op)))
        frames = {_frame(op) for op in copied} - {None}
        # A while loop is copied as a whole: its frame cannot be shared.
        starts = [op for op in ancestors if op in copied or _frame(op) in frames]
        if len(starts) == len(copied):
            return copied


def _consumers(op: tf.Operation) -> list[tf.Operation]:
    return [user for tensor in op.outputs for user in tensor.consumers()] + list(
        op._control_outputs)


def _writes(op: tf.Operation) -> bool:
    """Whether an op writes for all replicas."""
    return replica_graphs.runs_once(op) or (
        op_kinds.writes(op.type) and not core_values.takes_variable_of_core(op))


def _frame(op: tf.Operation) -> str | None:
    """Returns the name of the outermost v1 while loop that the op is part of."""
    context, name = op._get_control_flow_context(), None
    if op.type == "Exit":
        context = None
    while context is not None:
        if context.IsWhileContext():
            name = context.name
        context = context.outer_context
    if name is None and op.type in ("Enter", "Exit"):
        name = _loop_of(op)
    return name


def _loop_of(op: tf.Operation) -> str | None:
    if op.type == "Enter":
        users = [user for user in op.outputs[0].consumers() if user.type != "Enter"]
        return _frame(users[0]) if users else None
    return _frame(op.inputs[0].op)


def _waits(ops: set[tf.Operation], writing: set[str]) -> dict[tf.Operation, list[tf.Operation]]:
    """Returns the ops that copies must wait for, apart from other copies.

    A function that writes, and may read what it wrote, writes only in its first call.
    """
    waits = {}
    for op in ops:
        awaited = [source for source in op.control_inputs if source not in ops]
        awaited += [op] if op.name in writing else []
        if awaited:
            waits[op] = awaited
    return waits


def _keep(graph_def: tf.compat.v1.GraphDef, names: set[str], functions: FunctionCopies,
          scope: str, index: int) -> None:
    """Reduces a graph to the nodes of these names, ready to copy."""
    kept = tf.compat.v1.GraphDef()
    for node in graph_def.node:
        if node.name in names:
            _adapt(node, names, functions, scope, index)
            kept.node.append(node)
    del graph_def.node[:]
    graph_def.node.extend(kept.node)
    graph_def.library.function.extend(functions.copies.values())


def _adapt(node: node_def_pb2.NodeDef, names: set[str], functions: FunctionCopies, scope: str,
           index: int) -> None:
    kept = [source for source in node.input
            if not source.startswith("^") or source[1:] in names]
    del node.input[:]
    node.input.extend(kept)
    node.attr.pop("_class", None)  # may name an op that is not copied
    if "frame_name" in node.attr:
        node.attr["frame_name"].s = f"{scope}/".encode() + node.attr["frame_name"].s
    op_kinds.shift_seed(node, index)
    functions.adapt(node)


def _drop_writes(function: function_pb2.FunctionDef) -> None:
    """Removes the nodes that write, except those whose output is used."""
    needed = {source.split(":")[0] for node in function.node_def for source in node.input}
    needed |= {source.split(":")[0] for source in function.ret.values()}
    dropped = {node.name for node in function.node_def
               if op_kinds.writes(node.op) and node.name not in needed}
    kept = [node for node in function.node_def if node.name not in dropped]
    for node in kept:
        inputs = [source for source in node.input if source.removeprefix("^") not in dropped]
        del node.input[:]
        node.input.extend(inputs)
    nodes = [type(node).FromString(node.SerializeToString()) for node in kept]
    del function.node_def[:]
    function.node_def.extend(nodes)
    _drop_control_outputs(function, dropped)


def _drop_control_outputs(function: function_pb2.FunctionDef, dropped: set[str]) -> None:
    for output, node in list(function.control_ret.items()):
        if node in dropped:
            del function.control_ret[output]
    outputs = [name for name in function.signature.control_output if name in function.control_ret]
    del function.signature.control_output[:]
    function.signature.control_output.extend(outputs)
