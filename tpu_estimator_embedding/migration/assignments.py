# SPDX-License-Identifier: Apache-2.0
"""What statements bind, to which values, and what they change in place."""

from collections.abc import Iterator

import libcst as cst

from tpu_estimator_embedding.migration.bindings import dotted
from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS
from tpu_estimator_embedding.migration.node_search import find_all


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
            bound = one.asname.name if one.asname else one.name
            yield dotted(bound)[0], None, False


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


def parameters(function: cst.FunctionDef) -> list[str]:
    """Returns the names of a function's parameters."""
    given = function.params
    return [one.name.value for one in (*given.posonly_params, *given.params, *given.kwonly_params)]


def changed_in(body: cst.CSTNode) -> list[cst.BaseExpression]:
    """Returns what statements change in place, by their form."""
    targets = [getattr(node, "target") for node in find_all(  # noqa: B009
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
