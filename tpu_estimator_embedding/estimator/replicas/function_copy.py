# SPDX-License-Identifier: Apache-2.0
"""The functions that copied ops call: bodies of `tf.function`, and of v2 loops and conditions.

A function that writes to a variable, or draws random numbers, is copied for every replica, as
the ops of a graph are: without the writes, which happen once, and with different seeds.
"""

from collections.abc import Iterable

from tensorflow.core.framework import function_pb2

from tpu_estimator_embedding.estimator.replicas import op_kinds


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

    def writes(self, node) -> bool:
        """Whether a node calls a function that writes to a variable."""
        return self._calls(node, self._writing, lambda inner: op_kinds.writes(inner.op))

    def is_random(self, node) -> bool:
        """Whether a node calls a function that draws random numbers."""
        return self._calls(node, self._random, op_kinds.is_random)

    def adapt(self, node) -> None:
        """Redirects a node to the copies of its functions, which are made on first use."""
        for called in op_kinds.called_functions(node):
            called.name = self._copy(called.name)

    def _calls(self, node, known: dict[str, bool], is_wanted) -> bool:
        return any(self._contains(called.name, known, is_wanted)
                   for called in op_kinds.called_functions(node))

    def _contains(self, name: str, known: dict[str, bool], is_wanted) -> bool:
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


def _drop_writes(function: function_pb2.FunctionDef) -> None:
    """Removes the nodes that write, except those whose output is used."""
    needed = {source.split(":")[0] for node in function.node_def for source in node.input}
    needed |= {source.split(":")[0] for source in function.ret.values()}
    dropped = {node.name for node in function.node_def
               if op_kinds.writes(node.op) and node.name not in needed}
    kept = [node for node in function.node_def if node.name not in dropped]
    for node in kept:
        sources = [source for source in node.input if source.removeprefix("^") not in dropped]
        del node.input[:]
        node.input.extend(sources)
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
