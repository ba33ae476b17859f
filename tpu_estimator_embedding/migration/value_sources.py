# SPDX-License-Identifier: Apache-2.0
"""Where the values of a captured program come from: the expressions that its constructors got.

A value that a flag had in the captured run would be fixed in `embedding_config.py`, and the flag
be without effect from then on. So an expression of flags is written there itself, if it has the
same value; a value that depends on anything else of the run is reported.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any

from tpu_estimator_embedding.migration.function_text import is_flags

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
        line: its line in the program.
        value: its value; None if it is not known.
        flags: its variables for flags; empty if it cannot be written in another module.
        is_fixed: whether it has the same value in every run.
    """

    argument: str
    text: str
    line: int
    value: Any = None
    flags: tuple[str, ...] = ()
    is_fixed: bool = False


def sources_of(text: str | bytes, names: Mapping[str, Any]) -> list[Source]:
    """Returns the expressions that constructors got.

    Args:
        text: of the program.
        names: its global variables when it was captured.
    """
    tree = ast.parse(text)
    definitions = _definitions(tree)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            for argument, value in _arguments(node):
                found.append(_source(argument, value, definitions, names))
    return found


def expressions(sources: Iterable[Source]) -> dict[tuple[str, Any], Source]:
    """Returns (argument, value) -> the expression of flags that is the only one to give it.

    An argument has none if another expression may give the same value.
    """
    by_argument: dict[str, list[Source]] = {}
    for source in sources:
        by_argument.setdefault(source.argument, []).append(source)
    found: dict[tuple[str, Any], Source] = {}
    for argument, given in by_argument.items():
        if argument in WRITTEN and all(source.value is not None for source in given):
            for source in given:
                same = {one.text for one in given if one.value == source.value}
                if source.flags and same == {source.text}:
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


def _source(argument: str, node: ast.expr, definitions: Mapping[str, list[ast.expr | None]],
            names: Mapping[str, Any]) -> Source:
    used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    text = ast.unparse(node)
    flags = tuple(sorted(name for name in used if is_flags(names.get(name))))
    others = used - set(flags)
    if flags and not any(isinstance(one, ast.Call) for one in ast.walk(node)) and all(
            hasattr(builtins, name) for name in others):
        return Source(argument, text, node.lineno, eval(text, dict(names)), flags)
    if flags or not _is_fixed(node, definitions, names, set()):
        return Source(argument, text, node.lineno)
    try:
        value = eval(text, dict(names))
    except Exception:  # a variable of a function
        value = None
    return Source(argument, text, node.lineno, value, is_fixed=True)


def _is_fixed(node: ast.expr, definitions: Mapping[str, list[ast.expr | None]],
              names: Mapping[str, Any], seen: set[str]) -> bool:
    """Whether only literals, builtins and modules decide about an expression."""
    for one in ast.walk(node):
        if isinstance(one, ast.Call) and not (
                isinstance(one.func, ast.Name) and hasattr(builtins, one.func.id)
                and one.func.id not in ("open", "input", "eval", "exec")):
            return False
        if not isinstance(one, ast.Name) or one.id in seen:
            continue
        seen.add(one.id)
        values = definitions.get(one.id)
        if values is None:
            if not (hasattr(builtins, one.id) or _is_plain(names.get(one.id))):
                return False
        elif any(value is None or not _is_fixed(value, definitions, names, seen)
                 for value in values):
            return False
    return True


def _is_plain(value: Any) -> bool:
    """Whether an imported value is a constant, not something that holds arguments of a run."""
    return isinstance(value, (bool, int, float, str)) or (
        isinstance(value, ModuleType) and value.__name__ in ("math", "numpy"))
