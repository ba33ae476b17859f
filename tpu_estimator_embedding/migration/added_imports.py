# SPDX-License-Identifier: Apache-2.0
"""Adds the imports of a module's rewritten names, above TensorFlow's.

They come first because Estimators need Keras 2, and the choice is made when `tf.keras` is first
used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.bindings import Bindings, dotted, module_of
from tpu_estimator_embedding.migration.import_statements import from_import
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.targets import PACKAGE

if TYPE_CHECKING:
    from tpu_estimator_embedding.migration.to_imports import ModuleRewriter

_LIBRARIES = ("tensorflow", "tensorflow_estimator", "keras", "tf_keras")
_LOADER = "import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)"
_OF_KERAS = re.compile(r"tensorflow(\.compat\.v[12])?\.(layers|keras)\b")
_KERAS = ("tensorflow.keras", "tensorflow.compat.v1.keras", "tensorflow.compat.v2.keras")


def insert(rewriter: ModuleRewriter, module: cst.Module) -> cst.Module:
    """Returns the module with the imports that it lacks."""
    new = _missing(rewriter, module)
    body: list[Any] = list(module.body)
    if rewriter.is_tf1:
        _switch_v2_off(rewriter, module, body)
    if new:
        _insert(module, body, _place(body), new)
        for line in new:
            rewriter.findings.append(Finding(
                rewriter.source.path, 0, 0, "TEE105", f"`{' '.join(line.split())}`"))
    return module.with_changes(body=body)


def _missing(rewriter: ModuleRewriter, module: cst.Module) -> list[str]:
    by_module: dict[str, list[str]] = {}
    for (home, name), bound in sorted(rewriter.references.needed.items()):
        if not rewriter.bindings.is_bound_at_top(bound, f"{home}.{name}"):
            alias = f" as {bound}" if bound != name else ""
            by_module.setdefault(home, []).append(f"{name}{alias}")
    return [from_import(home, names) for home, names in sorted(by_module.items())]


def load_first(source: SourceFile, *, is_chosen: bool) -> tuple[bytes, list[Finding]]:
    """Adds an import that chooses Keras 2, above the first import of Keras, if there is none.

    Args:
        source: the module.
        is_chosen: whether the program already has such an import elsewhere, which is early enough
            for `tf.layers` and `tf.keras` in functions.
    """
    names = [name for statement in source.module.body
             for name in _imported_modules(statement, inside=True)]
    keras = [index for index, name in enumerate(names) if name.startswith(_KERAS)]
    ours = [index for index, name in enumerate(names) if name.startswith(PACKAGE)]
    if not keras and (is_chosen or not _uses_layers(source)):
        return source.data, []
    if keras and ours and ours[0] < keras[0]:
        return source.data, []
    body: list[Any] = list(source.module.body)
    _insert(source.module, body, _place(body), [_LOADER])
    return source.module.with_changes(body=body).bytes, [
        Finding(source.path, 0, 0, "TEE105", f"`{_LOADER.partition('  ')[0]}`")]


def _uses_layers(source: SourceFile) -> bool:
    """Whether a module uses names that TensorFlow has from Keras."""
    bindings = Bindings(source)
    return any(_OF_KERAS.match(".".join((path, *chain.parts[1:]))) for chain in bindings.chains
               for path in bindings.meaning(chain.scope, chain.parts[0]).paths)


def _place(body: list[Any]) -> int:
    """Returns the position of new imports: above the first library, else below all imports."""
    after = 0
    for index, statement in enumerate(body):
        names = _imported_modules(statement, inside=True)
        if any(name.split(".")[0] in _LIBRARIES for name in names):
            return index
        if _imported_modules(statement) or (index == 0 and _is_docstring(statement)):
            after = index + 1
    return after


def _insert(module: cst.Module, body: list[Any], place: int,
            lines: list[str]) -> None:
    statements: list[Any] = [
        cst.parse_statement(line, module.config_for_parsing) for line in lines]
    if place < len(body) and hasattr(body[place], "leading_lines"):
        above = list(body[place].leading_lines)
        blank = next((index for index, line in enumerate(above) if line.comment), len(above))
        statements[0] = statements[0].with_changes(leading_lines=above[:blank])
        body[place] = body[place].with_changes(leading_lines=above[blank:])
    elif place:
        statements[0] = statements[0].with_changes(leading_lines=[cst.EmptyLine()])
    if place < len(body) and not _imported_modules(body[place], inside=True) and (
            not body[place].leading_lines):
        body[place] = body[place].with_changes(leading_lines=[cst.EmptyLine()])
    body[place:place] = statements


def _switch_v2_off(rewriter: ModuleRewriter, module: cst.Module,
                   body: list[Any]) -> None:
    """Adds `tf.disable_v2_behavior()` below the imports, as TensorFlow 1.x behaves."""
    if not any(finding.code == "TEE103" for finding in rewriter.findings) or any(
            chain.parts[-1] in ("disable_v2_behavior", "disable_eager_execution")
            for chain in rewriter.bindings.chains):
        return
    root = next((name for name in ("tf", "tensorflow")
                 if rewriter.bindings.is_bound_at_top(name, "tensorflow")), "")
    last = max((index for index, statement in enumerate(body) if _imported_modules(statement)),
               default=-1)
    lines = [f"{root}.disable_v2_behavior()"] if root else [
        "import tensorflow.compat.v1 as tensorflow_v1", "tensorflow_v1.disable_v2_behavior()"]
    statements: list[Any] = [
        cst.parse_statement(line, module.config_for_parsing) for line in lines]
    if root:
        statements[0] = statements[0].with_changes(leading_lines=[cst.EmptyLine()])
    body[last + 1:last + 1] = statements
    rewriter.findings.append(Finding(rewriter.source.path, 0, 0, "TEE104", f"`{lines[-1]}`"))


def _imported_modules(statement: cst.CSTNode, *, inside: bool = False) -> list[str]:
    """Returns the modules that a statement, or anything in it, imports."""
    if isinstance(statement, cst.SimpleStatementLine):
        nodes: list[cst.CSTNode] = list(statement.body)
    elif inside and not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        nodes = list(matchers.findall(statement, matchers.Import() | matchers.ImportFrom()))
    else:
        nodes = []
    names = []
    for node in nodes:
        if isinstance(node, cst.Import):
            names += [".".join(dotted(alias.name)) for alias in node.names]
        elif isinstance(node, cst.ImportFrom):
            names.append(module_of(node))
            if not isinstance(node.names, cst.ImportStar):
                names += [f"{module_of(node)}.{'.'.join(dotted(alias.name))}"
                          for alias in node.names]
    return names


def _is_docstring(statement: cst.CSTNode) -> bool:
    return matchers.matches(statement, matchers.SimpleStatementLine(
        [matchers.Expr(matchers.SimpleString() | matchers.ConcatenatedString())]))
