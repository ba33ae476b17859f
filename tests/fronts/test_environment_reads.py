# SPDX-License-Identifier: Apache-2.0
"""Environment variables are read in `settings`; other modules may only set them."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

from tests.fronts.test_import_ranks import dotted, modules, nodes

HOME = "settings"

# Module -> number of its mentions of the environment that set no variable, and their reason.
EXCEPTIONS = {
    "processes.child_process": (1, "hands all variables on to a child"),
    "migration.verify.comparison": (2, "hands all on to a child, with a longer PYTHONPATH"),
}

READERS = {"environ", "environb", "getenv", "getenvb"}  # of module os
WRITERS = {"update", "setdefault", "pop"}  # of os.environ, if what they return is not used


def reads(tree: list[ast.AST]) -> Iterator[ast.AST]:
    """Every mention of the environment in a module but for the statements that set variables."""
    written = {id(node) for statement in tree for node in what_is_written(statement)}
    for node in tree:
        is_read = False
        if isinstance(node, ast.Attribute) and id(node) not in written:
            is_read = node.attr in READERS and ast.unparse(node.value) == "os"
        elif isinstance(node, ast.ImportFrom):
            is_read = node.module == "os" and any(alias.name in READERS for alias in node.names)
        elif isinstance(node, ast.Import):  # under another name than `os` it would not be found
            is_read = any(alias.name == "os" and alias.asname for alias in node.names)
        if is_read:
            yield node


def what_is_written(statement: ast.AST) -> Iterator[ast.AST]:
    """`X` in the statements `X[NAME] = VALUE`, `del X[NAME]` and `X.update(VARIABLES)`."""
    if isinstance(statement, ast.Assign | ast.Delete):
        yield from (target.value for target in statement.targets
                    if isinstance(target, ast.Subscript))
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in WRITERS:
            yield function.value


def found_in(path: pathlib.Path) -> list[ast.AST]:
    return list(reads(nodes(path)))


def test_variables_are_read_in_one_module():
    wrong = [f"{path}:{node.lineno} reads the environment: declare a setting in settings.py"
             for path in modules() if dotted(path) not in {HOME, *EXCEPTIONS}
             for node in found_in(path)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("module", EXCEPTIONS)
def test_exceptions_are_as_few_as_listed(module):
    [path] = [path for path in modules() if dotted(path) == module]
    number, reason = EXCEPTIONS[module]
    assert len(found_in(path)) == number, reason


def test_settings_are_declared_in_one_module():
    """Of whatever variable they are, as `settings.Text("HOME")` elsewhere would be."""
    kinds = {"Choice", "Count", "Switch", "Text"}
    wrong = [f"{path}:{node.lineno}" for path in modules() if dotted(path) != HOME
             for node in nodes(path) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute) and node.func.attr in kinds
             and ast.unparse(node.func.value) == HOME]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("code, is_read", [
    ("os.environ.get('A')", True), ("x = os.environ['A']", True), ("'A' in os.environ", True),
    ("os.getenv('A')", True), ("dict(os.environ)", True), ("{**os.environ}", True),
    ("from os import environ", True), ("from os import getenv as read", True),
    ("import os as system", True),
    ("x = os.environ.pop('A')", True), ("x = os.environ.setdefault('A', '1')", True),
    ("e = os.environ", True), ("os.environ['A'] += '1'", True),
    ("os.environ['A'] = '1'", False), ("del os.environ['A']", False),
    ("os.environ.update({'A': '1'})", False), ("os.environ.setdefault('A', '1')", False),
    ("os.environ.pop('A', None)", False), ("import os", False), ("params.environ", False)])
def test_reads_are_told_from_writes(code, is_read):
    assert bool(list(reads([*ast.walk(ast.parse(code))]))) == is_read
