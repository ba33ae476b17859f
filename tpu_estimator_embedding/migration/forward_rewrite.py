# SPDX-License-Identifier: Apache-2.0
"""Inserts the parts of a split model_fn into its program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import Statement, dotted, find_all

INPUT_LAYER_NAME, INPUT_LAYER = "input_layer", ("features", "feature_columns")
# Layer of columns, which is made and called at once -> what takes its place.
COLUMN_LAYERS = {"keras.layers.DenseFeatures": "activations_of",
                 "keras.experimental.SequenceFeatures": "sequences_of"}
_OF_TF1 = ("disable_v2_behavior", "disable_eager_execution")
# The identifiers of a callable, as a program writes it -> its name relative to TensorFlow.
Callables = Mapping[tuple[str, ...], str]
# What a transformer puts in the place of a statement.
NewStatement = cst.BaseStatement | cst.RemovalSentinel | cst.FlattenSentinel[cst.BaseStatement]


def callables_of(module: cst.Module, names: Names) -> Callables:
    """Returns what is called in a module and is one name of TensorFlow wherever it stands."""
    found: dict[tuple[str, ...], set[str]] = {}
    for call in find_all(module, cst.Call):
        if words := dotted(call.func):
            found.setdefault(words, set()).add(names.of_tensorflow(call.func))
    return {words: next(iter(one)) for words, one in found.items() if len(one) == 1}


class ForwardRewrite(cst.CSTTransformer):
    """Inserts the new definitions, and removes `disable_v2_behavior()`.

    Args:
        calls: call -> the text that replaces it.
        functions: function -> the texts of the statements that replace it.
        before: statement -> the texts of statements to put above it.
        callables: of the program.
        marks: statement -> the comments to put above it.
    """

    def __init__(self, calls: dict[cst.Call, str], functions: dict[cst.FunctionDef, list[str]],
                 before: dict[cst.CSTNode, list[str]], callables: Callables,
                 marks: Mapping[cst.CSTNode, list[str]]) -> None:
        super().__init__()
        self._marks = marks
        self._callables = callables
        self._calls, self._functions, self._before = calls, functions, before
        self._in_class = False

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> Any:
        """Changes a node, and puts the marks of a statement above it."""
        new: Any = super().on_leave(original_node, updated_node)
        if original_node not in self._marks or not hasattr(new, "leading_lines"):
            return new
        marks = [cst.EmptyLine(comment=cst.Comment(text)) for text in self._marks[original_node]]
        return new.with_changes(leading_lines=[*new.leading_lines, *marks])

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if original_node in self._calls:
            return cst.parse_expression(self._calls[original_node])
        if is_input_layer(original_node, self._callables):
            given = input_layer_arguments(updated_node)
            return cst.Call(cst.Name("activations_of"), [
                cst.Arg(given[name]) for name in INPUT_LAYER if name in given])
        function = column_layer(original_node, self._callables)
        if function and takes_columns_at_once(original_node):
            assert isinstance(updated_node.func, cst.Call)
            return cst.Call(cst.Name(function), [
                cst.Arg(updated_node.args[0].value), cst.Arg(updated_node.func.args[0].value)])
        return updated_node

    def leave_FunctionDef(self, original_node: cst.FunctionDef,
                          updated_node: cst.FunctionDef) -> NewStatement:
        texts = self._functions.get(original_node)
        if texts is None:
            return self._with_definitions(original_node, updated_node)
        statements = _statements(texts, self._callables, 1 if self._in_class else 2)
        if len(texts) == 1 or self._in_class:  # in another function, or a method
            statements[0] = statements[0].with_changes(leading_lines=original_node.leading_lines)
        return cst.FlattenSentinel(statements)

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self._in_class = any(one in self._functions for one in node.body.body)

    def leave_ClassDef(self, original_node: cst.ClassDef,
                       updated_node: cst.ClassDef) -> NewStatement:
        self._in_class = False
        return self._with_definitions(original_node, updated_node)

    def _with_definitions(self, original_node: cst.CSTNode,
                          updated_node: cst.BaseStatement) -> NewStatement:
        if original_node not in self._before:
            return updated_node
        return cst.FlattenSentinel([
            *_statements(self._before[original_node], self._callables), updated_node])

    def leave_Attribute(self, original_node: cst.Attribute,
                        updated_node: cst.Attribute) -> cst.BaseExpression:
        if is_value_of_size(original_node):
            return updated_node.value
        return cst.Name("ModeKeys") if dotted(original_node) == (
            "tf_estimator", "ModeKeys") else updated_node

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine,
                                  updated_node: cst.SimpleStatementLine) -> NewStatement:
        kept = [new for old, new in zip(original_node.body, updated_node.body, strict=True)
                if not self._is_of_tf1(old)]
        if len(kept) == len(original_node.body):
            return updated_node
        if not kept:
            return cst.RemoveFromParent()
        kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(body=kept)

    def _is_of_tf1(self, statement: cst.BaseSmallStatement) -> bool:
        return isinstance(statement, cst.Expr) and isinstance(
            statement.value, cst.Call) and self._callables.get(
                dotted(statement.value.func)) in _OF_TF1


def _statements(texts: list[str], callables: Callables, blank: int = 2) -> list[Statement]:
    """Parses texts, adds empty lines above each, and rewrites the calls in them."""
    statements: list[Statement] = []
    for text in texts:
        parsed = cst.parse_module(text)
        found = list(parsed.visit(ForwardRewrite({}, {}, {}, callables, {})).body)
        above = [*parsed.header, *found[0].leading_lines]
        first = next((index for index, line in enumerate(above) if line.comment), len(above))
        found[0] = found[0].with_changes(leading_lines=[
            *[cst.EmptyLine(indent=False)] * blank, *above[first:]])
        statements += found
    return statements


def is_value_of_size(node: cst.Attribute) -> bool:
    """Whether an attribute is `x.shape[i].value`, by its form: in TF2 the size itself.

    >>> is_value_of_size(cst.parse_expression("net.get_shape()[-1].value"))
    True
    """
    size = node.value
    if node.attr.value != "value" or not isinstance(size, cst.Subscript):
        return False
    of: cst.BaseExpression | None = size.value
    if isinstance(of, cst.Call):
        of = of.func if not of.args else None
    elif isinstance(of, cst.Attribute) and of.attr.value == "dims":
        of = of.value
    return isinstance(of, cst.Attribute) and of.attr.value in ("shape", "get_shape") and all(
        isinstance(one.slice, cst.Index) for one in size.slice)


def is_input_layer(call: cst.Call, callables: Callables) -> bool:
    """Whether a call is one of `tf.feature_column.input_layer`, by its own name."""
    words = dotted(call.func)
    return words[-1:] == (INPUT_LAYER_NAME,) and callables.get(
        words) == f"feature_column.{INPUT_LAYER_NAME}"


def column_layer(call: cst.Call, callables: Callables) -> str:
    """Returns what takes the place of the layer of columns that a call calls; "" if none does."""
    inner = call.func
    return COLUMN_LAYERS.get(callables.get(dotted(inner.func), ""), "") if isinstance(
        inner, cst.Call) else ""


def takes_columns_at_once(call: cst.Call) -> bool:
    """Whether a call is `Layer(columns)(features)`, with no other argument than a name."""
    assert isinstance(call.func, cst.Call)
    if len(call.args) != 1 or not call.func.args:
        return False
    columns, *others = call.func.args
    return not any(one.star for one in (columns, *call.args)) and (
        call.args[0].keyword is None) and (
            columns.keyword is None or columns.keyword.value == "feature_columns") and all(
                one.keyword is not None and one.keyword.value == "name"
                and isinstance(one.value, cst.SimpleString) for one in others)


def input_layer_arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Returns the arguments of a call of `input_layer` by their names; "*" for one too many."""
    return {argument.keyword.value if argument.keyword else (
        INPUT_LAYER[index] if index < len(INPUT_LAYER) and not argument.star else "*"):
        argument.value for index, argument in enumerate(call.args)}
