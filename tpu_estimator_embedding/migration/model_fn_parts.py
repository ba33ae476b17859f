# SPDX-License-Identifier: Apache-2.0
"""Splits a model_fn into the unchanged forward pass and the code that only its train_op needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.assignments import (
    Line,
    bound_otherwise,
    lines_of,
    targets_of,
)
from tpu_estimator_embedding.migration.constructor_arguments import SPEC_ORDER
from tpu_estimator_embedding.migration.effects import SPEC, Effects, Problem
from tpu_estimator_embedding.migration.forward_rewrite import NewStatement
from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, find_names, holds
from tpu_estimator_embedding.migration.train_op import STEP_CALLS, TrainOp

_KEPT = ("mode", "predictions", "loss", "eval_metrics")
PARAMETERS = ("features", "labels", "mode", "params", "config")
# Of the functions that are written: `dense_learning_rate` and `make_optimizer`.
_CHOSEN_RATE = "dense_rate"
RATE_PARAMETERS, OPTIMIZER_PARAMETERS = ("global_step", "params"), ("learning_rate", "params")


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


@dataclasses.dataclass(frozen=True)
class Parts:
    """A model_fn, split.

    Attributes:
        forward: the function without its training.
        optimizers: the calls that make the legacy optimizer; several where conditions choose one.
        rate: the argument of the first with the learning rate.
        rate_value, optimizer_value: what a function returns that gives the learning rate, and
            another that makes the optimizer.
        rate_statements, optimizer_statements: the statements that those need, in order.
        gradient_statements: those that change gradients, as the body of `transform_gradients`.
        gradient_value: what that returns; "" if nothing changes gradients.
        own_parameters: of the model_fn, which the function of the learning rate, and the one of
            the optimizer, take too.
        dropped: arguments of the specs without a counterpart -> their positions.
        problems: what the forward pass does that is not carried over, or not known to be.
    """

    forward: cst.FunctionDef
    optimizers: tuple[cst.Call, ...]
    rate: cst.Arg
    rate_value: cst.BaseExpression
    optimizer_value: cst.BaseExpression
    rate_statements: tuple[cst.BaseStatement, ...]
    optimizer_statements: tuple[cst.BaseStatement, ...]
    gradient_statements: tuple[cst.BaseStatement, ...]
    gradient_value: str
    own_parameters: tuple[tuple[str, ...], tuple[str, ...]]
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


class _Splitter:
    def __init__(self, function: cst.FunctionDef, names: Names, own: Iterable[str]) -> None:
        self._function, self._names, self._own = function, names, frozenset(own)
        # Parameters of the functions that are written -> those of `own` that they need.
        self._own_used: dict[tuple[str, str], set[str]] = {
            RATE_PARAMETERS: set(), OPTIMIZER_PARAMETERS: set()}
        self._lines = lines_of(function.body)
        self._chosen: set[cst.CSTNode] = set()  # lines that arguments of the optimizer need
        self._problems: list[Problem] = []

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self._problems.append(Problem(node, NotSplitError.code, message))

    def run(self) -> Parts:
        specs = [(call, arguments_of_spec(call)) for call in _specs(self._function)]
        if not specs:
            raise NotSplitError("it returns no TPUEstimatorSpec itself", self._function)
        self._check_signature()
        for call, _ in specs:
            if not self._names.means(call.func, SPEC):
                self._problem(call, f"`{'.'.join(dotted(call.func))}` is not known to be this "
                              "package's")
        training = [(call, given) for call, given in specs if "train_op" in given]
        if len(training) != 1:
            for call, _ in training[1:]:
                self._problem(call, f"it has {len(training)} train_op, not one")
            if not training:
                self._problem(self._function, "it has 0 train_op, not one")
            raise NotSplitError.of(self._problems)
        [(call, given)] = training
        spec_line = next((line for line in self._lines if holds(line.node, call)), None)
        if spec_line is None:
            raise NotSplitError("the spec with the train_op is made in a function inside it, or "
                                "on the line of its `if`", call)
        train = TrainOp(self._function, self._lines, spec_line, given["train_op"],
                        given.get("loss"), self._names)
        self._problems += train.problems
        dropped = [value for _, given in specs for key, value in given.items() if key not in _KEPT]
        gone = _gone(self._function, self._lines, train, dropped)
        if not train.optimizers:
            effects = self._effects(gone, train, dropped)
            raise NotSplitError.of([*self._problems, *filter(_is_of_forward, effects)])
        calls = tuple(call for _, call in train.optimizers)
        rates = [self._rate(call) for call in calls]
        sliced = self._sliced_choice(train, rates) if self._is_chosen(
            train) else self._sliced_arguments(train, rates[0])
        gone |= self._refusals(train, gone)
        left = {statement for line in self._lines if line.node not in gone
                for statement, _ in line.around}
        tests = [one.test for one in self._conditions(train) if one not in left]
        gone = _gone(self._function, self._lines, train, [*dropped, *tests], gone)
        gradients = self._changed_gradients(train)
        effects = self._effects(gone, train, dropped)
        if self._problems:
            raise NotSplitError.of([*self._problems, *filter(_is_of_forward, effects)])
        return Parts(
            self._forward(gone, train), calls, rates[0], *sliced, *gradients,
            (tuple(sorted(self._own_used[RATE_PARAMETERS])),
             tuple(sorted(self._own_used[OPTIMIZER_PARAMETERS]))),
            tuple((key, call) for call, given in specs for key, value in given.items()
                  if key not in (*_KEPT, "train_op") and not matchers.matches(
                      value, matchers.Name("None"))), tuple(effects))

    def _is_chosen(self, train: TrainOp) -> bool:
        """Whether conditions decide which optimizer the train_op has, or whether it has one."""
        return len(train.optimizers) > 1 or bool(self._conditions(train))

    def _conditions(self, train: TrainOp) -> list[cst.If]:
        """Returns the conditions, except those on `mode`, that decide about the optimizer."""
        return list(dict.fromkeys(
            statement for line, _ in train.optimizers for statement, _ in line.around
            if isinstance(statement, cst.If) and train.in_training(statement.test) is None))

    def _sliced_arguments(self, train: TrainOp, rate: cst.Arg) -> tuple[Any, Any, Any, Any]:
        """Returns values and statements, as in Parts, of the only optimizer."""
        [(line, call)] = train.optimizers
        place = self._place(line)
        others = [argument.value for argument in call.args if argument is not rate]
        return (rate.value, _with_rate(call, rate), self._slice(
            [rate.value], train, place, RATE_PARAMETERS), self._slice(
                others, train, place, OPTIMIZER_PARAMETERS) if others else ())

    def _sliced_choice(self, train: TrainOp, rates: Sequence[cst.Arg],
                       ) -> tuple[Any, Any, Any, Any]:
        """Returns values and statements, as in Parts, of optimizers that conditions choose from."""
        makers = {line.node: (call, rate) for (line, call), rate in zip(
            train.optimizers, rates, strict=True)}
        places = [self._place(line) for line, _ in train.optimizers]
        tests = [one.test for one in self._conditions(train)]
        raised = self._raised(train)
        names = {name for line in makers for name in targets_of(line)}
        if len(names) != 1:
            self._problem(train.optimizers[0][1], "conditions choose an optimizer that has no "
                          "variable: assign it to one")
            return (rates[0].value, train.optimizers[0][1], (), ())
        [variable] = names
        others = [argument.value for call, rate in makers.values() for argument in call.args
                  if argument is not rate]
        made = self._slice([*others, *tests, *raised], train, max(places), OPTIMIZER_PARAMETERS,
                           {*makers, *raised})
        optimizers = _replaced(made, {
            call: _with_rate(call, rate) for call, rate in makers.values()})
        values = [rate.value for rate in rates]
        needed = {name for value in values for name in _names(value)}
        between = {name for line in self._lines[min(places):max(places)]
                   if line.node not in makers for name in targets_of(line.node)}
        if all(value.deep_equals(values[0]) for value in values) and not needed & between:
            return (values[0], cst.Name(variable),
                    self._slice(values[:1], train, min(places), RATE_PARAMETERS), optimizers)
        given = _CHOSEN_RATE
        while given in _bound(self._function):
            given += "_"
        statements = self._slice([*values, *tests, *raised], train, max(places), RATE_PARAMETERS,
                                 {*makers, *raised})
        return (cst.Name(given), cst.Name(variable), _replaced(statements, {
            line.body[0]: cst.Assign([cst.AssignTarget(cst.Name(given))], rate.value)
            for line, (_, rate) in makers.items()}), optimizers)

    def _raised(self, train: TrainOp) -> list[cst.SimpleStatementLine]:
        """Returns the lines that refuse what chooses no optimizer."""
        return [line.node for line in self._lines if isinstance(line.statement, cst.Raise)
                and any(one in self._conditions(train) for one, _ in line.around)]

    def _refusals(self, train: TrainOp, gone: set[cst.CSTNode]) -> set[cst.CSTNode]:
        """Returns those lines whose conditions decide about nothing else."""
        kept = [line for line in self._lines if line.node not in gone
                and not isinstance(line.statement, cst.Raise)]
        of_others = {statement for line in kept for statement, _ in line.around}
        return {line.node for line in self._lines if line.node in self._raised(train)
                and not of_others & {one for one, _ in line.around if one in self._conditions(
                    train)}}

    def _changed_gradients(self, train: TrainOp) -> tuple[tuple[cst.BaseStatement, ...], str]:
        """Returns the statements and the value of `transform_gradients`."""
        changed = train.changed_gradients
        if changed is None:
            return (), ""
        code = cst.Module([]).code_for_node
        nodes = {node: cst.parse_expression(text) for node, text in changed.replaced.items()}
        [result] = _replaced([changed.result], nodes)
        statements = list(_replaced(self._sliced(
            self._function.body, {*changed.lines}, train), nodes))
        if {"params"} & {name for node in (*statements, result) for name in _names(node)}:
            statements.insert(0, cst.parse_statement("params = self.params"))
        if not changed.is_pairs:
            return tuple(statements), f"list({code(result)})"
        statements.append(cst.parse_statement(
            "changed = {variable.ref(): gradient for gradient, variable in " + code(result) + "}"))
        return tuple(statements), "[changed.get(variable.ref()) for variable in variables]"

    def _place(self, line: Line) -> int:
        return next(index for index, one in enumerate(self._lines) if one.node is line.node)

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
        if "mode" in _assigned(self._function):
            self._problem(self._function, "it assigns `mode`, which its conditions depend on")
        for decorator in self._function.decorators:
            self._problem(decorator, "it has a decorator, whose effect the tool does not know")

    def _effects(self, gone: set[cst.CSTNode], train: TrainOp,
                 dropped: Iterable[cst.BaseExpression]) -> list[Problem]:
        """Returns what else the forward pass, and the code of the learning rate, do."""
        steps = [call for line in (*gone, *dropped)
                 for call in find_all(line, cst.Call)
                 if self._names.of_tensorflow(call.func) in STEP_CALLS]
        headers = [item for statement in train.updates for item in statement.items]
        uncalled = self._functions_of({*gone, *dropped})
        effects = Effects(self._names, [
            *(gone - self._chosen), *dropped, *steps, *headers, *uncalled])
        found = effects.check(
                self._function, [
                    *(argument.value for _, call in train.optimizers for argument in call.args),
                    *(one.test for one in self._conditions(train))])
        is_config_used = "config" in _names(
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
            if not any(_names(line) & makers for line in late):
                calls = {self._function: calls[self._function]}
        return [Problem(call, "TEE409", "the train_op does not run the updates of this "
                        "`batch_normalization`, which is not in UPDATE_OPS when it is read: in the "
                        "Estimator its averages do not move, in TF2 they do")
                for found in calls.values() for call in found]

    def _rate(self, optimizer: cst.Call) -> cst.Arg:
        named = [argument for argument in optimizer.args if argument.keyword is not None
                 and argument.keyword.value == "learning_rate"]
        first = [argument for argument in optimizer.args[:1] if argument.keyword is None]
        stars = [argument for argument in optimizer.args if argument.star]
        if stars or not (named or first):
            raise NotSplitError("its optimizer has no learning rate, or * arguments", optimizer)
        return (named or first)[0]

    def _slice(self, expressions: Sequence[cst.CSTNode], train: TrainOp, place: int,
               parameters: tuple[str, str],
               given: Iterable[cst.SimpleStatementLine] = ()) -> tuple[cst.BaseStatement, ...]:
        """Returns the statements that expressions of the optimizer need.

        Args:
            expressions: arguments of the optimizer, and what decides about it.
            train: the train_op.
            place: the index of the line that makes the optimizer.
            parameters: of the function that the statements are to stand in.
            given: lines that are among the statements.
        """
        bound = _bound(self._function)
        wanted = {name for expression in expressions for name in _names(expression)}
        given = {*given}
        chosen: set[cst.CSTNode] = {*given}
        is_growing = True
        while is_growing:
            new = [line for line in self._lines[:place] if line.node not in chosen
                   and targets_of(line.node) & wanted]
            for line in new:
                chosen.add(line.node)
                wanted |= _names(line.node)
                for statement, _ in line.around:
                    if isinstance(statement, cst.If) and train.in_training(statement.test) is None:
                        wanted |= _names(statement.test)
            is_growing = bool(new)
        defined = {name for line in self._lines if line.node in chosen
                   for name in targets_of(line.node)}
        others = {"features", "labels", "mode", "config"} | bound_otherwise(self._function)
        defined -= {name for line in given for name in targets_of(line)}
        self._own_used[parameters] |= wanted & self._own
        names = sorted((wanted & bound) - defined - {"params"} - self._own
                       | (wanted & others & bound))
        if names:
            self._problem(expressions[0], f"the arguments of its optimizer use {names}, which its "
                          "training step does not have: the tool follows lines `name = ...`")
            return ()
        self._check_parameters(expressions, chosen - given, wanted - bound, parameters)
        self._chosen |= chosen - given
        for node in dict.fromkeys(self._changes(wanted & bound, self._function, set())):
            self._problem(node, "it changes what the arguments of its optimizer are computed from")
        statements = self._sliced(self._function.body, chosen, train)
        calls = [call for node in (*(chosen - given), *expressions)
                 for call in find_all(node, cst.Call)]
        for call in calls:
            if self._names.of_tensorflow(call.func) in ("get_variable", "Variable"):
                self._problem(call, "an argument of its optimizer is a variable, which its "
                              "training step would create again: keep it in a class derived from "
                              "Trainer")
        if parameters is OPTIMIZER_PARAMETERS and any(
                self._names.of_tensorflow(call.func) in STEP_CALLS for call in calls):
            self._problem(expressions[0], "an argument of its optimizer other than the learning "
                          "rate depends on the step")
        return tuple(statements)

    def _check_parameters(self, expressions: Sequence[cst.CSTNode], chosen: set[cst.CSTNode],
                          free: set[str], parameters: tuple[str, str]) -> None:
        """Reports names that would mean something else in the function that is written."""
        [first, _] = parameters
        for name in sorted(free & set(parameters)):
            self._problem(expressions[0], f"the arguments of its optimizer use `{name}` of the "
                          "module, which is the name of a parameter of what is written: rename it")
        lines = [line for line in self._lines if line.node in chosen
                 and first in targets_of(line.node)]
        if parameters is OPTIMIZER_PARAMETERS:
            changed = lines
        else:
            own = [line for line in lines if not self._is_step(
                getattr(line.statement, "value", None))]
            steps = [call for node in (*chosen - {line.node for line in own}, *expressions)
                     for call in find_all(node, cst.Call) if self._is_step(call)]
            changed = own if len(steps) > len(lines) - len(own) else []
        for line in changed:
            self._problem(line.node, f"`{first}`, which the arguments of its optimizer need, is "
                          "the name of a parameter of what is written: rename it")

    def _is_step(self, node: cst.CSTNode | None) -> bool:
        return isinstance(node, cst.Call) and self._names.of_tensorflow(node.func) in STEP_CALLS

    def _changes(self, names: set[str], function: cst.FunctionDef,
                 seen: set[tuple[cst.FunctionDef, str]]) -> Iterator[cst.CSTNode]:
        """Yields what changes the objects of variables in place, also in functions they reach."""
        seen |= {(function, name) for name in names}
        aliases = {name for line in find_all(function.body, cst.Assign)
                   if isinstance(line.value, cst.Name)
                   and line.value.value in names for target in line.targets
                   for name in _names(target)}
        names = names | aliases
        for node in find_all(function.body, cst.Call, cst.AssignTarget, cst.AugAssign, cst.Del):
            if isinstance(node, cst.Call):
                words = dotted(node.func)
                if len(words) > 1 and words[-1] in CHANGING_METHODS and words[0] in names:
                    yield node
                for called, name in self._parameters(node, names):
                    if (called, name) not in seen:
                        yield from self._changes({name}, called, seen)
            else:
                target = getattr(node, "target")  # noqa: B009
                if isinstance(target, (cst.Subscript, cst.Attribute)) and _names(target) & names:
                    yield node

    def _parameters(self, call: cst.Call,
                    names: set[str]) -> Iterator[tuple[cst.FunctionDef, str]]:
        """Yields the functions of the module, with their parameters, that get variables."""
        words = dotted(call.func)[-1:]
        methods = [function for word in words for function in self._names.methods.get(word, ())]
        for function in (*methods, *(one for word in words
                                     for one in self._names.functions.get(word, ()))):
            given = [parameter.name.value for parameter in function.params.params]
            order = given[1:] if function in methods and given[:1] in (["self"], ["cls"]) else given
            for index, argument in enumerate(call.args):
                if isinstance(argument.value, cst.Name) and argument.value.value in names:
                    if argument.keyword is not None:
                        yield function, argument.keyword.value
                    elif index < len(order):
                        yield function, order[index]

    def _sliced(self, body: cst.BaseSuite, chosen: set[cst.CSTNode],
                train: TrainOp) -> list[Any]:
        """Returns the chosen statements, with the conditions that decide about them."""
        statements: list[Any] = []
        for statement in body.body:
            if statement in chosen:
                statements.append(statement)
            elif not any(holds(statement, line) for line in chosen):
                continue
            elif isinstance(statement, cst.If):
                statements += self._sliced_if(statement, chosen, train)
            elif isinstance(statement, cst.With) and all(
                    self._names.of_tensorflow(item.item.func) in (
                        "name_scope", "control_dependencies")
                    for item in statement.items if isinstance(item.item, cst.Call)):
                statements += self._sliced(statement.body, chosen, train)
            else:
                self._problem(statement, "the arguments of its optimizer are computed in a "
                              "statement of an unknown kind")
        return statements

    def _sliced_if(self, statement: cst.If, chosen: set[cst.CSTNode],
                   train: TrainOp) -> list[Any]:
        body = self._sliced(statement.body, chosen, train)
        orelse: list[Any] = []
        if isinstance(statement.orelse, cst.If):
            orelse = self._sliced_if(statement.orelse, chosen, train)
        elif statement.orelse is not None:
            orelse = self._sliced(statement.orelse.body, chosen, train)
        taken = train.in_training(statement.test)
        if taken is not None:
            return body if taken else orelse
        if not body and not orelse:
            return []
        empty = [cst.parse_statement("pass")]
        return [statement.with_changes(
            body=cst.IndentedBlock(body or empty),
            orelse=cst.Else(cst.IndentedBlock(orelse)) if orelse else None)]

    def _forward(self, gone: set[cst.CSTNode], train: TrainOp) -> cst.FunctionDef:
        forward = self._function.visit(_Forward(gone, set(train.updates)))
        assert isinstance(forward, cst.FunctionDef)
        return forward


def _with_rate(call: cst.Call, rate: cst.Arg) -> cst.Call:
    """Returns the call of an optimizer with the variable `learning_rate` as its rate."""
    return call.with_changes(args=[
        argument.with_changes(value=cst.Name(OPTIMIZER_PARAMETERS[0])) if argument is rate
        else argument for argument in call.args])


def _replaced(nodes: Iterable[Any], replacements: Mapping[cst.CSTNode, cst.CSTNode],
              ) -> tuple[Any, ...]:
    """Returns nodes with some below them replaced by others."""
    return tuple(node.visit(_Replace(replacements)) for node in nodes)


class _Replace(cst.CSTTransformer):
    def __init__(self, replacements: Mapping[cst.CSTNode, cst.CSTNode]) -> None:
        super().__init__()
        self._replacements = replacements

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._replacements

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        return self._replacements.get(original_node, updated_node)


def returns_specs(function: cst.FunctionDef) -> bool:
    """Whether a function itself, not a nested one, constructs a TPUEstimatorSpec."""
    of_inner = {call for node in find_all(function.body, cst.FunctionDef)
                for call in _specs(node)}
    return any(call not in of_inner for call in _specs(function))


def bound_names(function: cst.FunctionDef, but: cst.FunctionDef) -> set[str]:
    """Returns the parameters of a function and the names that it binds, except in another one."""
    return _bound(function.with_changes(body=function.body.deep_remove(but)))


def _is_of_forward(problem: Problem) -> bool:
    """Whether a problem concerns more than the training that was not understood anyway."""
    name = (dotted(problem.node.func) or ("",))[-1] if isinstance(problem.node, cst.Call) else ""
    return not name.endswith("Optimizer") and name not in (
        "minimize", "compute_gradients", "apply_gradients", "control_dependencies",
        "get_collection", "group")


def _specs(function: cst.FunctionDef) -> Iterator[cst.Call]:
    for call in find_all(function.body, cst.Call):
        if dotted(call.func)[-1:] == (SPEC,):
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


def names_in(node: cst.CSTNode, but: Iterable[cst.CSTNode] = ()) -> set[str]:
    """Returns every name in a node, but not in some nodes below it."""
    return _names(node, but)


def _names(node: cst.CSTNode, but: Iterable[cst.CSTNode] = ()) -> set[str]:
    """Returns the names in a node, but not those of attributes and keywords, nor in some nodes."""
    if node in but:
        return set()
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, cst.Attribute):
        return _names(node.value, but)
    if isinstance(node, cst.Arg):
        return _names(node.value, but)
    return {name for child in node.children for name in _names(child, but)}


def _bound(function: cst.FunctionDef) -> set[str]:
    """Returns the parameters of a function, and every name that it binds."""
    return {parameter.name.value for parameter in function.params.params} | _assigned(function)


def _assigned(function: cst.FunctionDef) -> set[str]:
    """Returns every name that a function binds, without its parameters."""
    names: set[str] = set()
    for target in find_all(function.body, cst.AssignTarget, cst.AugAssign, cst.AnnAssign):
        bound = getattr(target, "target")  # noqa: B009
        if not isinstance(bound, (cst.Attribute, cst.Subscript)):
            names |= _names(bound)
    return names | bound_otherwise(function)


def _gone(function: cst.FunctionDef, lines: list[Line], train: TrainOp,
          dropped: Iterable[cst.BaseExpression],
          known: Iterable[cst.CSTNode] = ()) -> set[cst.CSTNode]:
    """Returns the lines that only training, or a dropped expression, needs."""
    dropped = set(dropped)
    headers = {item for statement in train.updates for item in statement.items}
    gone: set[cst.CSTNode] = {*train.lines, *known}
    wanted = {name for node in (*gone, *dropped) for name in _names(node)}
    is_growing = True
    while is_growing:
        new = [line.node for line in lines if line.node not in gone
               and (targets := targets_of(line.node)) and targets <= wanted
               and not _uses_elsewhere(function, lines, {*gone, *dropped, *headers}, targets)]
        is_growing = bool(new)
        gone.update(new)
        wanted |= {name for line in new for name in _names(line)}
    # A line of the train_op whose variable the forward pass uses too stays there.
    kept = [line for line in train.lines if (targets := targets_of(line)) and _uses_elsewhere(
        function, lines, {*gone, *dropped, *headers}, targets)]
    return gone - set(kept)


def _uses_elsewhere(function: cst.FunctionDef, lines: list[Line], but: set[cst.CSTNode],
                    targets: set[str]) -> bool:
    """Whether anything but the assignments of variables themselves uses them."""
    own = {line.node for line in lines
           if targets_of(line.node) and targets_of(line.node) <= targets}
    return bool(_names(function.body, but | own) & targets)


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
        if dotted(original_node.func)[-1:] != (SPEC,):
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
