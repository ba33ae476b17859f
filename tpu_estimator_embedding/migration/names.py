# SPDX-License-Identifier: Apache-2.0
"""The names in a module of a program: what each expression may be, in its scope.

LibCST's scopes know what is imported under which name. Three things are added to them: a variable
has the names of what it is assigned, a star import may define what nothing else does, and a name
of TensorFlow is the same below each of the modules through which programs reach it.
"""

import collections
import dataclasses
import functools
from collections.abc import Iterator, Mapping

import libcst as cst
from libcst import metadata

from tpu_estimator_embedding.migration.assignments import (
    assigned,
    bindings_in,
    changed_in,
    innermost,
    parameters,
)
from tpu_estimator_embedding.migration.node_search import (
    bound_name,
    dotted,
    find_all,
    find_names,
    last_word,
    module_of,
    reversed_children,
)

_ROOTS = ("tensorflow.compat.v1.", "tensorflow.compat.v2.", "tensorflow._api.v2.compat.v1.",
          "tensorflow._api.v2.compat.v2.", "tensorflow_core.", "tensorflow.", "tf_keras.")
_OLD_EQUALITY = ("disable_v2_behavior", "disable_tensor_equality")
OWN = "tpu_estimator_embedding."


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The meaning of a variable at one place.

    Attributes:
        paths: the dotted names it may be; several after `try: import ... except`.
        is_sure: whether it cannot be anything else.
        is_star: whether a star import may have bound it.
    """

    paths: frozenset[str] = frozenset()
    is_sure: bool = True
    is_star: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Chain:
    """A name with all attributes after it, such as `tf.estimator.tpu.RunConfig`.

    Attributes:
        nodes: the name, then each attribute, from the innermost outwards.
        parts: their identifiers.
        scope: the scope that contains it.
    """

    nodes: tuple[cst.BaseExpression, ...]
    parts: tuple[str, ...]
    scope: metadata.Scope

    @property
    def root(self) -> cst.BaseExpression:
        """The first name of the chain."""
        return self.nodes[0]


class Names:
    """The names of a module, with their meanings, and the callables that it defines.

    Args:
        module: the module.

    Attributes:
        module: the same.
        functions, methods, classes: name -> the definitions of that name, at any depth.
    """

    def __init__(self, module: cst.Module) -> None:
        self.module = module
        self._scopes = metadata.MetadataWrapper(module, unsafe_skip_copy=True).resolve(
            metadata.ScopeProvider)
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

    def paths(self, node: cst.CSTNode | None) -> list[str]:
        """Returns the dotted names that an expression may have in other modules."""
        words = dotted(node)
        scope = self._scopes.get(_root(node)) if words else None
        return self.paths_in(scope, words) if scope is not None else []

    def paths_in(self, scope: metadata.Scope, words: tuple[str, ...]) -> list[str]:
        """Returns the same of a chain of attributes in a scope."""
        return [".".join((path, *words[1:]))
                for path in sorted(self.meaning(scope, words[0]).paths)]

    def paths_at_top(self, name: str) -> list[str]:
        """Returns the same of a variable of the module."""
        return self.paths_in(self._top, (name,))

    def meaning(self, scope: metadata.Scope, name: str) -> Meaning:
        """Returns the meaning of a variable in a scope."""
        return self._meaning(scope, name, ())

    def of_tensorflow(self, node: cst.CSTNode) -> str:
        """Returns a name relative to TensorFlow; empty if it is none of TensorFlow's.

        A name that `try: import` may bind to several is the first that is TensorFlow's.
        """
        return next(filter(None, map(relative, self.paths(node))), "")

    def means(self, node: cst.CSTNode, name: str) -> bool:
        """Whether an expression is a name of this package, or of TensorFlow, by its last word."""
        words, paths = dotted(node), self.paths(node)
        if words == (name,) and not paths:  # which a star import may give
            return name not in self.functions and name not in self.classes
        return any(path.rpartition(".")[2] == name and (path.startswith(OWN) or relative(path))
                   for path in paths)

    def star_paths(self, name: str) -> list[str]:
        """Returns the dotted names of a variable that star imports may give."""
        return [f"{module}.{name}" for module in self._star_modules]

    def scope_of(self, node: cst.CSTNode) -> metadata.Scope | None:
        """Returns the scope of a node."""
        return self._scopes.get(node)

    def bound_by(self, name: cst.Name) -> list[cst.CSTNode | None]:
        """Returns what binds a variable in its scope; None for a builtin."""
        scope = self._scopes.get(name)
        return [getattr(one, "node", None) for one in scope[name.value]] if scope else []

    def places_of(self, function: cst.FunctionDef, name: str) -> list[cst.CSTNode]:
        """Returns the nodes that bind or read a variable of a function, also in functions inside.

        Attributes, keywords and variables of comprehensions with the same name are others. Of a
        variable that is not the function's own, such as a global one, every node with its name.
        """
        scope = self._scopes.get(function.body.body[0])
        own = [one for one in scope[name] if one.scope is scope] if scope else []
        if not own:
            return list(find_names(function.body, name))
        return [node for one in own for node in (
            getattr(one, "node", None), *(access.node for access in one.references))
            if node is not None]

    @functools.cached_property
    def chains(self) -> tuple[Chain, ...]:
        """All chains of attributes that are no imports and not assigned to, in their order."""
        found = []
        waiting: list[cst.CSTNode] = [self.module]
        while waiting:
            node = waiting.pop()
            words = dotted(node)
            if not words and not isinstance(node, (cst.Import, cst.ImportFrom)):
                waiting.extend(reversed_children(node))
            scope = self._scopes.get(_root(node)) if words else None
            if scope is not None and (len(words) > 1 or node not in self.values):
                found.append(Chain(tuple(reversed(list(_inwards(node)))), words, scope))
        return tuple(found)

    def uses(self, name: str) -> list[Chain]:
        """Returns the chains that begin with a name."""
        return [chain for chain in self.chains if chain.parts[0] == name]

    @functools.cached_property
    def bound_names(self) -> frozenset[str]:
        """Every name that any scope of the module binds."""
        scopes = {scope for scope in self._scopes.values() if scope is not None}
        return frozenset(assignment.name for scope in scopes for assignment in scope.assignments)

    @property
    def global_names(self) -> frozenset[str]:
        """Every name that the module binds at its top."""
        return frozenset(assignment.name for assignment in self._top.assignments)

    @property
    def unbound_names(self) -> frozenset[str]:
        """Every name that is read, and that neither its scopes nor Python define."""
        scopes = {scope for scope in self._scopes.values() if scope is not None}
        return frozenset(access.node.value for scope in scopes for access in scope.accesses
                         if not access.referents and isinstance(access.node, cst.Name))

    def is_only(self, name: str, path: str) -> bool:
        """Whether every scope that binds a name imports it from one dotted name."""
        scopes = {scope for scope in self._scopes.values()
                  if scope is not None and any(one.name == name for one in scope.assignments)}
        return all(self.meaning(scope, name) == Meaning(frozenset([path])) for scope in scopes)

    def is_bound_at_top(self, name: str, path: str) -> bool:
        """Whether a statement at the top of the module imports a dotted name as a variable."""
        return self.meaning(self._top, name) == Meaning(frozenset([path])) and any(
            name in _imported_variables(statement) for statement in self.module.body)

    @functools.cached_property
    def has_object_equality(self) -> bool:
        """Whether `==` of two tensors says whether they are the same object, as in TF1."""
        return any(last_word(call.func) in _OLD_EQUALITY
                   for call in find_all(self.module, cst.Call))

    @functools.cached_property
    def globals(self) -> dict[str, list[cst.BaseExpression]]:
        """Variable of the module -> its values."""
        found: dict[str, list[cst.BaseExpression]] = collections.defaultdict(list)
        for statement in self._statements_at_top():
            for name, value, _ in bindings_in(statement):
                if value is not None:
                    found[name].append(value)
        return found

    @functools.cached_property
    def values(self) -> Mapping[cst.CSTNode, cst.BaseExpression | None]:
        """Target of an assignment -> its value."""
        found: dict[cst.CSTNode, cst.BaseExpression | None] = {}
        lines: list[cst.Assign | cst.AnnAssign] = find_all(self.module, cst.Assign, cst.AnnAssign)
        for line in lines:
            targets = [line] if isinstance(line, cst.AnnAssign) else line.targets
            found.update({one.target: line.value for one in targets})
        return found

    @functools.cached_property
    def unclear(self) -> frozenset[str]:
        """Variables of the module that have a part of a value, or one that is changed in place."""
        return frozenset(name for statement in self._statements_at_top() for name in (
            *(name for name, _, is_part in bindings_in(statement) if is_part),
            *_changed_variables(statement)))

    def changed_later(self) -> dict[str, str]:
        """Returns variable of the module -> where it is changed after the module was imported."""
        found: dict[str, str] = {}
        for name, functions in (*self.functions.items(), *self.methods.items()):
            for function in functions:
                own = {*parameters(function), *assigned(function)}
                declared = {item.name.value for node in find_all(function.body, cst.Global)
                            for item in node.names}
                changed = _changed_variables(function.body) & set(self.globals)
                found.update(dict.fromkeys(declared | changed - own, f"`{name}`"))
        inside = {one for node in find_all(self.module, cst.FunctionDef)
                  for one in find_all(node, cst.For, cst.While)}
        for loop in find_all(self.module, cst.For, cst.While):
            if loop not in inside:
                found.update(dict.fromkeys({name for name, _, _ in bindings_in(loop)}, "a loop"))
        return found

    def of_name(self, name: str) -> cst.FunctionDef:
        """Returns a function or method of the module that has a name."""
        return [*self.functions[name], *self.methods[name]][0]

    def _statements_at_top(self) -> list[cst.CSTNode]:
        return [statement for statement in self.module.body
                if not isinstance(statement, (cst.FunctionDef, cst.ClassDef))]

    @functools.cached_property
    def _top(self) -> metadata.Scope:
        return next(scope.globals for scope in self._scopes.values() if scope is not None)

    @functools.cached_property
    def _star_modules(self) -> list[str]:
        return [module_of(node) for node in find_all(self.module, cst.ImportFrom)
                if isinstance(node.names, cst.ImportStar)]

    def _meaning(self, scope: metadata.Scope, name: str, seen: tuple[object, ...]) -> Meaning:
        bound = scope[name]
        if not bound:
            paths = self.star_paths(name)
            return Meaning(frozenset(paths), is_star=bool(paths))
        found: set[str] = set()
        is_sure = True
        for assignment in bound:
            if isinstance(assignment, metadata.ImportAssignment):
                found.update(one.name for one in assignment.get_qualified_names_for(name))
            elif isinstance(assignment, metadata.Assignment) and assignment not in seen:
                value = self.values.get(assignment.node)
                if isinstance(value, cst.Name) and value.value == "None":
                    continue  # of `except ImportError: tf = None`
                below = self._value_meaning(value, (*seen, assignment))
                found |= below.paths
                is_sure = is_sure and below.is_sure and bool(below.paths)
        return Meaning(frozenset(found), is_sure)

    def _value_meaning(self, value: cst.CSTNode | None, seen: tuple[object, ...]) -> Meaning:
        words = dotted(value)
        scope = self._scopes.get(_root(value)) if words else None
        if scope is None:
            return Meaning(is_sure=False)
        below = self._meaning(scope, words[0], seen)
        return Meaning(frozenset(".".join((path, *words[1:])) for path in below.paths),
                       below.is_sure)


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


def _inwards(node: cst.CSTNode | None) -> Iterator[cst.BaseExpression]:
    """Yields a chain of attributes, then what each of them is taken of."""
    while isinstance(node, cst.Attribute):
        yield node
        node = node.value
    if isinstance(node, cst.BaseExpression):
        yield node


def _root(node: cst.CSTNode | None) -> cst.CSTNode:
    *_, root = _inwards(node)
    return root


def _changed_variables(body: cst.CSTNode) -> set[str]:
    """Returns the variables whose values statements change in place."""
    return {root.value for root in map(innermost, changed_in(body)) if isinstance(root, cst.Name)}


def _imported_variables(statement: cst.CSTNode) -> list[str]:
    """Returns the variables that a line of imports binds."""
    lines = statement.body if isinstance(statement, cst.SimpleStatementLine) else ()
    return [bound_name(alias)
            for node in lines if isinstance(node, (cst.Import, cst.ImportFrom))
            and not isinstance(node.names, cst.ImportStar) for alias in node.names]
