# SPDX-License-Identifier: Apache-2.0
"""Takes what the optimizer of a model_fn needs out of it, as the bodies of two functions.

`dense_learning_rate` returns the learning rate of a step, and `make_optimizer` the optimizer, which
conditions may choose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import libcst as cst

from tpu_estimator_embedding.migration.assignments import (
    Line,
    bound_otherwise,
    parameters_and_variables,
    targets_of,
)
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.known_effects import CHANGING_METHODS
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    dotted,
    find_all,
    holds,
    last_word,
    node_target,
    replaced,
    variables_in,
)
from tpu_estimator_embedding.migration.train_op import STEP_CALLS, TrainOp

RATE_PARAMETERS, OPTIMIZER_PARAMETERS = ("global_step", "params"), ("learning_rate", "params")
_CHOSEN_RATE = "dense_rate"


class FunctionBody(NamedTuple):
    """The body of one of the functions.

    Attributes:
        value: what it returns.
        statements: those that the value needs, in order.
        own_parameters: of the model_fn, which the function takes too.
        lines: of the model_fn, which are among the statements.
    """

    value: cst.BaseExpression
    statements: tuple[cst.BaseStatement, ...] = ()
    own_parameters: tuple[str, ...] = ()
    lines: frozenset[cst.CSTNode] = frozenset()


class OptimizerFunctions(NamedTuple):
    """The bodies of both functions."""

    rate: FunctionBody
    optimizer: FunctionBody


class _Maker(NamedTuple):
    """A line that makes an optimizer, the call there, and its argument with the learning rate."""

    line: Line
    call: cst.Call
    rate: cst.Arg


class _Needed(NamedTuple):
    """Lines, and every variable that they and what they are needed for read."""

    lines: frozenset[cst.CSTNode]
    variables: frozenset[str]


class OptimizerSlice:
    """What the train_op of a model_fn has as its optimizer.

    Args:
        function: the model_fn.
        lines: its lines.
        train: the train_op.
        names: of the module.
        own: parameters of the model_fn, in addition to those of every model_fn.

    Attributes:
        train: the train_op.
        conditions: those, except on `mode`, that decide about the optimizer.
        raised: the lines that refuse what chooses no optimizer.
        problems: what is not known in full.
    """

    def __init__(self, function: cst.FunctionDef, lines: Sequence[Line], train: TrainOp,
                 names: Names, own: Set[str]) -> None:
        self._function, self._lines, self.train = function, lines, train
        self._names, self._own = names, own
        self._bound = parameters_and_variables(function)
        self.problems: list[Problem] = []
        self.conditions = list(dict.fromkeys(
            statement for line, _ in train.optimizers for statement, _ in line.around
            if isinstance(statement, cst.If) and train.in_training(statement.test) is None))
        self.raised = [line.node for line in lines if isinstance(line.statement, cst.Raise)
                       and any(one in self.conditions for one, _ in line.around)]

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self.problems.append(Problem(node, "TEE402", message))

    def functions(self, rates: Sequence[cst.Arg]) -> OptimizerFunctions:
        """Returns the bodies of both functions.

        Args:
            rates: the argument with the learning rate of each optimizer.
        """
        makers = [_Maker(line, call, rate) for (line, call), rate in zip(
            self.train.optimizers, rates, strict=True)]
        return self._of_choice(makers) if len(makers) > 1 or self.conditions else (
            self._of_one(makers[0]))

    def _of_one(self, maker: _Maker) -> OptimizerFunctions:
        """Returns the functions of the only optimizer."""
        place = self._place(maker)
        others = [argument.value for argument in maker.call.args if argument is not maker.rate]
        return OptimizerFunctions(
            self._body(maker.rate.value, [maker.rate.value], place, RATE_PARAMETERS),
            self._body(_with_rate(maker), others, place, OPTIMIZER_PARAMETERS))

    def _of_choice(self, makers: Sequence[_Maker]) -> OptimizerFunctions:
        """Returns the functions of optimizers that conditions choose from."""
        names = {name for one in makers for name in targets_of(one.line.node)}
        if len(names) != 1:
            self._problem(makers[0].call, "conditions choose an optimizer that has no variable: "
                          "assign it to one")
            return OptimizerFunctions(
                FunctionBody(makers[0].rate.value), FunctionBody(makers[0].call))
        others = [argument.value for one in makers for argument in one.call.args
                  if argument is not one.rate]
        [name] = names
        made = self._body_of_choice(cst.Name(name), others, makers, OPTIMIZER_PARAMETERS)
        optimizer = made._replace(statements=replaced(made.statements, {
            one.call: _with_rate(one) for one in makers}))
        return OptimizerFunctions(self._rate_of_choice(makers), optimizer)

    def _rate_of_choice(self, makers: Sequence[_Maker]) -> FunctionBody:
        """Returns the function of one rate for all optimizers, or of one for each."""
        places = [self._place(one) for one in makers]
        values = [one.rate.value for one in makers]
        needed = {name for value in values for name in variables_in(value)}
        made = {one.line.node for one in makers}
        between = {name for line in self._lines[min(places):max(places)]
                   if line.node not in made for name in targets_of(line.node)}
        if all(value.deep_equals(values[0]) for value in values) and not needed & between:
            return self._body(values[0], values[:1], min(places), RATE_PARAMETERS)
        name = _CHOSEN_RATE
        while name in self._bound:
            name += "_"
        body = self._body_of_choice(cst.Name(name), values, makers, RATE_PARAMETERS)
        return body._replace(statements=replaced(body.statements, {
            one.line.node.body[0]: cst.Assign([cst.AssignTarget(cst.Name(name))], one.rate.value)
            for one in makers}))

    def _body_of_choice(self, value: cst.BaseExpression, needed: Sequence[cst.CSTNode],
                        makers: Sequence[_Maker], parameters: tuple[str, str]) -> FunctionBody:
        """Returns the body of a function that has the conditions and the lines of all makers."""
        return self._body(
            value, [*needed, *(one.test for one in self.conditions), *self.raised],
            max(map(self._place, makers)), parameters,
            frozenset((*(one.line.node for one in makers), *self.raised)))

    def _place(self, maker: _Maker) -> int:
        return next(index for index, one in enumerate(self._lines)
                    if one.node is maker.line.node)

    def _body(self, value: cst.BaseExpression, expressions: Sequence[cst.CSTNode], place: int,
              parameters: tuple[str, str],
              given: frozenset[cst.SimpleStatementLine] = frozenset()) -> FunctionBody:
        """Returns the body of a function with the statements that expressions need.

        Args:
            value: what it returns.
            expressions: arguments of the optimizer, and what decides about it.
            place: the index of the line that makes the optimizer.
            parameters: of the function.
            given: lines that are among the statements.
        """
        chosen, wanted = self._needed(expressions, place, given)
        lines = chosen - given
        own = tuple(sorted(wanted & self._own))
        if names := self._unknown(lines, wanted, given):
            self._problem(expressions[0], f"the arguments of its optimizer use {names}, which its "
                          "training step does not have: the tool follows lines `name = ...`")
            return FunctionBody(value, own_parameters=own)
        self._check_parameters(expressions, lines, wanted - self._bound, parameters)
        for node in dict.fromkeys(self._changes({*wanted} & self._bound, self._function, set())):
            self._problem(node, "it changes what the arguments of its optimizer are computed from")
        statements = self.statements(chosen)
        self._check_calls(expressions, lines, parameters)
        return FunctionBody(value, tuple(statements), own, lines)

    def _needed(self, expressions: Sequence[cst.CSTNode], place: int,
                given: frozenset[cst.SimpleStatementLine]) -> _Needed:
        """Returns given lines and those above a place that they and expressions need."""
        wanted = {name for expression in expressions for name in variables_in(expression)}
        chosen: set[cst.CSTNode] = {*given}
        is_growing = True
        while is_growing:
            new = [line for line in self._lines[:place] if line.node not in chosen
                   and targets_of(line.node) & wanted]
            for line in new:
                chosen.add(line.node)
                wanted |= variables_in(line.node)
                for statement, _ in line.around:
                    if isinstance(statement, cst.If) and (
                            self.train.in_training(statement.test) is None):
                        wanted |= variables_in(statement.test)
            is_growing = bool(new)
        return _Needed(frozenset(chosen), frozenset(wanted))

    def _unknown(self, lines: Set[cst.CSTNode], wanted: Set[str],
                 given: Set[cst.SimpleStatementLine]) -> list[str]:
        """Returns wanted variables of the model_fn that lines do not give a value."""
        others = {"features", "labels", "mode", "config"} | bound_otherwise(self._function)
        defined = {name for line in self._lines if line.node in lines
                   for name in targets_of(line.node)}
        defined -= {name for line in given for name in targets_of(line)}
        return sorted((wanted & self._bound) - defined - {"params"} - self._own
                      | (wanted & others & self._bound))

    def _check_parameters(self, expressions: Sequence[cst.CSTNode], chosen: Set[cst.CSTNode],
                          free: Set[str], parameters: tuple[str, str]) -> None:
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

    def _check_calls(self, expressions: Sequence[cst.CSTNode], lines: Set[cst.CSTNode],
                     parameters: tuple[str, str]) -> None:
        """Reports variables, and what depends on the step but is no learning rate."""
        calls = [call for node in (*lines, *expressions) for call in find_all(node, cst.Call)]
        for call in calls:
            if self._names.of_tensorflow(call.func) in ("get_variable", "Variable"):
                self._problem(call, "an argument of its optimizer is a variable, which its "
                              "training step would create again: keep it in a class derived from "
                              "Trainer")
        if parameters is OPTIMIZER_PARAMETERS and any(map(self._is_step, calls)):
            self._problem(expressions[0], "an argument of its optimizer other than the learning "
                          "rate depends on the step")

    def _is_step(self, node: cst.CSTNode | None) -> bool:
        return isinstance(node, cst.Call) and self._names.of_tensorflow(node.func) in STEP_CALLS

    def _changes(self, names: set[str], function: cst.FunctionDef,
                 seen: set[tuple[cst.FunctionDef, str]]) -> Iterator[cst.CSTNode]:
        """Yields what changes the objects of variables in place, also in functions they reach."""
        seen |= {(function, name) for name in names}
        aliases = {name for line in find_all(function.body, cst.Assign)
                   if isinstance(line.value, cst.Name)
                   and line.value.value in names for target in line.targets
                   for name in variables_in(target)}
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
                target = node_target(node)
                if isinstance(target, (cst.Subscript, cst.Attribute)) and (
                        variables_in(target) & names):
                    yield node

    def _parameters(self, call: cst.Call,
                    names: set[str]) -> Iterator[tuple[cst.FunctionDef, str]]:
        """Yields the functions of the module, with their parameters, that get variables."""
        name = last_word(call.func)
        methods = self._names.methods.get(name, [])
        for function in (*methods, *self._names.functions.get(name, ())):
            given = [parameter.name.value for parameter in function.params.params]
            order = given[1:] if function in methods and given[:1] in (["self"], ["cls"]) else given
            for index, argument in enumerate(call.args):
                if isinstance(argument.value, cst.Name) and argument.value.value in names:
                    if argument.keyword is not None:
                        yield function, argument.keyword.value
                    elif index < len(order):
                        yield function, order[index]

    def statements(self, chosen: Set[cst.CSTNode]) -> list[Any]:
        """Returns the chosen lines, with the conditions that decide about them."""
        return self._sliced(self._function.body, chosen)

    def _sliced(self, body: cst.BaseSuite, chosen: Set[cst.CSTNode]) -> list[Any]:
        statements: list[Any] = []
        for statement in body.body:
            if statement in chosen:
                statements.append(statement)
            elif not any(holds(statement, line) for line in chosen):
                continue
            elif isinstance(statement, cst.If):
                statements += self._sliced_if(statement, chosen)
            elif isinstance(statement, cst.With) and all(
                    self._names.of_tensorflow(item.item.func) in (
                        "name_scope", "control_dependencies")
                    for item in statement.items if isinstance(item.item, cst.Call)):
                statements += self._sliced(statement.body, chosen)
            else:
                self._problem(statement, "the arguments of its optimizer are computed in a "
                              "statement of an unknown kind")
        return statements

    def _sliced_if(self, statement: cst.If, chosen: Set[cst.CSTNode]) -> list[Any]:
        body = self._sliced(statement.body, chosen)
        orelse: list[Any] = []
        if isinstance(statement.orelse, cst.If):
            orelse = self._sliced_if(statement.orelse, chosen)
        elif statement.orelse is not None:
            orelse = self._sliced(statement.orelse.body, chosen)
        taken = self.train.in_training(statement.test)
        if taken is not None:
            return body if taken else orelse
        if not body and not orelse:
            return []
        empty = [cst.parse_statement("pass")]
        return [statement.with_changes(
            body=cst.IndentedBlock(body or empty),
            orelse=cst.Else(cst.IndentedBlock(orelse)) if orelse else None)]


def _with_rate(maker: _Maker) -> cst.Call:
    """Returns the call of an optimizer with the variable `learning_rate` as its rate."""
    return maker.call.with_changes(args=[
        argument.with_changes(value=cst.Name(OPTIMIZER_PARAMETERS[0]))
        if argument is maker.rate else argument for argument in maker.call.args])
