# SPDX-License-Identifier: Apache-2.0
"""The callables of a module, and the names that expressions have in TensorFlow."""

import collections

import libcst as cst

from tpu_estimator_embedding.migration.assignments import (
    assigned,
    bindings_in,
    changed_in,
    innermost,
    parameters,
)
from tpu_estimator_embedding.migration.bindings import Bindings, dotted
from tpu_estimator_embedding.migration.node_search import find_all

_ROOTS = ("tensorflow.compat.v1.", "tensorflow.compat.v2.", "tensorflow._api.v2.compat.v1.",
          "tensorflow._api.v2.compat.v2.", "tensorflow_core.", "tensorflow.", "tf_keras.")
_OLD_EQUALITY = ("disable_v2_behavior", "disable_tensor_equality")
OWN = "tpu_estimator_embedding."


class NameTable:
    """Resolves the callables of a module.

    Args:
        module: the module.
        bindings: its names.
    """

    def __init__(self, module: cst.Module, bindings: Bindings) -> None:
        self._bindings = bindings
        self.functions: dict[str, list[cst.FunctionDef]] = collections.defaultdict(list)
        self.methods: dict[str, list[cst.FunctionDef]] = collections.defaultdict(list)
        self.classes: dict[str, list[cst.ClassDef]] = collections.defaultdict(list)
        of_classes = set()
        for node in find_all(module, cst.ClassDef):
            self.classes[node.name.value].append(node)
            for method in node.body.body:
                if isinstance(method, cst.FunctionDef):
                    self.methods[method.name.value].append(method)
                    of_classes.add(method)
        for function in find_all(module, cst.FunctionDef):
            if function not in of_classes:
                self.functions[function.name.value].append(function)
        # Whether `==` of two tensors tells whether they are the same object, as in TF1.
        self.has_object_equality = any(
            (dotted(call.func) or ("",))[-1] in _OLD_EQUALITY
            for call in find_all(module, cst.Call))
        inside = {one for node in find_all(module, cst.FunctionDef)
                  for one in find_all(node, cst.For, cst.While)}
        self._loops = [loop for loop in find_all(module, cst.For, cst.While)
                       if loop not in inside]
        # Variable of the module -> its values.
        self.globals: dict[str, list[cst.BaseExpression]] = collections.defaultdict(list)
        # Those of which the value is a part, or is changed in place while the module is imported.
        self.unclear: set[str] = set()
        for statement in module.body:
            if not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                for name, value, is_part in bindings_in(statement):
                    if value is not None:
                        self.globals[name].append(value)
                    self.unclear |= {name} if is_part else set()
                self.unclear |= {root.value for root in map(innermost, changed_in(statement))
                                 if isinstance(root, cst.Name)}

    def changed_later(self) -> dict[str, str]:
        """Returns variable of the module -> where it is changed after the module was imported."""
        found: dict[str, str] = {}
        for name, functions in (*self.functions.items(), *self.methods.items()):
            for function in functions:
                own = {*parameters(function), *assigned(function)}
                declared = {item.name.value for node in find_all(function.body, cst.Global)
                            for item in node.names}
                roots = {root.value for root in map(innermost, changed_in(function.body))
                         if isinstance(root, cst.Name)}
                found.update(dict.fromkeys(
                    declared | (roots & set(self.globals)) - own, f"`{name}`"))
        for loop in self._loops:
            found.update(dict.fromkeys({name for name, _, _ in bindings_in(loop)}, "a loop"))
        return found

    def of_name(self, name: str) -> cst.FunctionDef:
        """Returns a function or method of the module that has a name."""
        return [*self.functions[name], *self.methods[name]][0]

    def paths(self, node: cst.CSTNode) -> list[str]:
        """Returns the dotted names that an expression may have in other modules."""
        words = dotted(node)
        scope = self._bindings.scope_of(_root(node)) if words else None
        if scope is None:
            return []
        return [".".join((path, *words[1:]))
                for path in self._bindings.meaning(scope, words[0]).paths]

    def means(self, node: cst.CSTNode, name: str) -> bool:
        """Whether an expression is a name of this package, or of TensorFlow, by its last word."""
        words, paths = dotted(node), self.paths(node)
        if words == (name,) and not paths:  # which a star import may give
            return name not in self.functions and name not in self.classes
        return words[-1:] == (name,) and any(
            path.startswith(OWN) or relative(path) for path in paths)

    def of_tensorflow(self, node: cst.CSTNode) -> str:
        """Returns a name relative to TensorFlow; empty if it is none of TensorFlow's.

        A name that `try: import` may bind to several is the first that is TensorFlow's.
        """
        for path in self.paths(node):
            found = relative(path)
            if found:
                return found
        return ""


def relative(path: str) -> str:
    """Returns a dotted name relative to TensorFlow; empty if it is none of TensorFlow's.

    >>> relative("tensorflow.compat.v1.train.AdamOptimizer")
    'train.AdamOptimizer'
    """
    if path.startswith("tf_keras."):
        return path.replace("tf_keras.", "keras.", 1)
    if path.startswith(OWN + "tf_"):
        return ""
    for root in _ROOTS:
        if path.startswith(root):
            return relative(path.removeprefix(root)) or path.removeprefix(root).removeprefix(
                "compat.v1.").removeprefix("compat.v2.")
    return ""


def _root(node: cst.CSTNode) -> cst.CSTNode:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node
