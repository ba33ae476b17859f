# SPDX-License-Identifier: Apache-2.0
"""Splits a model_fn into the unchanged forward pass and the code that only its train_op needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.bindings import dotted

SPEC = "TPUEstimatorSpec"
_KEPT = ("mode", "predictions", "loss", "eval_metrics")
_ORDER = ("mode", "predictions", "loss", "train_op", "eval_metrics", "export_outputs",
          "scaffold_fn", "host_call", "training_hooks", "evaluation_hooks", "prediction_hooks")
_STEP_CALLS = ("get_global_step", "get_or_create_global_step")


class NotSplitError(Exception):
    """A model_fn has an unsupported form, which the message names.

    Attributes:
        code: of the report.
    """

    code = "TEE402"

    def __init__(self, message: str, node: cst.CSTNode) -> None:
        super().__init__(message)
        self.node = node


@dataclasses.dataclass(frozen=True)
class Parts:
    """A model_fn, split.

    Attributes:
        forward: the function without its training.
        optimizer: the call that makes the legacy optimizer.
        statements: the statements that its arguments need, in order.
        dropped: arguments of the specs without a counterpart -> their positions.
    """

    forward: cst.FunctionDef
    optimizer: cst.Call
    statements: tuple[cst.BaseStatement, ...]
    dropped: tuple[tuple[str, cst.CSTNode], ...]


def split(function: cst.FunctionDef) -> Parts:
    """Splits a model_fn.

    Raises:
        NotSplitError: it has an unsupported form.
    """
    specs = list(_specs(function))
    if not specs:
        raise NotSplitError("it returns no TPUEstimatorSpec itself", function)
    arguments = [(call, _arguments(call)) for call in specs]
    seeds = {name for call, given in arguments for key, value in given.items()
             if key not in _KEPT for name in names_in(value)}
    training = [given["train_op"] for _, given in arguments if "train_op" in given]
    if len(training) != 1:
        raise NotSplitError(f"it has {len(training)} train_op, not one", function)
    dropped = tuple((key, call) for call, given in arguments for key in given
                    if key not in (*_KEPT, "train_op"))
    kept = function.visit(_KeepForward())
    assert isinstance(kept, cst.FunctionDef)
    remover = _Remover(kept, seeds)
    forward = kept.visit(remover)
    assert isinstance(forward, cst.FunctionDef)
    removed = [*remover.removed, cst.SimpleStatementLine([cst.Expr(training[0])])]
    optimizer = _optimizer(removed, function)
    _check_gradients(removed, optimizer, function)
    statements = _needed(removed, optimizer)
    forward_names = names_in(forward.body)
    unknown = {name for statement in (*statements, optimizer) for name in names_in(statement)
               if name in ("features", "labels", "loss") and name in forward_names}
    if unknown:
        raise NotSplitError(f"the arguments of its optimizer use {sorted(unknown)}", function)
    return Parts(forward, optimizer, statements, dropped)


def returns_specs(function: cst.FunctionDef) -> bool:
    """Whether a function itself, not a nested one, constructs a TPUEstimatorSpec."""
    inner = [node for node in matchers.findall(function.body, matchers.FunctionDef())
             if isinstance(node, cst.FunctionDef)]
    of_inner = {call for node in inner for call in _specs(node)}
    return any(call not in of_inner for call in _specs(function))


def bound_names(function: cst.FunctionDef, but: cst.FunctionDef) -> set[str]:
    """Returns the parameters of a function and the names that it assigns, except in nested ones."""
    inside = set(matchers.findall(but, matchers.SimpleStatementLine()))
    lines = [line for line in matchers.findall(function.body, matchers.SimpleStatementLine())
             if isinstance(line, cst.SimpleStatementLine) and line not in inside]
    return {parameter.name.value for parameter in function.params.params}.union(
        *map(_targets, lines))


def _specs(function: cst.FunctionDef) -> Iterator[cst.Call]:
    for call in matchers.findall(function.body, matchers.Call()):
        if isinstance(call, cst.Call) and dotted(call.func)[-1:] == (SPEC,):
            yield call


def _arguments(call: cst.Call) -> dict[str, cst.BaseExpression]:
    if any(argument.star for argument in call.args):
        raise NotSplitError("its TPUEstimatorSpec has * or ** arguments", call)
    return {argument.keyword.value if argument.keyword else _ORDER[index]: argument.value
            for index, argument in enumerate(call.args)}


def names_in(node: cst.CSTNode) -> set[str]:
    """Returns every name in a node."""
    return {name.value for name in matchers.findall(node, matchers.Name())
            if isinstance(name, cst.Name)}


class _KeepForward(cst.CSTTransformer):
    """Turns specs into Outputs."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if dotted(original_node.func)[-1:] != (SPEC,):
            return updated_node
        given = {key: value for key, value in _arguments(updated_node).items() if key in _KEPT}
        arguments = [cst.Arg(value, keyword=cst.Name(key), equal=cst.AssignEqual(
            cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))) for key, value in given.items()]
        return updated_node.with_changes(func=cst.Name("Outputs"), args=arguments)


class _Remover(cst.CSTTransformer):
    """Removes code that only training needs: assignments to `seeds` that nothing else uses."""

    def __init__(self, function: cst.FunctionDef, seeds: set[str]) -> None:
        super().__init__()
        self.removed: list[cst.BaseStatement] = []
        lines = [line for line in matchers.findall(function.body, matchers.SimpleStatementLine())
                 if isinstance(line, cst.SimpleStatementLine)]
        self._gone: set[cst.CSTNode] = set()
        wanted, is_growing = set(seeds), True
        while is_growing:
            new = [line for line in lines if line not in self._gone
                   and (targets := _targets(line)) and targets <= wanted
                   and not self._is_used(function, lines, targets)]
            self._gone.update(new)
            wanted |= {name for line in new for name in names_in(line)}
            is_growing = bool(new)
        self.removed += [line for line in lines if line in self._gone]

    def _is_used(self, function: cst.FunctionDef, lines: list[cst.SimpleStatementLine],
                 targets: set[str]) -> bool:
        """Whether a remaining statement, other than their own assignments, uses targets."""
        for line in lines:
            is_own = bool(_targets(line)) and _targets(line) <= targets
            if line not in self._gone and not is_own and names_in(line) & targets:
                return True
        headers = [part for kind in (matchers.If(), matchers.While(), matchers.For(),
                                     matchers.With())
                   for block in matchers.findall(function.body, kind)
                   for part in block.children if not isinstance(part, cst.IndentedBlock)]
        return any(names_in(part) & targets for part in headers if not isinstance(part, cst.If))

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._gone

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if original_node in self._gone:
            return cst.RemoveFromParent()
        body = getattr(updated_node, "body", None)
        is_empty = isinstance(body, cst.IndentedBlock) and not body.body
        if is_empty and isinstance(original_node, (cst.If, cst.With)):
            return cst.RemoveFromParent()
        return updated_node


def _targets(line: cst.BaseStatement) -> set[str]:
    """Returns the variables that a line assigns; empty if it does anything else."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return set()
    statement = line.body[0]
    if isinstance(statement, cst.AugAssign):
        targets: list[cst.BaseExpression] = [statement.target]
    elif isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
    else:
        return set()
    names: set[str] = set()
    for target in targets:
        elements = [element.value for element in target.elements] if isinstance(
            target, cst.Tuple) else [target]
        for element in elements:
            if not isinstance(element, cst.Name):
                return set()
            names.add(element.value)
    return names


def _optimizer(removed: list[cst.BaseStatement], function: cst.FunctionDef) -> cst.Call:
    calls = [call for line in removed for call in matchers.findall(line, matchers.Call())
             if isinstance(call, cst.Call)]
    found = [call for call in calls if (name := (dotted(call.func) or ("",))[-1]).endswith(
        "Optimizer") and name != "CrossShardOptimizer"]
    if len(found) != 1:
        raise NotSplitError(f"it makes {len(found)} optimizers of tf.train itself, not one",
                            function)
    return found[0]


def _check_gradients(removed: list[cst.BaseStatement], optimizer: cst.Call,
                     function: cst.FunctionDef) -> None:
    """Rejects gradients that are changed before they are applied."""
    calls = [(dotted(call.func) or ("",))[-1] for line in removed
             for call in matchers.findall(line, matchers.Call())
             if isinstance(call, cst.Call)]
    for name in ("gradients", "clip_by_global_norm", "clip_by_norm", "clip_by_value", "group",
                 "IndexedSlices", "ExponentialMovingAverage"):
        if name in calls:
            raise NotSplitError(f"its train_op calls `{name}`: write it in Trainer.train_step",
                                function)
    if not {"minimize", "apply_gradients"} & set(calls):
        raise NotSplitError("its train_op is made by another function", function)


def _needed(removed: list[cst.BaseStatement], optimizer: cst.Call) -> tuple[cst.BaseStatement, ...]:
    """Returns the removed statements that the arguments of the optimizer need."""
    wanted = {name for argument in optimizer.args for name in names_in(argument.value)}
    statements: list[cst.BaseStatement] = []
    for line in reversed(removed):
        if optimizer in matchers.findall(line, matchers.Call()):
            continue
        if _targets(line) & wanted:
            statements.insert(0, line)
            wanted |= names_in(line)
    return tuple(statements)


def is_step_call(node: cst.CSTNode) -> bool:
    """Whether an expression gets the global step of the graph."""
    return isinstance(node, cst.Call) and (dotted(node.func) or ("",))[-1] in _STEP_CALLS
