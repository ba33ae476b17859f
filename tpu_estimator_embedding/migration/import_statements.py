# SPDX-License-Identifier: Apache-2.0
"""Rewrites the import statements of a module in place, and adds those of its rewritten names.

New imports stand above TensorFlow's, because Estimators need Keras 2, and the choice is made when
`tf.keras` is first used.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.module_rewrite import ModuleRewrite
from tpu_estimator_embedding.migration.names import OWN, Names
from tpu_estimator_embedding.migration.node_search import Statement, dotted, find_all, module_of
from tpu_estimator_embedding.migration.report import Finding
from tpu_estimator_embedding.migration.source_file import SourceFile
from tpu_estimator_embedding.migration.targets import PACKAGE, in_full, is_attribute, names_in

_V1 = "tensorflow.compat.v1"
_PRIVATE = ("compat", "core", "python", "_api")  # below `tensorflow`, of all versions alike
_LINE_LENGTH = 88

# What a rewrite puts in the place of a node.
Replacement = cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]


@dataclasses.dataclass(frozen=True)
class _Import:
    """One imported name: `from module import name as bound`, or `import module as bound`."""

    module: str
    name: str
    bound: str

    def __str__(self) -> str:
        if not self.name:
            alias = f" as {self.bound}" if self.bound else ""
            return f"import {self.module}{alias}"
        alias = f" as {self.bound}" if self.bound != self.name else ""
        return f"{self.name}{alias}"


def plan(rewriter: ModuleRewrite) -> dict[cst.CSTNode, Replacement]:
    """Returns the replacement of each import statement that changes."""
    edits: dict[cst.CSTNode, Replacement] = {}
    lines: list[cst.SimpleStatementLine | cst.SimpleStatementSuite] = [
        *find_all(rewriter.source.module, cst.SimpleStatementLine),
        *find_all(rewriter.source.module, cst.SimpleStatementSuite)]
    for line in lines:
        for statement in line.body:
            if isinstance(statement, (cst.Import, cst.ImportFrom)):
                new = _rewritten(rewriter, statement)
                if new is not None:
                    _edit(edits, line, statement, new, rewriter.source.module)
    return edits


def _rewritten(rewriter: ModuleRewrite,
               node: cst.Import | cst.ImportFrom) -> list[str] | cst.ImportFrom | None:
    """Returns the statements for one import, or it with another module; None if it is unchanged."""
    if isinstance(node, cst.Import):
        before = [_Import(".".join(dotted(alias.name)), "",
                          ".".join(dotted(alias.asname.name)) if alias.asname else "")
                  for alias in node.names]
        new = [one for old in before for one in _new_import(rewriter, node, old)]
    else:
        module = module_of(node)
        if not module.startswith("tensorflow"):
            return None
        if isinstance(node.names, cst.ImportStar):
            return _new_star(rewriter, node, module)
        before = [_Import(module, ".".join(dotted(alias.name)),
                          ".".join(dotted(alias.asname.name if alias.asname else alias.name)))
                  for alias in node.names]
        new = [one for old in before for one in _new_from(rewriter, node, old)]
        modules = {one.module for one in new}
        if new != before and len(modules) == 1 and not is_attribute(
                new[0].module.removeprefix(OWN)) and new == [
                dataclasses.replace(old, module=new[0].module) for old in before]:
            return node.with_changes(module=cst.parse_expression(new[0].module))
    return None if new == before else _statements(rewriter, new)


def _new_from(rewriter: ModuleRewrite, node: cst.CSTNode, old: _Import) -> list[_Import]:
    path = f"{old.module}.{old.name}"
    target = rewriter.target(path)
    if target is None and old.module == "tensorflow" and old.name == "contrib":
        return _drop_if_unused(rewriter, node, old, path)
    if target is None:
        return [_of_tf1(rewriter, node, old)]
    if not target.home:
        if target.is_namespace:
            return _drop_if_unused(rewriter, node, old, path)
        rewriter.report(node, "TEE201", f"`{path}`: {target.advice}")
        return [old]
    if target.parts != path.count(".") + 1:
        return [old]
    home = in_full(target.home)
    module, _, name = home.rpartition(".")
    rewriter.report(node, "TEE102", f"`{path}` is now `{home}`")
    return [_Import(module, name, old.bound)]


def _new_import(rewriter: ModuleRewrite, node: cst.Import, old: _Import) -> list[_Import]:
    target = rewriter.target(old.module)
    if target is None and old.module != "tensorflow.contrib":
        return [_of_tf1(rewriter, node, old)]
    if old.bound:
        module, _, name = old.module.rpartition(".")
        return _new_from(rewriter, node, _Import(module, name, old.bound)) if target else (
            _drop_if_unused(rewriter, node, old, old.module))
    used = [chain for chain in rewriter.names.uses("tensorflow")
            if not set(chain.nodes) & rewriter.replacements.keys()]
    rewriter.report(node, "TEE106", f"`import {old.module}`")
    if target and not target.home:
        rewriter.report(node, "TEE201", f"`{old.module}`: {target.advice}")
    if not used:
        return []
    return [_of_tf1(rewriter, node, _Import("tensorflow", "", ""))]


def _of_tf1(rewriter: ModuleRewrite, node: cst.CSTNode, old: _Import) -> _Import:
    """Returns an import of TensorFlow's own names, in the dialect of the program."""
    first, _, below = old.module.partition(".")
    if not rewriter.is_tf1 or first != "tensorflow" or (
            (below or old.name).split(".")[0] in _PRIVATE):
        return old
    module = f"{_V1}.{below}".rstrip(".")
    rewriter.report(node, "TEE103", f"`{old.module}` is now `{module}`")
    if old.name or old.bound:
        return dataclasses.replace(old, module=module)
    return _Import(module, "", "" if below else "tensorflow")


def _drop_if_unused(rewriter: ModuleRewrite, node: cst.CSTNode, old: _Import,
                    path: str) -> list[_Import]:
    left = [chain for chain in rewriter.names.uses(old.bound)
            if not set(chain.nodes) & rewriter.replacements.keys()]
    if left:
        rewriter.report(node, "TEE201", f"`{path}` is still used; see the lines below")
        return [old]
    rewriter.report(node, "TEE106", f"`{path}`")
    return []


def _new_star(rewriter: ModuleRewrite, node: cst.ImportFrom, module: str) -> list[str] | None:
    target = rewriter.target(module)
    if target is None and rewriter.is_tf1:
        old = _Import(module, "*", "*")
        new = _of_tf1(rewriter, node, old)
        return None if new == old else _statements(rewriter, [new])
    if target is None:
        return None
    if not target.home or not target.is_namespace:
        rewriter.report(node, "TEE205", f"`from {module} import *`: {target.advice}")
        return None
    known = names_in(target.home)
    used = {chain.parts[0] for chain in rewriter.names.chains
            if not list(chain.scope[chain.parts[0]])}
    for name in sorted(used - known):
        if not rewriter.may_be_of_other_star(name, module):
            rewriter.report(node, "TEE205", f"`{name}` may come from `{module}`; import it by name")
    found = [rewriter.target(f"{module}.{name}") for name in sorted(used & known)]
    homes = [in_full(one.home).rpartition(".") for one in found if one]
    rewriter.report(node, "TEE102", f"`from {module} import *` now imports "
                    f"{', '.join(f'`{name}`' for _, _, name in homes) or 'nothing'}")
    return _statements(rewriter, [_Import(home, name, name) for home, _, name in homes])


def _statements(rewriter: ModuleRewrite, imports: list[_Import]) -> list[str]:
    """Writes imports, those from one module as one statement.

    What no import statement reaches is assigned below them.
    """
    modules: dict[str, list[str]] = {}
    assignments = []
    for one in imports:
        home = one.module.removeprefix(OWN)
        if is_attribute(home):
            namespace, _, below = home.partition(".")
            variable = rewriter.references.variable(PACKAGE, namespace)
            assignments.append(f"{one.bound} = {variable}.{below}.{one.name}")
            one = _Import(PACKAGE, namespace, variable)
        names = modules.setdefault(one.module if one.name else str(one), [])
        if str(one) not in names:
            names.append(str(one))
    return [*(from_import(module, names) if names != [module] else module
              for module, names in modules.items()), *assignments]


def from_import(module: str, names: list[str]) -> str:
    """Writes a from-import, over several lines if it is long."""
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= _LINE_LENGTH:
        return line
    return f"from {module} import (\n    " + ",\n    ".join(names) + ",\n)"


def _edit(edits: dict[cst.CSTNode, Replacement],
          line: cst.SimpleStatementLine | cst.SimpleStatementSuite, statement: cst.CSTNode,
          new: list[str] | cst.ImportFrom, module: cst.Module) -> None:
    if isinstance(new, cst.ImportFrom):
        edits[statement] = new
        return
    lines: list[Any] = [cst.parse_statement(one, module.config_for_parsing) for one in new]
    if len(line.body) == 1 and isinstance(line, cst.SimpleStatementLine):
        if lines:
            inside = [cst.EmptyLine(comment=comment)
                      for comment in find_all(statement, cst.Comment)]
            lines[0] = lines[0].with_changes(leading_lines=[*line.leading_lines, *inside])
            lines[-1] = lines[-1].with_changes(trailing_whitespace=line.trailing_whitespace)
        edits[line] = cst.FlattenSentinel(lines) if lines else cst.RemoveFromParent()
        return
    parts = [one.body[0] for one in lines] or [cst.Pass()]
    semicolon = getattr(statement, "semicolon", cst.MaybeSentinel.DEFAULT)
    parts[-1] = parts[-1].with_changes(semicolon=semicolon)
    edits[statement] = cst.FlattenSentinel(parts)


_LIBRARIES = ("tensorflow", "tensorflow_estimator", "keras", "tf_keras")
_LOADER = "import tpu_estimator_embedding.tf_estimator  # noqa: F401 (chooses Keras 2)"
_OF_KERAS = re.compile(r"tensorflow(\.compat\.v[12])?\.(layers|keras)\b")
_KERAS = ("tensorflow.keras", "tensorflow.compat.v1.keras", "tensorflow.compat.v2.keras")


def insert(rewriter: ModuleRewrite, source: SourceFile) -> SourceFile:
    """Returns the module with the imports that it lacks."""
    module = source.module
    new = _missing(rewriter)
    body: list[Statement] = list(module.body)
    if rewriter.is_tf1:
        _switch_v2_off(rewriter, module, body)
    origins: dict[cst.CSTNode, cst.CSTNode] = {}
    if new:
        origins = _insert(module, body, _place(body), new)
        for line in new:
            rewriter.findings.append(Finding(
                rewriter.source.path, 0, 0, "TEE105", f"`{' '.join(line.split())}`"))
    return source.rewritten(module.with_changes(body=body), origins)


def _missing(rewriter: ModuleRewrite) -> list[str]:
    by_module: dict[str, list[str]] = {}
    for (home, name), bound in sorted(rewriter.references.needed.items()):
        if not rewriter.names.is_bound_at_top(bound, f"{home}.{name}"):
            alias = f" as {bound}" if bound != name else ""
            by_module.setdefault(home, []).append(f"{name}{alias}")
    return [from_import(home, names) for home, names in sorted(by_module.items())]


def load_first(source: SourceFile, *, is_chosen: bool) -> tuple[SourceFile, list[Finding]]:
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
        return source, []
    if keras and ours and ours[0] < keras[0]:
        return source, []
    return with_import(source, _LOADER), [
        Finding(source.path, 0, 0, "TEE105", f"`{_LOADER.partition('  ')[0]}`")]


def with_import(source: SourceFile, line: str) -> SourceFile:
    """Returns a module with one import more."""
    body: list[Statement] = list(source.module.body)
    origins = _insert(source.module, body, _place(body), [line])
    return source.rewritten(source.module.with_changes(body=body), origins)


def chooses_keras(source: SourceFile) -> bool:
    """Whether a line of a module imports what chooses Keras 2.

    An import over several lines is not seen; one line more does no harm.
    """
    lines: list[cst.Import | cst.ImportFrom] = find_all(source.module, cst.Import, cst.ImportFrom)
    return any(f"{name}.".startswith((f"{PACKAGE}.tf_estimator.", f"{PACKAGE}.tf_tpu."))
               for line in lines if not getattr(line, "lpar", None) for name in _modules_of(line))


def _uses_layers(source: SourceFile) -> bool:
    """Whether a module uses names that TensorFlow has from Keras."""
    names = Names(source.module)
    return any(_OF_KERAS.match(path) for chain in names.chains
               for path in names.paths_in(chain.scope, chain.parts))


def _place(body: list[Statement]) -> int:
    """Returns the position of new imports: above the first library, else below all imports."""
    after = 0
    for index, statement in enumerate(body):
        names = _imported_modules(statement, inside=True)
        if any(name.split(".")[0] in _LIBRARIES for name in names):
            return index
        if _imported_modules(statement) or (index == 0 and _is_docstring(statement)):
            after = index + 1
    return after


def _insert(module: cst.Module, body: list[Statement], place: int,
            lines: list[str]) -> dict[cst.CSTNode, cst.CSTNode]:
    """Inserts lines; returns the statement after them, without the comments above, by the new one.
    """
    after = body[place:place + 1]
    statements: list[Statement] = [
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
    following = body[place:place + 1]
    body[place:place] = statements
    return dict(zip(following, after, strict=True))


def _switch_v2_off(rewriter: ModuleRewrite, module: cst.Module,
                   body: list[Statement]) -> None:
    """Adds `tf.disable_v2_behavior()` below the imports, as TensorFlow 1.x behaves."""
    if not any(finding.code == "TEE103" for finding in rewriter.findings) or any(
            chain.parts[-1] in ("disable_v2_behavior", "disable_eager_execution")
            for chain in rewriter.names.chains):
        return
    root = next((name for name in ("tf", "tensorflow")
                 if rewriter.names.is_bound_at_top(name, "tensorflow")), "")
    last = max((index for index, statement in enumerate(body) if _imported_modules(statement)),
               default=-1)
    lines = [f"{root}.disable_v2_behavior()"] if root else [
        "import tensorflow.compat.v1 as tensorflow_v1", "tensorflow_v1.disable_v2_behavior()"]
    statements: list[Statement] = [
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
        nodes = find_all(statement, cst.Import, cst.ImportFrom)
    else:
        nodes = []
    return [name for node in nodes for name in _modules_of(node)]


def _modules_of(node: cst.CSTNode) -> list[str]:
    """Returns the modules, or names in them, that an import statement imports."""
    if isinstance(node, cst.Import):
        return [".".join(dotted(alias.name)) for alias in node.names]
    if not isinstance(node, cst.ImportFrom):
        return []
    aliases = () if isinstance(node.names, cst.ImportStar) else node.names
    return [module_of(node), *(f"{module_of(node)}.{'.'.join(dotted(alias.name))}"
                               for alias in aliases)]


def _is_docstring(statement: cst.CSTNode) -> bool:
    return matchers.matches(statement, matchers.SimpleStatementLine(
        [matchers.Expr(matchers.SimpleString() | matchers.ConcatenatedString())]))
