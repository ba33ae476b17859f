# SPDX-License-Identifier: Apache-2.0
"""Writes the classes of an Estimator's program by their own names, whatever a module calls them.

    from tpu_estimator_embedding import TPUEstimatorSpec as Spec
    Estimator = tf.compat.v1.estimator.tpu.TPUEstimator

The stages after the imports look for the classes by these names. `train_and_evaluate` and its specs
become those of a Trainer, and so do the receivers and outputs of exports. Where a class is used in
another way than in a call, such as in a dictionary, they cannot tell what is constructed.
"""

from collections.abc import Iterator, Sequence, Set
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration.effects import SPEC, Problem
from tpu_estimator_embedding.migration.import_statements import with_import
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    dotted,
    find_all,
    last_word,
    module_of,
    nodes_of,
    text_of,
)
from tpu_estimator_embedding.migration.source_file import Edit, SourceFile
from tpu_estimator_embedding.migration.targets import PACKAGE

ESTIMATOR = "TPUEstimator"
TRAINER = f"{PACKAGE}.trainer"
_BY_TURNS = ("EvalSpec", "TrainSpec", "train_and_evaluate")
_MODES = "ModeKeys"
_OF_EXPORTS = (
    "ClassificationOutput", "PredictOutput", "RegressionOutput", "ServingInputReceiver",
    "build_parsing_serving_input_receiver_fn", "build_raw_serving_input_receiver_fn")
OLD_EXPORT, EXPORT = "export_savedmodel", "export_saved_model"
_FOLDERS = (f"{PACKAGE}.tf_estimator", f"{PACKAGE}.tf_estimator.export")
_VARIABLE = "tee_trainer"  # of the module of Trainer, in a program that has these names itself
_ASKING = ("isinstance", "issubclass", "hasattr", "getattr", "print", "repr", "str", "type")


def with_direct_names(source: SourceFile) -> SourceFile:
    """Returns a module whose calls and classes have the Estimator's classes by their own names."""
    names = Names(source.module)
    used = _called(source.module)
    replaced = {node: name for node in used for name in (ESTIMATOR, SPEC)
                if last_word(node) != name and dotted(node) and names.means(node, name)
                and names.is_only(name, f"{PACKAGE}.{name}")}
    if not any(names.means(node, ESTIMATOR) for node in used):
        return source
    return _with(source, names, replaced, PACKAGE)


def with_names_of_trainer(source: SourceFile) -> SourceFile:
    """Returns a module with the names of the Estimator that a Trainer needs, from its module.

    These are `train_and_evaluate` with its specs, ModeKeys, and those of exports. Where they mean
    anything else in the module, the first three are read through that of Trainer, and those of
    exports stay, which a Trainer takes, too.
    """
    names = Names(source.module)
    free = {path.rpartition(".")[2] for path in (
        *(f"{_FOLDERS[0]}.{name}" for name in (*_BY_TURNS, _MODES)),
        *(f"{_FOLDERS[1]}.{name}" for name in _OF_EXPORTS))
        if names.is_only(path.rpartition(".")[2], path)}
    moved = {*(_BY_TURNS if free.issuperset(_BY_TURNS) else ()), *free.difference(_BY_TURNS)}
    exports = {call for call in find_all(source.module, cst.Call) if last_word(call.func) ==
               OLD_EXPORT and not (names.paths(call.func) or OLD_EXPORT in names.methods)}
    source = source.edited(_PresentExports(exports)).edited(_ImportsOfTrainer(moved))
    names = Names(source.module)
    replaced = {node: name for node in _called(source.module)
                for name in (*_BY_TURNS, *free.intersection(_OF_EXPORTS))
                if names.means(node, name) and any(
                    not path.startswith(TRAINER) for path in names.paths(node))}
    if moved.issuperset(_BY_TURNS):
        return _with(source, names, replaced, TRAINER)
    sure = {node: f"{_VARIABLE}.{name}" for node, name in replaced.items()
            if len(names.paths(node)) == 1}
    if not sure or _VARIABLE in names.bound_names:
        return source
    source = source.edited(_Named(sure))
    package, _, last = TRAINER.rpartition(".")
    return with_import(source, f"from {package} import {last} as {_VARIABLE}")


def constructs_estimator(source: SourceFile) -> bool:
    """Whether a module constructs a TPUEstimator, or derives a class from it."""
    names = Names(source.module)
    return any(names.means(node, ESTIMATOR) for node in _called(source.module))


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
            case cst.Call() if last_word(node.func) not in _ASKING:
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
        return super().changed(original_node, updated_node) if name is None else (
            cst.parse_expression(name).with_changes(
                lpar=original_node.lpar, rpar=original_node.rpar))


class _PresentExports(Edit):
    """Gives exports the name of the method that Estimator and Trainer have.

    `strip_default_attrs` goes: TF2 always leaves these attributes out.
    """

    def __init__(self, calls: Set[cst.Call]) -> None:
        super().__init__()
        self._calls = calls

    def changed(self, original_node: Any, updated_node: Any) -> Any:
        """Returns a call of the present method in the place of one of the old method."""
        if original_node not in self._calls:
            return super().changed(original_node, updated_node)
        kept = [argument for argument in updated_node.args if argument.keyword is None
                or argument.keyword.value != "strip_default_attrs"]
        return updated_node.with_changes(
            func=updated_node.func.with_changes(attr=cst.Name(EXPORT)),
            args=[*kept[:-1], *(last.with_changes(comma=cst.MaybeSentinel.DEFAULT)
                                for last in kept[-1:])])


class _ImportsOfTrainer(Edit):
    """Imports from the module of Trainer what is imported from that of Estimator."""

    def __init__(self, moved: Set[str]) -> None:
        super().__init__()
        self._moved = moved

    def changed(self, original_node: Any, updated_node: Any) -> Any:
        """Returns an import of other names, and one of these, in the place of a line."""
        match updated_node:
            case cst.SimpleStatementLine(body=[cst.ImportFrom() as statement]) if (
                    module_of(statement) in _FOLDERS
                    and not isinstance(statement.names, cst.ImportStar)):
                return _divided(updated_node, statement, self._moved)
        return super().changed(original_node, updated_node)


def _divided(line: cst.SimpleStatementLine, statement: cst.ImportFrom, names: Set[str]) -> Any:
    """Returns the import without these names, and one of them from the module of Trainer."""
    assert not isinstance(statement.names, cst.ImportStar)
    moved = [alias for alias in statement.names if dotted(alias.name)[-1] in names]
    left = [alias for alias in statement.names if alias not in moved]
    if not moved:
        return line
    trainer: Any = cst.parse_expression(TRAINER)
    if not left:
        return line.with_changes(body=[statement.with_changes(module=trainer)])
    return cst.FlattenSentinel([
        line.with_changes(body=[statement.with_changes(names=_without_last_comma(left))]),
        cst.SimpleStatementLine([cst.ImportFrom(trainer, _without_last_comma(moved))])])


def _without_last_comma(aliases: Sequence[cst.ImportAlias]) -> list[cst.ImportAlias]:
    return [*aliases[:-1], aliases[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]
