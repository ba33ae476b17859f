# SPDX-License-Identifier: Apache-2.0
"""Finds nodes and variables in a syntax tree, replaces nodes, and shows them in messages.

`libcst.matchers.findall` visits a tree as if to change it, which takes most of the time of a
rewrite. This reads children, which never change, once for each node.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

import libcst as cst

# A statement of a module, or of an indented block.
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement

Node = TypeVar("Node", bound=cst.CSTNode)

_LONGEST = 60  # characters of a node in a message
_NODES_REMEMBERED = 1 << 16  # more than all trees of one large module have


def find_all(tree: cst.CSTNode, *kinds: type[Node]) -> list[Node]:
    """Returns the nodes of some classes in a tree, itself included, in the order of the text.

    >>> [name.value for name in find_all(cst.parse_expression("a + b(c)"), cst.Name)]
    ['a', 'b', 'c']
    """
    return [node for node in nodes_of(tree) if isinstance(node, kinds)]


def nodes_of(tree: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yields all nodes of a tree, itself included, in the order of the text."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed_children(node))


def find_names(tree: cst.CSTNode, name: str) -> list[cst.Name]:
    """Returns the nodes in a tree that are a name, in the order of the text."""
    return [node for node in find_all(tree, cst.Name) if node.value == name]


def holds(node: cst.CSTNode, inner: cst.CSTNode) -> bool:
    """Whether a node is another one, or contains it."""
    return any(one is inner for one in nodes_of(node))


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


def last_word(node: cst.CSTNode | None) -> str:
    """Returns the last identifier of a chain of attributes; "" if a node is not such a chain."""
    return (dotted(node) or ("",))[-1]


def called_name(call: cst.Call) -> str:
    """Returns the last identifier of what a call calls, whatever comes before it; "" without one.

    >>> called_name(cst.parse_expression("tf.add(a)")), called_name(cst.parse_expression("f().g()"))
    ('add', 'g')
    """
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else last_word(call.func)


def calls_of(tree: cst.CSTNode, name: str) -> list[cst.Call]:
    """Returns the calls in a tree of what is called `name`, in any module."""
    return [call for call in find_all(tree, cst.Call) if last_word(call.func) == name]


def bound_name(alias: cst.ImportAlias) -> str:
    """Returns the variable that an imported name binds."""
    return dotted(alias.asname.name if alias.asname else alias.name)[0]


def node_target(node: cst.CSTNode) -> cst.BaseExpression:
    """Returns the target of a node of one of the kinds that have one."""
    target: cst.BaseExpression = getattr(node, "target")  # noqa: B009 (kinds have no common base)
    return target


def variables_in(node: cst.CSTNode, but: Iterable[cst.CSTNode] = ()) -> set[str]:
    """Returns the variables in a node, except those in some nodes.

    Names of attributes and keywords, and variables of comprehensions and lambdas, do not count.

    >>> sorted(variables_in(cst.parse_expression("f(a.b, c=d[0])")))
    ['a', 'd', 'f']
    >>> sorted(variables_in(cst.parse_expression("[x + y for x in x]")))
    ['x', 'y']
    >>> sorted(variables_in(cst.parse_expression("lambda x, y=z: x + a")))
    ['a', 'z']
    """
    if node in but:
        return set()
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, (cst.Attribute, cst.Arg)):
        return variables_in(node.value, but)
    found = {name for child in node.children for name in variables_in(child, but)}
    if isinstance(node, cst.BaseComp):
        return found - _variables_of(node) | variables_in(node.for_in.iter, but)
    if isinstance(node, cst.Lambda):
        parameters = find_all(node.params, cst.Param)
        return found - {one.name.value for one in parameters} | {
            name for one in parameters if one.default for name in variables_in(one.default, but)}
    return found


def _variables_of(comprehension: cst.BaseComp) -> set[str]:
    found: set[str] = set()
    loop: cst.CompFor | None = comprehension.for_in
    while loop is not None:
        found |= variables_in(loop.target)
        loop = loop.inner_for_in
    return found


def replaced(nodes: Iterable[Any], replacements: Mapping[cst.CSTNode, cst.CSTNode],
             ) -> tuple[Any, ...]:
    """Returns nodes with some below them replaced by others."""
    return tuple(node.visit(_Replace(replacements)) for node in nodes)


class _Replace(cst.CSTTransformer):
    def __init__(self, replacements: Mapping[cst.CSTNode, cst.CSTNode]) -> None:
        super().__init__()
        self._replacements = replacements

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replacements

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return self._replacements.get(original_node, updated_node)


def module_of(node: cst.ImportFrom) -> str:
    """Returns the module of a from-import, with the dots of a relative one."""
    return "." * len(node.relative) + ".".join(dotted(node.module))


@functools.lru_cache(_NODES_REMEMBERED)
def reversed_children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """Returns the children of a node, the last first."""
    return tuple(reversed(node.children))


def text_of(node: cst.CSTNode) -> str:
    """Returns the text of a node in one line."""
    return " ".join(cst.Module([]).code_for_node(node).split())


def shown(node: cst.CSTNode) -> str:
    """Returns the text of a node for a message.

    >>> shown(cst.parse_expression("x" * 70))[-6:]
    'xxx...'
    """
    text = text_of(node).rstrip(", ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST - 3]}..."
