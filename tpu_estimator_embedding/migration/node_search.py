# SPDX-License-Identifier: Apache-2.0
"""Finds nodes in a syntax tree.

`libcst.matchers.findall` visits a tree as if to change it, which takes most of the time of a
rewrite. This reads children, which never change, once for each node.
"""

import functools
from typing import TypeVar

import libcst as cst

# A statement of a module, or of an indented block.
Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement

Node = TypeVar("Node", bound=cst.CSTNode)

_NODES_REMEMBERED = 1 << 16  # more than all trees of one large module have


def find_all(tree: cst.CSTNode, *kinds: type[Node]) -> list[Node]:
    """Returns the nodes of some classes in a tree, itself included, in the order of the text.

    >>> [name.value for name in find_all(cst.parse_expression("a + b(c)"), cst.Name)]
    ['a', 'b', 'c']
    """
    found: list[Node] = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, kinds):
            found.append(node)
        waiting.extend(_reversed_children(node))
    return found


def find_names(tree: cst.CSTNode, name: str) -> list[cst.Name]:
    """Returns the nodes in a tree that are a name, in the order of the text."""
    return [node for node in find_all(tree, cst.Name) if node.value == name]


@functools.lru_cache(_NODES_REMEMBERED)
def _reversed_children(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    return tuple(reversed(node.children))
