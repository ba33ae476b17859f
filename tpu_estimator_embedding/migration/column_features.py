# SPDX-License-Identifier: Apache-2.0
"""The features that a list of feature columns looks up, found in the text that makes it.

The text may use constants, list displays and comprehensions, and functions of the module without
parameters that consist of assignments, also of modules and to several names, and a result.
Everything else is not known.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.names import OWN, Names
from tpu_estimator_embedding.migration.node_search import dotted, shown, text_of

# Ids of all of these are looked up as they are: a TPU applies no hash and no vocabulary.
_CATEGORICAL = tuple(f"feature_column.categorical_column_with_{kind}" for kind in (
    "identity", "hash_bucket", "vocabulary_list", "vocabulary_file"))
_WEIGHTED = "feature_column.weighted_categorical_column"
_NUMERIC = "feature_column.numeric_column"
_OF_TPU = {"tpu.experimental.embedding_column": "embedding_column",
           "tpu.experimental.shared_embedding_columns": "shared_embedding_columns",
           f"{OWN}embedding_column": "embedding_column",
           f"{OWN}shared_embedding_columns": "shared_embedding_columns"}
_LENGTHS = ("max_sequence_length", "max_sequence_lengths")  # of sequences
Environment = Mapping[str, Any]


class UnknownColumnsError(Exception):
    """A text makes columns in a way that is not known in full."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column.

    Attributes:
        key: of its feature.
        name: of the column, by which `input_layer` sorts.
        size: number of values of a numeric column; None for other columns.
        is_embedding: whether the feature has a table.
    """

    key: str
    name: str
    size: int | None = None
    is_embedding: bool = False


def columns_of(node: cst.BaseExpression, names: Names, local: Mapping[
        str, cst.BaseExpression]) -> list[Column]:
    """Returns the columns of an expression, in the order in which `input_layer` concatenates.

    Args:
        node: the argument of `input_layer`.
        names: of the module.
        local: variable of the function around it -> its only value.

    Raises:
        UnknownColumnsError: it is not known in full.
    """
    found = _Columns(names).value(node, {name: _Text(value) for name, value in local.items()})
    columns = [found] if isinstance(found, Column) else found
    if not isinstance(columns, list) or not columns or not all(
            isinstance(one, Column) and (one.is_embedding or one.size) for one in columns):
        raise UnknownColumnsError(f"`{shown(node)}` is not a list of TPU embedding "
                                  "columns and numeric columns")
    return sorted(columns, key=lambda column: column.name)


@dataclasses.dataclass(frozen=True)
class _Text:
    """A variable whose value is evaluated when it is used."""

    node: cst.BaseExpression


class _Columns:
    def __init__(self, names: Names) -> None:
        self._names = names
        self._changed = names.changed_later()
        self._depth = 0  # of texts in texts

    def value(self, node: cst.CSTNode, local: Environment) -> Any:
        """Returns the value of an expression: a column, a constant, or a list or dict of some."""
        self._depth += 1
        if self._depth > 50:
            raise UnknownColumnsError(f"`{shown(node)}` refers to itself")
        try:
            return self._value(node, local)
        finally:
            self._depth -= 1

    def _value(self, node: cst.CSTNode, local: Environment) -> Any:
        if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)) or isinstance(
                node, cst.Name) and node.value in ("None", "True", "False"):
            return ast.literal_eval(text_of(node))
        if isinstance(node, cst.Name):
            return self._variable(node, local)
        if isinstance(node, (cst.List, cst.Tuple)):
            return [one for element in node.elements for one in self._elements(element, local)]
        if isinstance(node, cst.Dict) and all(
                isinstance(one, cst.DictElement) for one in node.elements):
            return {self.value(one.key, local): self.value(one.value, local)
                    for one in node.elements if isinstance(one, cst.DictElement)}
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add):
            left, right = self.value(node.left, local), self.value(node.right, local)
            if type(left) is type(right) and isinstance(left, (list, int, str)):
                return left + right
        if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(
                node.slice[0].slice, cst.Index):
            return self._item(node, node.slice[0].slice.value, local)
        if isinstance(node, cst.ListComp):
            return [self.value(node.elt, inner) for inner in self._each(node, local)]
        if isinstance(node, cst.DictComp):
            return {self.value(node.key, inner): self.value(node.value, inner)
                    for inner in self._each(node, local)}
        if isinstance(node, cst.Call):
            return self._call(node, local)
        raise _unknown(node)

    def _elements(self, element: cst.BaseElement, local: Environment) -> list[Any]:
        found = self.value(element.value, local)
        if not isinstance(element, cst.StarredElement):
            return [found]
        if not isinstance(found, list):
            raise _unknown(element)
        return found

    def _variable(self, node: cst.Name, local: Environment) -> Any:
        name = node.value
        if name in local:
            found = local[name]
            return self.value(found.node, local) if isinstance(found, _Text) else found
        values = self._names.globals.get(name, [])
        if len(values) != 1 or name in self._changed or name in self._names.functions or (
                name in self._names.unclear):
            raise _unknown(node)
        return self.value(values[0], {})

    def _item(self, node: cst.Subscript, key: cst.CSTNode, local: Environment) -> Any:
        try:
            return self.value(node.value, local)[self.value(key, local)]
        except (LookupError, TypeError) as error:
            raise _unknown(node) from error

    def _each(self, node: cst.ListComp | cst.DictComp, local: Environment) -> Iterator[Environment]:
        """Yields the variables of every turn of a comprehension."""
        loop, target = node.for_in, node.for_in.target
        if loop.ifs or loop.inner_for_in:
            raise _unknown(node)
        names = [one.value for one in (target.elements if isinstance(
            target, cst.Tuple) else [cst.Element(target)])]
        values = self.value(loop.iter, local)
        values = list(values) if isinstance(values, dict) else values
        if not isinstance(values, list) or not all(isinstance(one, cst.Name) for one in names):
            raise _unknown(node)
        for value in values:
            parts = value if isinstance(target, cst.Tuple) else [value]
            if not isinstance(parts, list) or len(parts) != len(names):
                raise _unknown(node)
            yield {**local, **{name.value: part for name, part in zip(names, parts, strict=True)
                               if isinstance(name, cst.Name)}}

    def _call(self, call: cst.Call, local: Environment) -> Any:
        name = self._names.of_tensorflow(call.func)
        own = next((_OF_TPU[path] for path in (name, *self._names.paths(call.func))
                    if path in _OF_TPU), "")
        if own:
            return self._embedding(own, call, local)
        if name in _CATEGORICAL:
            key = self._text(call, 0, "key", local)
            return Column(key, key)
        if name == _WEIGHTED:
            of = self._argument(call, 0, "categorical_column", local)
            weights = self._text(call, 1, "weight_feature_key", local)
            if not isinstance(of, Column) or of.size or of.is_embedding:
                raise _unknown(call)
            return Column(of.key, f"{of.name}_weighted_by_{weights}")
        if name == _NUMERIC:
            return self._numeric(call, local)
        if not call.args and isinstance(call.func, cst.Attribute) and (
                call.func.attr.value == "items"):
            found = self.value(call.func.value, local)
            if isinstance(found, dict):
                return [list(pair) for pair in found.items()]
        if not call.args and isinstance(call.func, cst.Name):
            return self._called(call, call.func.value)
        if isinstance(call.func, cst.Name) and call.func.value in ("sorted", "list") and len(
                call.args) == 1 and not self._names.functions.get(call.func.value):
            found = self.value(call.args[0].value, local)
            if isinstance(found, (list, dict)) and all(isinstance(one, str) for one in found):
                return sorted(found) if call.func.value == "sorted" else list(found)
        raise _unknown(call)

    def _embedding(self, own: str, call: cst.Call, local: Environment) -> Any:
        argument = ("categorical_column" if own == "embedding_column"
                    else "categorical_columns")
        of = self._argument(call, 0, argument, local)
        columns = [of] if isinstance(of, Column) else of
        if not isinstance(columns, list) or not all(
                isinstance(one, Column) and not one.size and not one.is_embedding
                for one in columns) or len(call.args) > 4 and call.args[4].keyword is None:
            raise _unknown(call)
        for one in call.args:
            if one.star or one.keyword is not None and one.keyword.value in _LENGTHS:
                raise _unknown(call)
        suffix = "embedding" if own == "embedding_column" else "shared_embedding"
        found = [Column(one.key, f"{one.name}_{suffix}", is_embedding=True) for one in columns]
        return found[0] if own == "embedding_column" else found

    def _numeric(self, call: cst.Call, local: Environment) -> Column:
        if any(one.keyword is not None and one.keyword.value not in ("key", "shape")
               for one in call.args) or len(call.args) > 2:
            raise _unknown(call)
        key = self._text(call, 0, "key", local)
        shape = self._argument(call, 1, "shape", local, default=1)
        sizes = shape if isinstance(shape, list) else [shape]
        if len(sizes) != 1 or not isinstance(sizes[0], int) or sizes[0] < 1:
            raise _unknown(call)
        return Column(key, key, sizes[0])

    def _called(self, call: cst.Call, name: str) -> Any:
        """Returns the result of a function of the module without parameters."""
        functions = self._names.functions.get(name, [])
        if len(functions) != 1 or functions[0].decorators or functions[0].params.children:
            raise _unknown(call)
        local: dict[str, Any] = {}
        for statement in functions[0].body.body:
            small = statement.body[0] if isinstance(
                statement, cst.SimpleStatementLine) and len(statement.body) == 1 else None
            if isinstance(small, cst.Return) and small.value is not None:
                return self.value(small.value, local)
            if isinstance(small, cst.Assign) and len(small.targets) == 1:
                local |= self._assigned(small.targets[0].target, small.value, local)
            elif not (isinstance(small, cst.Expr) and isinstance(small.value, cst.SimpleString)):
                raise UnknownColumnsError(f"`{shown(statement)}` of `{name}` is "
                                          "not an assignment")
        raise _unknown(call)

    def _assigned(self, target: cst.BaseExpression, value: cst.BaseExpression,
                  local: Environment) -> dict[str, Any]:
        """Returns the variables of an assignment to a name, or to several names."""
        if isinstance(target, cst.Name):
            return {target.value: _Text(value) if self._is_alias(target, value, local)
                    else self.value(value, local)}
        elements = target.elements if isinstance(target, (cst.Tuple, cst.List)) else ()
        names = [one.value.value for one in elements
                 if isinstance(one, cst.Element) and isinstance(one.value, cst.Name)]
        found = self.value(value, local) if names else None
        if not isinstance(found, list) or not len(names) == len(elements) == len(found):
            raise UnknownColumnsError(f"`{shown(target)} = {shown(value)}` is "
                                      "not an assignment to names of as many columns")
        return dict(zip(names, found, strict=True))

    def _is_alias(self, target: cst.Name, value: cst.BaseExpression, local: Environment) -> bool:
        """Whether a variable is another module, or a name of one, wherever it is used."""
        paths, words = self._names.paths(value), dotted(value)
        return bool(paths) and words[0] not in local and set(paths) == set(
            self._names.paths(target))

    def _text(self, call: cst.Call, index: int, name: str, local: Environment) -> str:
        found = self._argument(call, index, name, local)
        if not isinstance(found, str):
            raise _unknown(call)
        return found

    def _argument(self, call: cst.Call, index: int, name: str, local: Environment,
                  default: Any = None) -> Any:
        for place, one in enumerate(call.args):
            if one.star:
                raise _unknown(call)
            if place == index and one.keyword is None or one.keyword is not None and (
                    one.keyword.value == name):
                return self.value(one.value, local)
        return default


def _unknown(node: cst.CSTNode) -> UnknownColumnsError:
    return UnknownColumnsError(f"`{shown(node)}` is not known in full: write the "
                               "columns as constants, lists and assignments")
