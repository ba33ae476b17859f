# SPDX-License-Identifier: Apache-2.0
"""Splits a model_fn into the unchanged forward pass and the code that only its train_op needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.assignments import (
    Line,
    lines_of,
    parameters_and_variables,
    targets_of,
    variables,
)
from tpu_estimator_embedding.migration.constructor_arguments import SPEC_ORDER
from tpu_estimator_embedding.migration.effects import SPEC, Effects, Problem
from tpu_estimator_embedding.migration.forward_rewrite import NewStatement
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    dotted,
    find_all,
    find_names,
    holds,
    last_word,
    replaced,
    variables_in,
)
from tpu_estimator_embedding.migration.optimizer_slice import (
    FunctionBody,
    OptimizerSlice,
)
from tpu_estimator_embedding.migration.train_op import STEP_CALLS, TrainOp

_KEPT = ("mode", "predictions", "loss", "eval_metrics", "export_outputs")
PARAMETERS = ("features", "labels", "mode", "params", "config")


class NotSplitError(Exception):
    """A module has an unsupported form.

    Attributes:
        problems: what is unsupported, with the places.
    """

    code = "TEE402"

    def __init__(self, message: str, node: cst.CSTNode) -> None:
        super().__init__(message)
        self.problems: Sequence[Problem] = (Problem(node, self.code, message),)

    @classmethod
    def of(cls, problems: Sequence[Problem]) -> NotSplitError:
        """Returns an error with several problems."""
        error = cls(problems[0].message, problems[0].node)
        error.problems = problems
        return error


class GradientsFunction(NamedTuple):
    """The body of `transform_gradients`: statements, and the text of what it returns."""

    statements: tuple[cst.BaseStatement, ...]
    value: str


@dataclasses.dataclass(frozen=True)
class Parts:
    """A model_fn, split.

    Attributes:
        forward: the function without its training.
        optimizers: the calls that make the legacy optimizer; several where conditions choose one.
        rate, optimizer: the function of the learning rate, and the one that makes the optimizer.
        gradients: `transform_gradients`; None if nothing changes gradients.
        dropped: arguments of the specs without a counterpart -> their positions.
        problems: what the forward pass does that is not carried over, or not known to be.
    """

    forward: cst.FunctionDef
    optimizers: tuple[cst.Call, ...]
    rate: FunctionBody
    optimizer: FunctionBody
    gradients: GradientsFunction | None
    dropped: tuple[tuple[str, cst.CSTNode], ...]
    problems: tuple[Problem, ...]


def split(function: cst.FunctionDef, names: Names, own: Iterable[str] = ()) -> Parts:
    """Splits a model_fn.

    Args:
        function: the model_fn.
        names: of its module.
        own: parameters in addition to those of every model_fn, with their values.

    Raises:
        NotSplitError: it has an unsupported form.
    """
    return _Splitter(function, names, own).run()


class _Spec(NamedTuple):
    """A call of TPUEstimatorSpec, and its arguments by name."""

    call: cst.Call
    given: Mapping[str, cst.BaseExpression]


class _Splitter:
    def __init__(self, function: cst.FunctionDef, names: Names, own: Iterable[str]) -> None:
        self._function, self._names, self._own = function, names, frozenset(own)
        self._lines = lines_of(function.body)
        self._problems: list[Problem] = []

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self._problems.append(Problem(node, NotSplitError.code, message))

    def run(self) -> Parts:
        specs = [_Spec(call, arguments_of_spec(call)) for call in _specs(self._function)]
        if not specs:
            raise NotSplitError("it returns no TPUEstimatorSpec itself", self._function)
        self._check_signature()
        for call, _ in specs:
            if not self._names.means(call.func, SPEC):
                self._problem(call, f"`{'.'.join(dotted(call.func))}` is not known to be this "
                              "package's")
        train = self._train_op(self._training(specs))
        self._problems += train.problems
        dropped = [value for _, given in specs for key, value in given.items() if key not in _KEPT]
        gone = _gone(self._function, self._lines, train, dropped)
        of_optimizer = OptimizerSlice(
            self._function, self._lines, train, self._names, self._own)
        if not train.optimizers:
            effects = self._effects(gone, frozenset(), dropped, of_optimizer)
            raise NotSplitError.of([*self._problems, *filter(_is_of_forward, effects)])
        rate, optimizer = of_optimizer.functions([_rate(call) for _, call in train.optimizers])
        gone |= self._refusals(of_optimizer, gone)
        left = {statement for line in self._lines if line.node not in gone
                for statement, _ in line.around}
        tests = [one.test for one in of_optimizer.conditions if one not in left]
        gone = _gone(self._function, self._lines, train, [*dropped, *tests], gone)
        gradients = self._changed_gradients(of_optimizer)
        self._problems += of_optimizer.problems
        effects = self._effects(gone, rate.lines | optimizer.lines, dropped, of_optimizer)
        if self._problems:
            raise NotSplitError.of([*self._problems, *filter(_is_of_forward, effects)])
        return Parts(
            forward=self._forward(gone, train),
            optimizers=tuple(call for _, call in train.optimizers),
            rate=rate, optimizer=optimizer, gradients=gradients,
            dropped=tuple(_without_counterpart(specs)),
            problems=tuple(effects))

    def _training(self, specs: Sequence[_Spec]) -> _Spec:
        """Returns the one spec with a train_op."""
        training = [spec for spec in specs if "train_op" in spec.given]
        if len(training) == 1:
            return training[0]
        for spec in training[1:]:
            self._problem(spec.call, f"it has {len(training)} train_op, not one")
        if not training:
            self._problem(self._function, "it has 0 train_op, not one")
        raise NotSplitError.of(self._problems)

    def _train_op(self, spec: _Spec) -> TrainOp:
        line = next((line for line in self._lines if holds(line.node, spec.call)), None)
        if line is None:
            raise NotSplitError("the spec with the train_op is made in a function inside it, or "
                                "on the line of its `if`", spec.call)
        return TrainOp(self._function, self._lines, line, spec.given["train_op"],
                       spec.given.get("loss"), self._names)

    def _refusals(self, optimizer: OptimizerSlice, gone: set[cst.CSTNode]) -> set[cst.CSTNode]:
        """Returns the lines that refuse, and whose conditions decide about nothing else."""
        kept = [line for line in self._lines if line.node not in gone
                and not isinstance(line.statement, cst.Raise)]
        of_others = {statement for line in kept for statement, _ in line.around}
        return {line.node for line in self._lines if line.node in optimizer.raised
                and not of_others & {one for one, _ in line.around
                                     if one in optimizer.conditions}}

    def _changed_gradients(self, optimizer: OptimizerSlice) -> GradientsFunction | None:
        """Returns `transform_gradients`; None if nothing changes gradients."""
        changed = optimizer.train.changed_gradients
        if changed is None:
            return None
        code = cst.Module([]).code_for_node
        nodes = {node: cst.parse_expression(text) for node, text in changed.replaced.items()}
        [result] = replaced([changed.result], nodes)
        statements = list(replaced(optimizer.statements({*changed.lines}), nodes))
        if {"params"} & {name for node in (*statements, result) for name in variables_in(node)}:
            statements.insert(0, cst.parse_statement("params = self.params"))
        if not changed.is_pairs:
            return GradientsFunction(tuple(statements), f"list({code(result)})")
        statements.append(cst.parse_statement(
            "changed = {variable.ref(): gradient for gradient, variable in " + code(result) + "}"))
        return GradientsFunction(
            tuple(statements), "[changed.get(variable.ref()) for variable in variables]")

    def _check_signature(self) -> None:
        parameters = self._function.params
        odd = [*parameters.kwonly_params, *parameters.posonly_params]
        odd += [star for star in (parameters.star_arg, parameters.star_kwarg)
                if isinstance(star, cst.Param)]
        odd += [one for one in parameters.params if one.name.value not in (
            *PARAMETERS, *self._own)]
        for parameter in odd:
            self._problem(parameter, f"it has the parameters {[parameter.name.value]}: only "
                          f"{', '.join(PARAMETERS)} are known, without * and **, and what "
                          "`functools.partial` or a default gives by name")
        if "mode" in variables(self._function):
            self._problem(self._function, "it assigns `mode`, which its conditions depend on")
        for decorator in self._function.decorators:
            self._problem(decorator, "it has a decorator, whose effect the tool does not know")

    def _effects(self, gone: set[cst.CSTNode], moved: Set[cst.CSTNode],
                 dropped: Iterable[cst.BaseExpression],
                 optimizer: OptimizerSlice) -> list[Problem]:
        """Returns what else the forward pass, and the functions of the optimizer, do.

        Args:
            gone: lines that the forward pass does not have.
            moved: those of them that the functions have.
            dropped: arguments of the specs without a counterpart.
            optimizer: what the functions are made of.
        """
        train = optimizer.train
        steps = [call for line in (*gone, *dropped)
                 for call in find_all(line, cst.Call)
                 if self._names.of_tensorflow(call.func) in STEP_CALLS]
        headers = [item for statement in train.updates for item in statement.items]
        uncalled = self._functions_of({*gone, *dropped})
        effects = Effects(self._names, [
            *(gone - moved), *dropped, *steps, *headers, *uncalled])
        found = effects.check(
                self._function, [
                    *(argument.value for _, call in train.optimizers for argument in call.args),
                    *(one.test for one in optimizer.conditions)])
        is_config_used = "config" in variables_in(
            self._function.body, {line.node for line in self._lines if isinstance(
                line.statement, cst.Del)})
        if is_config_used and any(one.name.value == "config"
                                  for one in self._function.params.params):
            found.append(Problem(self._function, "TEE409", "it uses `config`, which is None for "
                                 "the forward pass"))
        return found + self._unmoved_averages(train, effects.called)

    def _functions_of(self, gone: set[cst.CSTNode]) -> list[cst.FunctionDef]:
        """Returns the functions inside the model_fn that only nodes which are gone use."""
        return [function for function in find_all(self._function.body, cst.FunctionDef)
                if all(any(holds(one, name) for one in (*gone, function))
                       for name in find_names(self._function.body, function.name.value))]

    def _unmoved_averages(self, train: TrainOp,
                          called: Sequence[cst.FunctionDef]) -> list[Problem]:
        """Reports batch normalization whose updates the train_op does not run."""
        if train.problems:  # it is not known what it runs
            return []
        calls = {function: [
            call for call in find_all(function, cst.Call)
            if self._names.of_tensorflow(call.func) == "layers.batch_normalization"]
            for function in called}
        if train.updates_read is not None:
            makers = {function.name.value for function in called
                      if calls[function] and function is not self._function}
            late = [line.node for line in self._lines[train.updates_read:]]
            calls[self._function] = [call for call in calls[self._function]
                                     if any(holds(line, call) for line in late)]
            if not any(variables_in(line) & makers for line in late):
                calls = {self._function: calls[self._function]}
        return [Problem(call, "TEE409", "the train_op does not run the updates of this "
                        "`batch_normalization`, which is not in UPDATE_OPS when it is read: in the "
                        "Estimator its averages do not move, in TF2 they do")
                for found in calls.values() for call in found]

    def _forward(self, gone: set[cst.CSTNode], train: TrainOp) -> cst.FunctionDef:
        forward = self._function.visit(_Forward(gone, set(train.updates)))
        assert isinstance(forward, cst.FunctionDef)
        return forward


def _without_counterpart(specs: Iterable[_Spec]) -> Iterator[tuple[str, cst.CSTNode]]:
    """Yields the arguments of specs that Outputs do not have, and the calls."""
    for call, given in specs:
        for key, value in given.items():
            if key not in (*_KEPT, "train_op") and not matchers.matches(
                    value, matchers.Name("None")):
                yield key, call


def _rate(optimizer: cst.Call) -> cst.Arg:
    """Returns the argument of an optimizer with its learning rate."""
    named = [argument for argument in optimizer.args if argument.keyword is not None
             and argument.keyword.value == "learning_rate"]
    first = [argument for argument in optimizer.args[:1] if argument.keyword is None]
    stars = [argument for argument in optimizer.args if argument.star]
    if stars or not (named or first):
        raise NotSplitError("its optimizer has no learning rate, or * arguments", optimizer)
    return (named or first)[0]


def returns_specs(function: cst.FunctionDef) -> bool:
    """Whether a function itself, not a nested one, constructs a TPUEstimatorSpec."""
    of_inner = {call for node in find_all(function.body, cst.FunctionDef)
                for call in _specs(node)}
    return any(call not in of_inner for call in _specs(function))


def bound_names(function: cst.FunctionDef, but: cst.FunctionDef) -> set[str]:
    """Returns the parameters of a function and the names that it binds, except in another one."""
    return parameters_and_variables(function.with_changes(body=function.body.deep_remove(but)))


def _is_of_forward(problem: Problem) -> bool:
    """Whether a problem concerns more than the training that was not understood anyway."""
    name = last_word(problem.node.func) if isinstance(problem.node, cst.Call) else ""
    return not name.endswith("Optimizer") and name not in (
        "minimize", "compute_gradients", "apply_gradients", "control_dependencies",
        "get_collection", "group")


def _specs(function: cst.FunctionDef) -> Iterator[cst.Call]:
    for call in find_all(function.body, cst.Call):
        if last_word(call.func) == SPEC:
            yield call


def arguments_of_spec(call: cst.Call) -> dict[str, cst.BaseExpression]:
    """Returns argument of a TPUEstimatorSpec -> its value.

    Raises:
        NotSplitError: it has * or ** arguments.
    """
    if any(argument.star for argument in call.args):
        raise NotSplitError("its TPUEstimatorSpec has * or ** arguments", call)
    return {argument.keyword.value if argument.keyword else SPEC_ORDER[index]: argument.value
            for index, argument in enumerate(call.args)}


def _gone(function: cst.FunctionDef, lines: list[Line], train: TrainOp,
          dropped: Iterable[cst.BaseExpression],
          known: Iterable[cst.CSTNode] = ()) -> set[cst.CSTNode]:
    """Returns the lines that only training, or a dropped expression, needs."""
    dropped = set(dropped)
    headers = {item for statement in train.updates for item in statement.items}
    gone: set[cst.CSTNode] = {*train.lines, *known}
    wanted = {name for node in (*gone, *dropped) for name in variables_in(node)}
    is_growing = True
    while is_growing:
        new = [line.node for line in lines if line.node not in gone
               and (targets := targets_of(line.node)) and targets <= wanted
               and not _uses_elsewhere(function, lines, {*gone, *dropped, *headers}, targets)]
        is_growing = bool(new)
        gone.update(new)
        wanted |= {name for line in new for name in variables_in(line)}
    # A line of the train_op whose variable the forward pass uses too stays there.
    kept = [line for line in train.lines if (targets := targets_of(line)) and _uses_elsewhere(
        function, lines, {*gone, *dropped, *headers}, targets)]
    return gone - set(kept)


def _uses_elsewhere(function: cst.FunctionDef, lines: list[Line], but: set[cst.CSTNode],
                    targets: set[str]) -> bool:
    """Whether anything but the assignments of variables themselves uses them."""
    own = {line.node for line in lines
           if targets_of(line.node) and targets_of(line.node) <= targets}
    return bool(variables_in(function.body, but | own) & targets)


class _Forward(cst.CSTTransformer):
    """Removes lines, and turns specs into Outputs.

    Args:
        gone: the lines.
        updates: `with` statements that the forward pass does not need.
    """

    def __init__(self, gone: set[cst.CSTNode], updates: set[cst.With]) -> None:
        super().__init__()
        self._gone, self._updates = gone, updates

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if last_word(original_node.func) != SPEC:
            return updated_node
        given = {key: value for key, value in arguments_of_spec(updated_node).items()
                 if key in _KEPT}
        arguments = [cst.Arg(value, keyword=cst.Name(key), equal=cst.AssignEqual(
            cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))) for key, value in given.items()]
        return updated_node.with_changes(func=cst.Name("Outputs"), args=arguments)

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._gone

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> (
            cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]):
        if original_node in self._gone:
            return cst.RemoveFromParent()
        return super().on_leave(original_node, updated_node)

    def leave_With(self, original_node: cst.With, updated_node: cst.With) -> Any:
        if original_node in self._updates:
            return cst.FlattenSentinel(list(updated_node.body.body))
        return updated_node if updated_node.body.body else cst.RemoveFromParent()

    def leave_Else(self, original_node: cst.Else, updated_node: cst.Else) -> Any:
        return updated_node if updated_node.body.body else cst.RemoveFromParent()

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> NewStatement:
        if updated_node.body.body:
            return updated_node
        if updated_node.orelse is None:
            return cst.RemoveFromParent()
        return updated_node.with_changes(
            body=updated_node.body.with_changes(body=[cst.parse_statement("pass")]))
