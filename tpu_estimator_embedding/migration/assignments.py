# SPDX-License-Identifier: Apache-2.0
"""The lines of functions: what they bind, to which values, and what they change in place."""

import dataclasses
from collections.abc import Iterator

import libcst as cst

from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS
from tpu_estimator_embedding.migration.node_search import (
    bound_name,
    dotted,
    find_all,
    node_target,
    variables_in,
)


def bindings_in(node: cst.CSTNode) -> Iterator[tuple[str, cst.BaseExpression | None, bool]]:
    """Yields (variable, its value, whether it is a part of the value) of every binding in a node.

    The value is None for what no variable of others is reached by: a function, a class, an import.
    """
    for one in find_all(node, cst.Assign, cst.AnnAssign, cst.NamedExpr, cst.For, cst.CompFor,
                        cst.WithItem, cst.AugAssign, cst.FunctionDef, cst.ClassDef,
                        cst.ImportAlias):
        if isinstance(one, cst.Assign):
            for target in one.targets:
                yield from _pairs(target.target, one.value)
        elif isinstance(one, (cst.AnnAssign, cst.NamedExpr)):
            if one.value is not None:
                yield from _pairs(one.target, one.value)
        elif isinstance(one, (cst.For, cst.CompFor)):
            yield from ((name.value, one.iter, True) for name in names_of_target(one.target)
                        if isinstance(name, cst.Name))
        elif isinstance(one, cst.WithItem) and one.asname is not None:
            yield from ((name.value, one.item, True) for name in names_of_target(one.asname.name)
                        if isinstance(name, cst.Name))
        elif isinstance(one, cst.AugAssign) and isinstance(one.target, cst.Name):
            yield one.target.value, cst.Tuple([cst.Element(one.value)]), False
        elif isinstance(one, (cst.FunctionDef, cst.ClassDef)):
            yield one.name.value, None, False
        elif isinstance(one, cst.ImportAlias):
            yield bound_name(one), None, False


def _pairs(target: cst.CSTNode,
           value: cst.BaseExpression) -> Iterator[tuple[str, cst.BaseExpression, bool]]:
    if isinstance(target, cst.Name):
        yield target.value, value, False
        return
    if isinstance(target, (cst.Tuple, cst.List)):
        parts = value.elements if isinstance(value, (cst.Tuple, cst.List)) else ()
        if len(parts) == len(target.elements) and not any(
                isinstance(one, cst.StarredElement) for one in (*parts, *target.elements)):
            for one, part in zip(target.elements, parts, strict=True):
                yield from _pairs(one.value, part.value)
        else:
            yield from ((name.value, value, True) for name in names_of_target(target)
                        if isinstance(name, cst.Name))


def names_of_target(target: cst.CSTNode) -> list[cst.CSTNode]:
    """Returns what an assignment to a target assigns, without its tuples and lists."""
    if isinstance(target, (cst.Tuple, cst.List)):
        return [node for element in target.elements for node in names_of_target(element.value)]
    return [target.value] if isinstance(target, cst.StarredElement) else [target]


def assigned(function: cst.FunctionDef) -> set[str]:
    """Returns the names that a function binds, without its parameters."""
    return {name for name, _, _ in bindings_in(function.body)}


def variables(function: cst.FunctionDef) -> set[str]:
    """Returns the names that a function binds, without its parameters and those of comprehensions.

    Those in the targets of an assignment to several are all among them, as `x` in `x[0], y = z`.
    """
    names: set[str] = set()
    for target in find_all(function.body, cst.AssignTarget, cst.AugAssign, cst.AnnAssign):
        bound = node_target(target)
        if not isinstance(bound, (cst.Attribute, cst.Subscript)):
            names |= variables_in(bound)
    return names | bound_otherwise(function)


def parameters_and_variables(function: cst.FunctionDef) -> set[str]:
    """Returns the parameters of a function, without `*`, `/` and `**`, and its variables."""
    return {parameter.name.value for parameter in function.params.params} | variables(function)


def parameters(function: cst.FunctionDef) -> list[str]:
    """Returns the names of a function's parameters."""
    given = function.params
    return [one.name.value for one in (*given.posonly_params, *given.params, *given.kwonly_params)]


def changed_in(body: cst.CSTNode) -> list[cst.BaseExpression]:
    """Returns what statements change in place, by their form."""
    targets = [node_target(node) for node in find_all(
        body, cst.AssignTarget, cst.AugAssign, cst.Del)]
    return [target for target in targets if isinstance(target, (cst.Subscript, cst.Attribute))] + [
        call.func.value for call in find_all(body, cst.Call)
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value in CHANGING_METHODS]


def innermost(node: cst.CSTNode) -> cst.CSTNode:
    """Returns what the attributes and the elements of an expression are taken of."""
    while isinstance(node, (cst.Subscript, cst.Attribute)):
        node = node.value
    return node


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a function.

    Attributes:
        node: the line.
        around: the compound statements around it, from the outermost, each with whether the line
            is in its `else` branch.
    """

    node: cst.SimpleStatementLine
    around: tuple[tuple[cst.CSTNode, bool], ...]

    @property
    def statement(self) -> cst.BaseSmallStatement | None:
        """Its statement; None if it has several."""
        return self.node.body[0] if len(self.node.body) == 1 else None


def lines_of(body: cst.BaseSuite,
             around: tuple[tuple[cst.CSTNode, bool], ...] = ()) -> list[Line]:
    """Returns the lines of a suite in order, without those of functions and classes in it.

    What stands on the line of its `if` or `with` is no line: `bound_otherwise` has its variables.
    """
    lines: list[Line] = []
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            lines.append(Line(statement, around))
        elif isinstance(statement, cst.If):
            lines += _lines_of_if(statement, around)
        elif not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            for part in (statement, *statement.children):
                suite = getattr(part, "body", None)
                if isinstance(suite, cst.BaseSuite):
                    lines += lines_of(suite, (*around, (statement, part is not statement)))
    return lines


def _lines_of_if(statement: cst.If, around: tuple[tuple[cst.CSTNode, bool], ...]) -> list[Line]:
    lines = lines_of(statement.body, (*around, (statement, False)))
    other = (*around, (statement, True))
    if isinstance(statement.orelse, cst.If):
        lines += _lines_of_if(statement.orelse, other)
    elif statement.orelse is not None:
        lines += lines_of(statement.orelse.body, other)
    return lines


def targets_of(line: cst.BaseStatement) -> set[str]:
    """Returns the variables that a line assigns; empty if it does anything else."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return set()
    statement = line.body[0]
    if isinstance(statement, cst.AugAssign):
        targets: list[cst.BaseExpression] = [statement.target]
    elif isinstance(statement, cst.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    elif isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
    else:
        return set()
    names: set[str] = set()
    for target in targets:
        elements = [element.value for element in target.elements] if isinstance(
            target, (cst.Tuple, cst.List)) else [target]
        for element in elements:
            if not isinstance(element, cst.Name):
                return set()
            names.add(element.value)
    return names


def bound_otherwise(function: cst.FunctionDef) -> set[str]:
    """Returns the variables that a function binds in other ways than by `targets_of` a line."""
    plain = {line.body[0] for line in find_all(function.body, cst.SimpleStatementLine)
             if targets_of(line)}
    known = {node for statement in plain for node in (statement, *statement.children)}
    names: set[str] = set()
    for node in find_all(function.body, cst.For, cst.AsName, cst.FunctionDef, cst.ClassDef,
                         cst.NamedExpr, cst.ImportAlias, cst.AssignTarget, cst.AugAssign,
                         cst.AnnAssign):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            names.add(node.name.value)
        elif isinstance(node, cst.ImportAlias):
            names |= set() if node.asname else set(dotted(node.name)[:1])
        elif node not in known:
            target = node.name if isinstance(node, cst.AsName) else node_target(node)
            names |= {one.value for one in names_of_target(target) if isinstance(one, cst.Name)}
    return names


def binds(line: cst.SimpleStatementLine, name: str) -> bool:
    """Whether a line assigns a variable in any way."""
    found = find_all(line, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.NamedExpr)
    return any(isinstance(node, cst.Name) and node.value == name
               for target in found for node in names_of_target(node_target(target)))
