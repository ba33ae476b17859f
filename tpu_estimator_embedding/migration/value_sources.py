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
import numbers
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import libcst as cst

from tpu_estimator_embedding.config import optimization_parameters
from tpu_estimator_embedding.migration.assignments import names_of_target
from tpu_estimator_embedding.migration.function_text import is_flags
from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    bound_name,
    calls_of,
    dotted,
    find_all,
    last_word,
    module_of,
    node_target,
)
from tpu_estimator_embedding.migration.source_file import SourceFile

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
_NUMERIC = ("abs", "bool", "float", "int", "len", "max", "min", "pow", "round")
_READING = (cst.BaseNumber, cst.SimpleString, cst.ConcatenatedString, cst.Ellipsis, cst.Name,
            cst.Attribute, cst.Subscript, cst.Tuple, cst.List, cst.UnaryOperation,
            cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.IfExp)


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
    def source(self) -> SourceFile | None:
        """The parsed file; None if LibCST cannot parse it."""
        try:
            module = cst.parse_module(self.text)
        except (cst.ParserSyntaxError, UnicodeError):
            return None
        return SourceFile(self.path, module, module)

    @property
    def tree(self) -> cst.Module:
        """The syntax tree; empty if there is none."""
        return self.source.module if self.source else cst.Module([])

    @functools.cached_property
    def definitions(self) -> dict[str, list[cst.CSTNode | None]]:
        """Variable -> what it is assigned; None for what a caller or a loop decides."""
        return _definitions(self.tree)

    @functools.cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Variable -> the dotted name that it is imported from, and the import statement.

        The variable of a star import is "*".
        """
        found = {}
        lines: list[cst.Import | cst.ImportFrom] = find_all(self.tree, cst.Import, cst.ImportFrom)
        for line in lines:
            module = self._absolute(module_of(line)) if isinstance(line, cst.ImportFrom) else ""
            if isinstance(line.names, cst.ImportStar):
                found["*"] = f"{module}.*", ""
                continue
            for alias in line.names:
                bound = bound_name(alias)
                name = ".".join(dotted(alias.name))
                text = f"{name} as {bound}" if alias.asname else name
                found[bound] = (f"{module}.{name}", f"from {module} import {text}") if module else (
                    name if alias.asname else bound, f"import {text}")
        return found

    def paths(self, node: cst.CSTNode) -> list[str]:
        """Returns the dotted names, in modules, of a variable with attributes that is imported."""
        variable = "".join(dotted(node)[:1])
        if variable not in self.imports and (
                "*" not in self.imports or variable in self.definitions):
            return []
        return [self._absolute(path) for path in self._names_of_file.paths(node)]

    def paths_at_top(self, variable: str) -> list[str]:
        """Returns the same of a variable of the module."""
        if variable in self.definitions or not {variable, "*"} & self.imports.keys():
            return []
        return [self._absolute(path) for path in self._names_of_file.paths_at_top(variable)]

    @functools.cached_property
    def _names_of_file(self) -> Names:
        return Names(self.tree)

    def _absolute(self, path: str) -> str:
        package = self.names.get("__package__")
        return importlib.util.resolve_name(path, package) if (
            path.startswith(".") and package) else path


def sources_of(modules: Sequence[ProgramModule]) -> list[Source]:
    """Returns the expressions that constructors got.

    Args:
        modules: all of the program.
    """
    program = _Program(modules)
    return [source for module in modules for call in find_all(module.tree, cst.Call)
            for source in program.sources_of_call(call, module)]


def expressions(sources: Iterable[Source]) -> dict[tuple[str, object], Source]:
    """Returns (argument, value) -> the expression that is the only one to give it.

    An argument has none if another expression may give the same value.
    """
    by_argument: dict[str, list[Source]] = {}
    for source in sources:
        by_argument.setdefault(source.argument, []).append(source)
    found: dict[tuple[str, object], Source] = {}
    for argument, given in by_argument.items():
        if all(isinstance(source.value, numbers.Real) for source in given):
            for source in given:
                same = {one.meaning for one in given if one.value == source.value}
                if not source.is_fixed and same == {source.meaning} and isinstance(
                        source.value, (int, float)):
                    found[argument, source.value] = source
    return found


def _defaults(call: cst.Call) -> dict[str, object]:
    """Returns argument -> default, in order, of a class of parameters that is called."""
    made = getattr(optimization_parameters, last_word(call.func), None)
    return {field.name: field.default for field in dataclasses.fields(made)
            } if dataclasses.is_dataclass(made) else {}


def _arguments(call: cst.Call) -> Iterator[tuple[str, cst.Arg]]:
    name = last_word(call.func)
    if name.endswith("Parameters"):
        order = tuple(_defaults(call)) or ("learning_rate",)
    elif name in _ARGUMENTS:
        order = _ARGUMENTS[name]
    else:
        return
    by_place = [one for one in call.args if one.keyword is None and one.star != "**"]
    yield from ((argument, one) for argument, one in zip(order, by_place, strict=False) if argument)
    for one in call.args:
        given = one.keyword.value if one.keyword else one.star
        if one not in by_place and given not in _NOT_VALUES:
            yield _OTHER_NAMES.get(given, given), one


def _definitions(tree: cst.Module) -> dict[str, list[cst.CSTNode | None]]:
    """Returns variable -> what it is assigned; None for what a caller or a loop decides."""
    found: dict[str, list[cst.CSTNode | None]] = {}
    for node in find_all(tree, cst.Assign, cst.AugAssign, cst.AnnAssign, cst.NamedExpr, cst.For,
                         cst.CompFor, cst.WithItem, cst.Param, cst.Global):
        values: list[tuple[cst.CSTNode, cst.CSTNode | None]] = []
        if isinstance(node, cst.Assign):
            values = [(one.target, node.value) for one in node.targets]
        elif isinstance(node, (cst.AugAssign, cst.AnnAssign, cst.NamedExpr)):
            values = [(node.target, node.value)]
        elif isinstance(node, (cst.For, cst.CompFor)):
            values = [(node.target, node.iter)]
        elif isinstance(node, cst.WithItem) and node.asname is not None:
            values = [(node.asname.name, None)]
        elif isinstance(node, cst.Param):
            values = [(node.name, None)]
        elif isinstance(node, cst.Global):
            values = [(one.name, None) for one in node.names]
        for target, value in values:
            for name in _variables(target):
                found.setdefault(name, []).append(value)
    return found


class _Program:
    """Tells which expressions in the modules of a program have the same value in every run."""

    def __init__(self, modules: Sequence[ProgramModule]) -> None:
        self._modules = {module.name: module for module in modules}
        self._changed: set[tuple[str, str]] = set()  # (module, variable) that others assign
        self._open: set[str] = set()  # modules whose variables anything may change
        for module in modules:
            self._note_changes(module)

    def sources_of_call(self, call: cst.Call, module: ProgramModule) -> list[Source]:
        """Returns the records of what a call gives a constructor, and of what it leaves out."""
        found = [self._source(name, argument, module) for name, argument in _arguments(call)]
        if not (defaults := _defaults(call)):
            return found
        assert module.source is not None
        line, given = module.source.start(call).line, {source.argument for source in found}
        if any(argument.star for argument in call.args):  # which may give any argument
            defaults = dict.fromkeys(defaults)
        else:
            defaults = {name: default for name, default in defaults.items()
                        if isinstance(default, (int, float))}
        return found + [Source(name, repr(default), line, module.path, default, is_fixed=True)
                        for name, default in defaults.items() if name not in given]

    def _source(self, name: str, argument: cst.Arg, module: ProgramModule) -> Source:
        """Returns the record of the expression that is given for an argument in a module."""
        assert module.source is not None
        node, tree = argument.value, module.tree
        text = ast.unparse(ast.parse(f"({tree.code_for_node(node)}\n)", mode="eval"))
        is_one = argument.star != "*"
        plain = Source(name, text if is_one else f"*{text}", module.source.start(node).line,
                       module.path)
        is_fixed = is_one and self._is_fixed(node, module, set())
        if not is_one or not _only_reads(node, module) or find_all(
                node, cst.Call) and not is_fixed:
            return plain
        try:
            value = eval(plain.text, dict(module.names))
        except Exception:  # a variable of a function
            value = None
        if is_fixed:
            return dataclasses.replace(plain, value=value, is_fixed=True)
        flags: list[str] = []
        imports: list[tuple[str, str]] = []
        for variable in sorted(set(_variables(node))):
            if is_flags(module.names.get(variable)):
                flags.append(variable)
            elif self._is_importable(variable, module):
                imports.append((variable, module.imports[variable][1]))
            elif not hasattr(builtins, variable) or variable in module.definitions:
                return plain
        return dataclasses.replace(plain, value=value, flags=tuple(flags), imports=tuple(imports))

    def _note_changes(self, module: ProgramModule) -> None:
        """Notes what a module does to variables of modules other than by assigning its own."""
        tree = module.tree
        if module.source is None or not {"exec", "globals"}.isdisjoint(_variables(tree)):
            self._open.add(module.name)
        for node in find_all(tree, cst.Attribute):
            if node.attr.value == "__dict__" and (found := self._exported(node, module)):
                self._open.add(found[0].name)
        for call in find_all(tree, cst.Call):
            if _word(call.func) in ("setattr", "vars"):
                self._open |= {path for one in call.args[:1]
                               for path in module.paths(one.value) if path in self._modules}
        for changed, is_element in _changed(tree):
            if found := self._exported(changed, module):
                self._changed.add((found[0].name, found[1]))
            elif is_element and isinstance(changed, cst.Name):
                self._changed.add((module.name, changed.value))

    def _exported(self, node: cst.CSTNode,
                  module: ProgramModule) -> tuple[ProgramModule, str] | None:
        """Returns the module of the program, and its variable, that an expression reads."""
        return self._variable(module.paths(node))

    def _variable(self, paths: Sequence[str]) -> tuple[ProgramModule, str] | None:
        for path in paths:
            above, _, name = path.rpartition(".")
            found = self._modules.get(above)
            if found and path not in self._modules and (
                    name in found.names or name == "__dict__"):
                return found, name
        return None

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
        others = [self._modules.get(name) for path, _ in module.imports.values()
                  for name in (path, path.rpartition(".")[0])]
        return bool(calls_of(module.tree, "TPUEstimator")) or any(
            self._reaches_estimator(other, seen) for other in others
            if other is not None and other.name not in seen)

    def _is_fixed(self, node: cst.CSTNode, module: ProgramModule,
                  seen: set[tuple[str, str]]) -> bool:
        """Whether only literals, builtins and modules decide about an expression."""
        if isinstance(node, (cst.Name, cst.Attribute)):
            found = self._exported(node, module)
            if found:
                return self._is_fixed_name(found[1], found[0], seen)
        if isinstance(node, cst.Name):
            return self._is_fixed_name(node.value, module, seen)
        if isinstance(node, cst.Call) and (
                not hasattr(builtins, _word(node.func) or "-")
                or _word(node.func) in ("open", "input", "eval", "exec")):
            return False
        return all(self._is_fixed(child, module, seen) for child in _read_in(node))

    def _is_fixed_name(self, name: str, module: ProgramModule, seen: set[tuple[str, str]]) -> bool:
        if (module.name, name) in seen:
            return True
        seen.add((module.name, name))
        if (module.name, name) in self._changed:
            return False
        values = module.definitions.get(name)
        if values is None:
            found = self._variable(module.paths_at_top(name))
            if found:
                return self._is_fixed_name(found[1], found[0], seen)
            return hasattr(builtins, name) or _is_plain(module.names.get(name))
        return module.name not in self._open and all(
            value is not None and self._is_fixed(value, module, seen) for value in values)


def _word(node: cst.CSTNode) -> str:
    return node.value if isinstance(node, cst.Name) else ""


def _read_in(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Returns the children of a node, without the names of attributes and of arguments."""
    if isinstance(node, (cst.Attribute, cst.Arg)):
        return [node.value]
    return node.children


def _variables(node: cst.CSTNode) -> Iterator[str]:
    """Yields the variables in a tree."""
    if isinstance(node, cst.Name):
        yield node.value
    for child in _read_in(node):
        yield from _variables(child)


def _changed(tree: cst.Module) -> Iterator[tuple[cst.CSTNode, bool]]:
    """Yields what statements change: attributes, and (with True) objects, in place."""
    for node in find_all(tree, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.For,
                         cst.CompFor, cst.Del):
        for target in names_of_target(node_target(node)):
            if isinstance(target, cst.Attribute):
                yield target, False
            elif isinstance(target, cst.Subscript):
                yield target.value, True
    for call in find_all(tree, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in CHANGING_METHODS:
            yield call.func.value, True


def _only_reads(node: cst.CSTNode, module: ProgramModule) -> bool:
    """Whether computing an expression, of a function that may never run, changes nothing.

    Calls may end the program, and iterating may read its data. The functions of Python that
    compute a number from values are the exception.
    """
    if isinstance(node, cst.Call):
        name = _word(node.func)
        if (name not in _NUMERIC or name in module.names or any(one.star for one in node.args)
                or name in ("max", "min") and len(node.args) == 1):
            return False
    elif isinstance(node, cst.BaseExpression) and not isinstance(node, _READING):
        return False
    return all(_only_reads(child, module) for child in _read_in(node))


def _is_plain(value: object) -> bool:
    """Whether an imported value is a constant, not something that holds arguments of a run."""
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, ModuleType) and value.__name__ in ("math", "numpy"))
