# SPDX-License-Identifier: Apache-2.0
"""Where the values of a captured program come from: the expressions that its constructors got.

A value that a flag had in the captured run would be fixed in `embedding_config.py`, and the flag
be without effect from then on. So an expression of flags, or of variables that other modules of
the program export, is written there itself, if it has the same value; a value that depends on
anything else of the run is reported.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import importlib.util
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

from tpu_estimator_embedding.migration.function_text import is_flags
from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS

# Constructor -> its arguments in order, as far as they reach `embedding_config.py`.
_TABLE, _COLUMN = ("vocabulary_size", "dimension"), ("", "dimension")
_ARGUMENTS = {
    "TableConfig": _TABLE, "embedding_column": _COLUMN, "embedding_column_v2": _COLUMN,
    "shared_embedding_columns": _COLUMN, "shared_embedding_columns_v2": _COLUMN,
    "categorical_column_with_identity": ("", "vocabulary_size"),
    "sequence_categorical_column_with_identity": ("", "vocabulary_size"),
    "categorical_column_with_hash_bucket": ("", "vocabulary_size"),
    "sequence_categorical_column_with_hash_bucket": ("", "vocabulary_size"),
    "FeatureConfig": ("", "max_sequence_length"),
    "EmbeddingConfigSpec": (),
}
_OTHER_NAMES = {"num_buckets": "vocabulary_size", "hash_bucket_size": "vocabulary_size"}
_NOT_VALUES = ("feature_columns", "optimization_parameters", "feature_to_config_dict",
               "table_to_config_dict", "initializer", "learning_rate_fn", "partition_strategy",
               "experimental_gradient_multiplier_fn", "table_multipliers", "categorical_column",
               "categorical_columns", "key", "table_id", "weight_key", "name",
               "profile_data_directory", "shared_embedding_collection_name")
WRITTEN = ("vocabulary_size", "dimension", "max_sequence_length", "learning_rate")


@dataclasses.dataclass(frozen=True)
class Source:
    """An expression that a constructor of the program got.

    Attributes:
        argument: the argument, in the words of a TableConfig or of the parameters.
        text: the expression.
        line: its line in its module.
        path: the file of its module.
        value: its value; None if it is not known.
        flags: its variables for flags.
        imports: (variable, import statement) for its variables of other modules of the program.
        is_fixed: whether it has the same value in every run.
    """

    argument: str
    text: str
    line: int
    path: str
    value: object = None
    flags: tuple[str, ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    is_fixed: bool = False

    @property
    def meaning(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The expression, and what its variables mean."""
        return self.text, self.imports


@dataclasses.dataclass(frozen=True, eq=False)
class ProgramModule:
    """A module of a program, after the program was captured.

    Attributes:
        path: its file, as findings name it.
        name: by which others import it; "__main__" for the program's file.
        text: of the file.
        names: its global variables.
    """

    path: str
    name: str
    text: str | bytes
    names: Mapping[str, Any]

    @functools.cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @functools.cached_property
    def definitions(self) -> dict[str, list[ast.expr | None]]:
        """Variable -> what it is assigned; None for what a caller or a loop decides."""
        return _definitions(self.tree)

    @functools.cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Variable -> the dotted name that it is imported from, and the import statement."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    variable = alias.asname or alias.name.split(".")[0]
                    path = alias.name if alias.asname else variable
                    found[variable] = path, f"import {ast.unparse(alias)}"
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node)
                for alias in node.names:
                    found[alias.asname or alias.name] = (
                        f"{module}.{alias.name}", f"from {module} import {ast.unparse(alias)}")
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        package = self.names.get("__package__")
        if node.level and package:
            return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
        return "." * node.level + (node.module or "")


def sources_of(modules: Sequence[ProgramModule]) -> list[Source]:
    """Returns the expressions that constructors got.

    Args:
        modules: all of the program.
    """
    program = _Program(modules)
    return [program.source(argument, value, module)
            for module in modules for node in ast.walk(module.tree) if isinstance(node, ast.Call)
            for argument, value in _arguments(node)]


def expressions(sources: Iterable[Source]) -> dict[tuple[str, object], Source]:
    """Returns (argument, value) -> the expression that is the only one to give it.

    An argument has none if another expression may give the same value.
    """
    by_argument: dict[str, list[Source]] = {}
    for source in sources:
        by_argument.setdefault(source.argument, []).append(source)
    found: dict[tuple[str, object], Source] = {}
    for argument, given in by_argument.items():
        if argument in WRITTEN and all(source.value is not None for source in given):
            for source in given:
                same = {one.meaning for one in given if one.value == source.value}
                if not source.is_fixed and same == {source.meaning} and isinstance(
                        source.value, (int, float)):
                    found[argument, source.value] = source
    return found


def _arguments(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if name.endswith("Parameters"):
        order: tuple[str, ...] = ("learning_rate", "initial_accumulator")
    elif name in _ARGUMENTS:
        order = _ARGUMENTS[name]
    else:
        return
    for index, value in enumerate(call.args):
        argument = order[index] if index < len(order) else ""
        if argument:
            yield argument, value
    for keyword in call.keywords:
        if keyword.arg not in _NOT_VALUES:
            given = keyword.arg or "**"
            yield _OTHER_NAMES.get(given, given), keyword.value


def _definitions(tree: ast.Module) -> dict[str, list[ast.expr | None]]:
    """Returns variable -> what it is assigned; None for what a caller or a loop decides."""
    found: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(tree):
        values: list[tuple[ast.AST, ast.expr | None]] = []
        if isinstance(node, ast.Assign):
            values = [(target, node.value) for target in node.targets]
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
            values = [(node.target, node.value)]
        elif isinstance(node, (ast.For, ast.comprehension)):
            values = [(node.target, node.iter)]
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            values = [(node.optional_vars, None)]
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, []).append(None)
        elif isinstance(node, ast.Global):
            for name in node.names:
                found.setdefault(name, []).append(None)
        for target, value in values:
            for one in ast.walk(target):
                if isinstance(one, ast.Name):
                    found.setdefault(one.id, []).append(value)
    return found


class _Program:
    """Tells which expressions in the modules of a program have the same value in every run."""

    def __init__(self, modules: Sequence[ProgramModule]) -> None:
        self._modules = {module.name: module for module in modules}
        self._changed: set[tuple[str, str]] = set()  # (module, variable) that others assign
        self._open: set[str] = set()  # modules whose variables anything may change
        for module in modules:
            self._note_changes(module)

    def source(self, argument: str, node: ast.expr, module: ProgramModule) -> Source:
        """Returns the record of an expression in a module."""
        plain = Source(argument, ast.unparse(node), node.lineno, module.path)
        try:
            value = eval(plain.text, dict(module.names))
        except Exception:  # a variable of a function
            value = None
        if self._is_fixed(node, module, set()):
            return dataclasses.replace(plain, value=value, is_fixed=True)
        flags: list[str] = []
        imports: list[tuple[str, str]] = []
        if any(isinstance(one, ast.Call) for one in ast.walk(node)):
            return plain
        for name in sorted({one.id for one in ast.walk(node) if isinstance(one, ast.Name)}):
            if is_flags(module.names.get(name)):
                flags.append(name)
            elif self._is_importable(name, module):
                imports.append((name, module.imports[name][1]))
            elif not hasattr(builtins, name) or name in module.definitions:
                return plain
        return dataclasses.replace(plain, value=value, flags=tuple(flags), imports=tuple(imports))

    def _note_changes(self, module: ProgramModule) -> None:
        """Notes what a module does to variables of modules other than by assigning its own."""
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Name) and node.id in ("exec", "globals"):
                self._open.add(module.name)
            if isinstance(node, ast.Attribute):
                found = self._exported(node, module)
                if found and isinstance(node.ctx, (ast.Store, ast.Del)):
                    self._changed.add((found[0].name, found[1]))
                elif found and found[1] == "__dict__":
                    self._open.add(found[0].name)
            changed = None
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, (ast.Store, ast.Del)):
                changed = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and (
                    node.func.attr in CHANGING_METHODS):
                changed = node.func.value
            if changed is not None and (found := self._exported(changed, module)):
                self._changed.add((found[0].name, found[1]))
            elif isinstance(changed, ast.Name):
                self._changed.add((module.name, changed.id))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("setattr", "vars"):
                self._open |= {name for one in node.args[:1]
                               if (name := self._path(one, module)) in self._modules}

    def _path(self, node: ast.expr, module: ProgramModule) -> str:
        """Returns the dotted name, from its import, of a variable with attributes."""
        words: list[str] = []
        while isinstance(node, ast.Attribute):
            words.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        path, _ = module.imports.get(node.id, ("", ""))
        if not path and node.id not in module.definitions:
            path = self._from_star(node.id, module)
        return ".".join((path, *reversed(words))) if path else ""

    def _from_star(self, name: str, module: ProgramModule) -> str:
        path, _ = module.imports.get("*", ("", ""))
        other = self._modules.get(path.removesuffix(".*"))
        return f"{other.name}.{name}" if other and name in other.names else ""

    def _exported(self, node: ast.expr, module: ProgramModule) -> tuple[ProgramModule, str] | None:
        """Returns the module of the program, and its variable, that an expression reads."""
        path, _, name = self._path(node, module).rpartition(".")
        found = self._modules.get(path)
        return (found, name) if found and f"{path}.{name}" not in self._modules else None

    def _is_importable(self, name: str, module: ProgramModule) -> bool:
        """Whether `embedding_config.py` can import a variable of a module as that module does."""
        if name in module.definitions or name not in module.imports:
            return False
        path = module.imports[name][0]
        other = self._modules.get(path) or self._modules.get(path.rpartition(".")[0])
        return other is not None and other.name != "__main__" and not (
            self._reaches_estimator(other, set()))

    def _reaches_estimator(self, module: ProgramModule, seen: set[str]) -> bool:
        """Whether a module imports the one that will import `embedding_config.py`."""
        seen.add(module.name)
        text = module.text if isinstance(module.text, str) else module.text.decode("latin-1")
        others = [self._modules.get(name) for path, _ in module.imports.values()
                  for name in (path, path.rpartition(".")[0])]
        return "TPUEstimator(" in text or any(
            self._reaches_estimator(other, seen) for other in others
            if other is not None and other.name not in seen)

    def _is_fixed(self, node: ast.AST, module: ProgramModule, seen: set[tuple[str, str]]) -> bool:
        """Whether only literals, builtins and modules decide about an expression."""
        if isinstance(node, (ast.Name, ast.Attribute)):
            found = self._exported(node, module)
            if found:
                return self._is_fixed_name(found[1], found[0], seen)
        if isinstance(node, ast.Name):
            return self._is_fixed_name(node.id, module, seen)
        if isinstance(node, ast.Call) and not (
                isinstance(node.func, ast.Name) and hasattr(builtins, node.func.id)
                and node.func.id not in ("open", "input", "eval", "exec")):
            return False
        return all(self._is_fixed(child, module, seen) for child in ast.iter_child_nodes(node))

    def _is_fixed_name(self, name: str, module: ProgramModule, seen: set[tuple[str, str]]) -> bool:
        if (module.name, name) in seen:
            return True
        seen.add((module.name, name))
        if (module.name, name) in self._changed:
            return False
        values = module.definitions.get(name)
        if values is None:
            found = self._exported(ast.Name(name), module)
            if found:
                return self._is_fixed_name(found[1], found[0], seen)
            return hasattr(builtins, name) or _is_plain(module.names.get(name))
        return module.name not in self._open and all(
            value is not None and self._is_fixed(value, module, seen) for value in values)


def _is_plain(value: object) -> bool:
    """Whether an imported value is a constant, not something that holds arguments of a run."""
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, ModuleType) and value.__name__ in ("math", "numpy"))
