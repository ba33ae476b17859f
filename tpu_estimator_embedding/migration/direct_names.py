# SPDX-License-Identifier: Apache-2.0
"""Writes the classes of an Estimator's program by their own names, whatever a module calls them.

    from tpu_estimator_embedding import TPUEstimatorSpec as Spec
    Estimator = tf.compat.v1.estimator.tpu.TPUEstimator

The stages after the imports look for the classes by these names. What trains and evaluates by turns
becomes that of a Trainer. Where a class is used in another
way than in a call, such as in a dictionary, they cannot tell what is constructed.
"""

from collections.abc import Iterator
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.effects import SPEC, Problem, text_of
from tpu_estimator_embedding.migration.import_statements import with_import
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, nodes_of
from tpu_estimator_embedding.migration.source_file import Edit, SourceFile
from tpu_estimator_embedding.migration.targets import PACKAGE

ESTIMATOR = "TPUEstimator"
TRAINER = f"{PACKAGE}.trainer"
BY_TURNS = ("EvalSpec", "TrainSpec", "train_and_evaluate")
_ASKING = ("isinstance", "issubclass", "hasattr", "getattr", "print", "repr", "str", "type")


def with_direct_names(source: SourceFile) -> SourceFile:
    """Returns a module whose calls and classes have the Estimator's classes by their own names."""
    names = Names(source.module)
    used = _called(source.module)
    replaced = {node: name for node in used for name in (ESTIMATOR, SPEC)
                if dotted(node)[-1:] != (name,) and dotted(node) and names.means(node, name)
                and names.is_only(name, f"{PACKAGE}.{name}")}
    if not any(names.means(node, ESTIMATOR) for node in used):
        return source
    return _with(source, names, replaced, PACKAGE)


def with_specs_of_trainer(source: SourceFile) -> SourceFile:
    """Returns a module with `train_and_evaluate` and its specs for a Trainer.

    Only a module that constructs the TPUEstimator, and has no variables of these names, changes.
    """
    names = Names(source.module)
    used = _called(source.module)
    if names.bound_names & {*BY_TURNS} or not any(names.means(node, ESTIMATOR) for node in used):
        return source
    replaced = {node: name for node in used for name in BY_TURNS
                if names.means(node, name) and names.paths(node)}
    return _with(source, names, replaced, TRAINER)


def _called(module: cst.Module) -> list[cst.BaseExpression]:
    """Returns what a module calls, and derives classes from."""
    return [*(call.func for call in find_all(module, cst.Call)),
            *(base.value for node in find_all(module, cst.ClassDef) for base in node.bases)]


def _with(source: SourceFile, names: Names, replaced: dict[cst.BaseExpression, str],
          home: str) -> SourceFile:
    """Returns a module with expressions replaced by names, which it imports of a module."""
    new = sorted({name for name in replaced.values()
                  if not names.is_bound_at_top(name, f"{home}.{name}")})
    source = source.edited(_Named(replaced)) if replaced else source
    return with_import(source, f"from {home} import {', '.join(new)}") if new else source


def estimators_as_values(module: cst.Module, names: Names) -> list[Problem]:
    """Returns the uses of TPUEstimator as a value, from which it may be called anywhere."""
    return [Problem(node, "TEE402", f"`{text_of(node)}` is used as a value: call it where the "
                    "program constructs its Estimator")
            for node in _values(module) if names.means(node, ESTIMATOR)]


def _values(module: cst.Module) -> Iterator[cst.BaseExpression]:
    """Yields the expressions that are given to, returned by or kept in something."""
    for node in nodes_of(module):
        match node:
            case cst.Call() if dotted(node.func)[-1:] not in [(name,) for name in _ASKING]:
                yield from (argument.value for argument in node.args)
            case cst.IfExp():
                yield from (node.body, node.orelse)
            case cst.Param(default=cst.BaseExpression() as value):
                yield value
            case (cst.Assign(value=value) | cst.NamedExpr(value=value)
                  | cst.DictElement(value=value) | cst.Element(value=value)):
                yield value
            case (cst.AnnAssign(value=cst.BaseExpression() as value)
                  | cst.Return(value=cst.BaseExpression() as value)):
                yield value


class _Named(Edit):
    def __init__(self, replaced: dict[cst.BaseExpression, str]) -> None:
        super().__init__()
        self._replaced = replaced

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replaced

    def changed(self, original_node: Any, updated_node: Any) -> Any:
        """Returns the name of a class in the place of an expression that means it."""
        name = self._replaced.get(original_node)
        return super().changed(original_node, updated_node) if name is None else cst.Name(
            name, lpar=original_node.lpar, rpar=original_node.rpar)
