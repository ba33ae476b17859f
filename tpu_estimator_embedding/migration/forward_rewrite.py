# SPDX-License-Identifier: Apache-2.0
"""Inserts the parts of a split model_fn into its program."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.bindings import dotted

INPUT_LAYER_NAME, INPUT_LAYER = "input_layer", ("features", "feature_columns")


class ForwardRewrite(cst.CSTTransformer):
    """Inserts the new definitions, and removes `disable_v2_behavior()`.

    Args:
        calls: call -> the text that replaces it.
        functions: function -> the texts of the statements that replace it.
        before: statement -> the texts of statements to put above it.
        own: the functions and classes of the program.
    """

    def __init__(self, calls: dict[cst.Call, str], functions: dict[cst.FunctionDef, list[str]],
                 before: dict[cst.CSTNode, list[str]], own: Collection[str] = ()) -> None:
        super().__init__()
        self._own = own
        self._calls, self._functions, self._before = calls, functions, before

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if original_node in self._calls:
            return cst.parse_expression(self._calls[original_node])
        if is_input_layer(original_node, self._own):
            given = input_layer_arguments(updated_node)
            return cst.Call(cst.Name("activations_of"), [
                cst.Arg(given[name]) for name in INPUT_LAYER if name in given])
        inner = original_node.func
        kind = (dotted(inner.func) or ("",))[-1] if isinstance(inner, cst.Call) else ""
        if kind in ("DenseFeatures", "SequenceFeatures"):
            function = "activations_of" if kind == "DenseFeatures" else "sequences_of"
            assert isinstance(updated_node.func, cst.Call)
            columns = updated_node.func.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return cst.Call(cst.Name(function), [updated_node.args[0], columns])
        return updated_node

    def leave_FunctionDef(self, original_node: cst.FunctionDef,
                          updated_node: cst.FunctionDef) -> Any:
        texts = self._functions.get(original_node)
        if texts is None:
            return self._with_definitions(original_node, updated_node)
        statements = _statements(texts, self._own)
        if len(texts) == 1:  # in another function, or in a class
            statements[0] = statements[0].with_changes(leading_lines=original_node.leading_lines)
        return cst.FlattenSentinel(statements)

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> Any:
        return self._with_definitions(original_node, updated_node)

    def _with_definitions(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        if original_node not in self._before:
            return updated_node
        return cst.FlattenSentinel([
            *_statements(self._before[original_node], self._own), updated_node])

    def leave_Attribute(self, original_node: cst.Attribute,
                        updated_node: cst.Attribute) -> cst.BaseExpression:
        return cst.Name("ModeKeys") if dotted(original_node) == (
            "tf_estimator", "ModeKeys") else updated_node

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine,
                                  updated_node: cst.SimpleStatementLine) -> Any:
        expression = getattr(original_node.body[0], "value", None) if original_node.body else None
        name = dotted(expression.func)[-1:] if isinstance(expression, cst.Call) else ()
        if name in (("disable_v2_behavior",), ("disable_eager_execution",)):
            return cst.RemoveFromParent()
        return updated_node


def _statements(texts: list[str], own: Collection[str]) -> list[Any]:
    """Parses texts, adds two empty lines above each, and rewrites the calls in them."""
    statements: list[Any] = []
    for text in texts:
        parsed = cst.parse_module(text)
        found: list[Any] = list(parsed.visit(ForwardRewrite({}, {}, {}, own)).body)
        above = [*parsed.header, *found[0].leading_lines]
        first = next((index for index, line in enumerate(above) if line.comment), len(above))
        found[0] = found[0].with_changes(leading_lines=[
            cst.EmptyLine(), cst.EmptyLine(), *above[first:]])
        statements += found
    return statements


def is_input_layer(call: cst.Call, own: Collection[str]) -> bool:
    """Whether a call is written as one of `tf.feature_column.input_layer`, not of the program's."""
    words = dotted(call.func)
    return words[-2:] == ("feature_column", INPUT_LAYER_NAME) or (
        words == (INPUT_LAYER_NAME,) and INPUT_LAYER_NAME not in own)


def input_layer_arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Returns the arguments of a call of `input_layer` by their names; "*" for one too many."""
    return {argument.keyword.value if argument.keyword else (
        INPUT_LAYER[index] if index < len(INPUT_LAYER) and not argument.star else "*"):
        argument.value for index, argument in enumerate(call.args)}


def holds(node: cst.CSTNode, inner: cst.CSTNode) -> bool:
    """Whether a node is another one, or contains it."""
    return node is inner or any(holds(child, inner) for child in node.children)
