# SPDX-License-Identifier: Apache-2.0
"""Resolves the names in a module to dotted names of other modules, by scope."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping

import libcst as cst
from libcst import metadata

from tpu_estimator_embedding.migration.source_file import SourceFile


@dataclasses.dataclass(frozen=True)
class Meaning:
    """The meaning of a name, or a chain of attributes, at one place.

    Attributes:
        paths: the dotted names it may be; several after `try: import ... except`.
        is_sure: whether it cannot be anything else.
        variable: the variable that holds it, if its value comes from an assignment.
        is_star: whether a star import may have bound it.
    """

    paths: frozenset[str] = frozenset()
    is_sure: bool = True
    variable: str = ""
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


class Bindings:
    """The names of a module, with their meanings.

    Args:
        source: the module.
    """

    def __init__(self, source: SourceFile) -> None:
        wrapper = metadata.MetadataWrapper(source.module, unsafe_skip_copy=True)
        self._scopes = wrapper.resolve(metadata.ScopeProvider)
        self._wrapper = wrapper
        collector = _Collector(self._scopes)
        source.module.visit(collector)
        self.chains: tuple[Chain, ...] = tuple(collector.chains)
        self.star_modules: tuple[str, ...] = tuple(collector.star_modules)
        self._values = collector.values
        self._lines = collector.lines
        self._top = source.module.body

    @functools.cached_property
    def positions(self) -> Mapping[cst.CSTNode, metadata.CodeRange]:
        """Node -> its range in the text; computed on first use."""
        return self._wrapper.resolve(metadata.PositionProvider)

    @functools.cached_property
    def bound_names(self) -> frozenset[str]:
        """Every name that any scope of the module binds."""
        scopes = {scope for scope in self._scopes.values() if scope is not None}
        return frozenset(assignment.name for scope in scopes for assignment in scope.assignments)

    @functools.cached_property
    def global_names(self) -> frozenset[str]:
        """Every name that the module binds at its top."""
        scope = next(scope.globals for scope in self._scopes.values() if scope is not None)
        return frozenset(assignment.name for assignment in scope.assignments)

    def scope_of(self, node: cst.CSTNode) -> metadata.Scope | None:
        """Returns the scope of a node."""
        return self._scopes.get(node)

    def meaning(self, scope: metadata.Scope, name: str) -> Meaning:
        """Returns the meaning of a name in a scope."""
        return self._meaning(scope, name, ())

    def assignment_of(self, value: cst.CSTNode) -> tuple[cst.CSTNode | None, str]:
        """Returns the line and the variable of a plain `variable = value`."""
        return self._lines.get(value, (None, ""))

    def is_only(self, name: str, path: str) -> bool:
        """Whether every scope that binds a name imports it from one dotted name."""
        scopes = {scope for scope in self._scopes.values()
                  if scope is not None and any(one.name == name for one in scope.assignments)}
        return all(self.meaning(scope, name) == Meaning(frozenset([path])) for scope in scopes)

    def is_bound_at_top(self, name: str, path: str) -> bool:
        """Whether a statement at the top of the module imports a dotted name as a variable."""
        scope = next(scope.globals for scope in self._scopes.values() if scope is not None)
        return self.meaning(scope, name) == Meaning(frozenset([path])) and any(
            name in imported_variables(statement) for statement in self._top)

    def uses(self, name: str) -> list[Chain]:
        """Returns the chains that begin with a name."""
        return [chain for chain in self.chains if chain.parts[0] == name]

    def _meaning(self, scope: metadata.Scope, name: str, seen: tuple[object, ...]) -> Meaning:
        paths: set[str] = set()
        is_sure, variable = True, ""
        found = [one for one in scope[name] if not isinstance(one, metadata.BuiltinAssignment)]
        for assignment in found:
            imported = list(_imported(assignment, name))
            paths.update(imported)
            if imported or assignment in seen:
                continue
            node = getattr(assignment, "node", None)
            value = self._values.get(node) if node is not None else None
            if isinstance(value, cst.Name) and value.value == "None":
                continue  # of `except ImportError: tf = None`
            below = self._value_meaning(value, (*seen, assignment))
            paths.update(below.paths)
            is_sure = is_sure and below.is_sure and bool(below.paths)
            variable = name
        is_star = not list(scope[name]) and bool(self.star_modules)
        if is_star:
            paths.update(f"{module}.{name}" for module in self.star_modules)
        return Meaning(frozenset(paths), is_sure, variable, is_star)

    def _value_meaning(self, value: cst.CSTNode | None, seen: tuple[object, ...]) -> Meaning:
        names = dotted(value)
        root = _root(value) if names else None
        scope = self._scopes.get(root) if root is not None else None
        if not names or scope is None:
            return Meaning(is_sure=False)
        below = self._meaning(scope, names[0], seen)
        rest = "".join(f".{name}" for name in names[1:])
        return Meaning(frozenset(f"{path}{rest}" for path in below.paths), below.is_sure)


class _Collector(cst.CSTVisitor):
    """Collects chains, the values of single assignments, and star imports."""

    def __init__(self, scopes: object) -> None:
        super().__init__()
        self._scopes = scopes
        self.chains: list[Chain] = []
        self.values: dict[cst.CSTNode, cst.CSTNode] = {}
        self.star_modules: list[str] = []
        self._targets: set[cst.CSTNode] = set()
        self.lines: dict[cst.CSTNode, tuple[cst.CSTNode, str]] = {}

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> None:
        statement = node.body[0]
        if len(node.body) == 1 and isinstance(statement, cst.Assign) and (
                len(statement.targets) == 1):
            target = statement.targets[0].target
            if isinstance(target, cst.Name):
                self.lines[statement.value] = (node, target.value)

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if isinstance(node.names, cst.ImportStar):
            self.star_modules.append(module_of(node))
        return False

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            self.values[target.target] = node.value
            self._targets.add(target.target)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self.values[node.target] = node.value
        self._targets.add(node.target)

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        names = dotted(node)
        if not names:
            return True
        self._add(node, names)
        return False

    def visit_Name(self, node: cst.Name) -> None:
        if node not in self._targets:
            self._add(node, (node.value,))


    def _add(self, node: cst.BaseExpression, names: tuple[str, ...]) -> None:
        nodes = [node]
        while isinstance(nodes[-1], cst.Attribute):
            nodes.append(nodes[-1].value)
        scope = self._scopes.get(nodes[-1])  # type: ignore[attr-defined]
        if scope is not None:
            self.chains.append(Chain(tuple(reversed(nodes)), names, scope))


def dotted(node: cst.CSTNode | None) -> tuple[str, ...]:
    """Returns the identifiers of a chain of attributes; empty if a node is not such a chain.

    >>> dotted(cst.parse_expression("tf.estimator.tpu"))
    ('tf', 'estimator', 'tpu')
    """
    words: list[str] = []
    while isinstance(node, cst.Attribute):
        words.append(node.attr.value)
        node = node.value
    return (node.value, *reversed(words)) if isinstance(node, cst.Name) else ()


def module_of(node: cst.ImportFrom) -> str:
    """Returns the module of a from-import, with the dots of a relative one."""
    return "." * len(node.relative) + ".".join(dotted(node.module))


def imported_variables(statement: cst.CSTNode) -> list[str]:
    """Returns the variables that a line of imports binds."""
    variables = []
    for node in getattr(statement, "body", ()) if isinstance(
            statement, cst.SimpleStatementLine) else ():
        if isinstance(node, (cst.Import, cst.ImportFrom)) and not isinstance(
                node.names, cst.ImportStar):
            variables += [(dotted(alias.asname.name) if alias.asname else dotted(alias.name))[0]
                          for alias in node.names]
    return variables


def _root(node: cst.CSTNode | None) -> cst.CSTNode | None:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node


def _imported(assignment: object, name: str) -> Iterator[str]:
    node = getattr(assignment, "node", None)
    if isinstance(node, cst.Import):
        for alias in node.names:
            words = dotted(alias.name)
            if alias.asname is None and words[0] == name:
                yield name
            elif alias.asname is not None and dotted(alias.asname.name) == (name,):
                yield ".".join(words)
    elif isinstance(node, cst.ImportFrom) and not isinstance(node.names, cst.ImportStar):
        for alias in node.names:
            bound = dotted(alias.asname.name if alias.asname else alias.name)
            if bound == (name,):
                yield f"{module_of(node)}.{'.'.join(dotted(alias.name))}"
