# SPDX-License-Identifier: Apache-2.0
"""The page of differences from a TPU has every warning of the front doors, and no other one."""

import ast
import pathlib
import re
from collections.abc import Iterator

import tpu_estimator_embedding
from tests.docs import page

PACKAGE = pathlib.Path(tpu_estimator_embedding.__file__).parent
FOLDERS = ("config", "feature_column", "engine", "estimator", "low_level", "mid_level", "ops")


def calls_of_warn(path: pathlib.Path) -> Iterator[ast.Call]:
    """Yields the calls of `warnings.warn` with a text, and of functions that pass theirs on."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "warnings.warn", "warn_once") and not isinstance(node.args[0], ast.Name)):
            yield node


def constant_text(node: ast.AST) -> str:
    """Returns the text of a literal, with `{}` for values."""
    if isinstance(node, ast.JoinedStr):
        return "".join(constant_text(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else "{}"


def warnings_of_package() -> list[str]:
    return [constant_text(call.args[0]) for folder in FOLDERS
            for path in sorted((PACKAGE / folder).rglob("*.py")) for call in calls_of_warn(path)]


def test_every_warning_has_its_row_and_every_row_its_warning():
    table = page("tpu_differences").partition("\nWarnings\n")[2]
    rows = re.findall(r"^.{40}``(.+)``$", table, re.MULTILINE)
    warned = warnings_of_package()
    assert len(rows) > 5
    assert [row for row in rows if sum(row in text for text in warned) != 1] == []
    assert [text for text in warned if not any(row in text for row in rows)] == []
