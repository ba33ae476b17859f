# SPDX-License-Identifier: Apache-2.0
"""Recognizes a train_op: an optimizer of tf.train that minimizes the loss of the spec, and no more.

The world is closed: each line that takes part is one of the shapes below, or a problem.

    step = tf.train.get_global_step()
    optimizer = tf.train.AdamOptimizer(rate)
    optimizer = tf.tpu.CrossShardOptimizer(optimizer)        # under any condition
    with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
        train_op = optimizer.minimize(loss, global_step=step)
    train_op = optimizer.apply_gradients(optimizer.compute_gradients(loss), global_step=step)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import gradient_chain, train_op_advice
from tpu_estimator_embedding.migration.assignments import (
    Line,
    binds,
    bound_otherwise,
    changed_in,
    innermost,
)
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.gradient_chain import ChangedGradients
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    called_name,
    dotted,
    find_all,
    find_names,
    holds,
    shown,
    text_of,
)
from tpu_estimator_embedding.migration.train_op_advice import GRADIENTS, OPTIMIZERS

STEP_CALLS = ("train.get_global_step", "train.get_or_create_global_step")
_MINIMIZE = ("loss", "global_step", "var_list", "gate_gradients", "aggregation_method",
             "colocate_gradients_with_ops", "name", "grad_loss")
_COMPUTE = ("loss", "var_list", "gate_gradients", "aggregation_method",
            "colocate_gradients_with_ops", "grad_loss")
_APPLY = ("grads_and_vars", "global_step", "name")
# Gates order the ops of gradients, whose values stay the same.
_WITHOUT_EFFECT = ("colocate_gradients_with_ops", "gate_gradients", "name")
_IN_TRANSFORM_GRADIENTS = {
    "var_list": "return None for the gradients of other variables",
    "grad_loss": "multiply the gradients by it",
}


class MadeOptimizer(NamedTuple):
    """A call that makes an optimizer, and its line."""

    line: Line
    call: cst.Call


class _Value(NamedTuple):
    """The value of a variable, and the line that assigns it."""

    expression: cst.BaseExpression
    line: Line


class TrainOp:
    """A train_op, followed back from the spec that has it.

    Args:
        function: the model_fn.
        lines: its lines.
        spec_line: the line with the spec.
        train_op, loss: of the spec.
        names: of the module.

    Attributes:
        lines: the lines that only it needs.
        optimizers: of tf.train that the train_op may have; several where a condition chooses one.
        changed_gradients: how gradients are changed before they are applied; None if they are not.
        updates: the `with` statements on UPDATE_OPS that its lines have around them.
        updates_read: the index of the line before which UPDATE_OPS is read that the train_op runs;
            None if it runs none.
        problems: what is not known in full.
    """

    def __init__(self, function: cst.FunctionDef, lines: list[Line], spec_line: Line,
                 train_op: cst.BaseExpression, loss: cst.BaseExpression | None,
                 names: Names) -> None:
        self._function, self._odd = function, bound_otherwise(function)
        self._all, self._spec_line, self._loss, self._names = lines, spec_line, loss, names
        self._place = {line.node: index for index, line in enumerate(lines)}
        self.lines: list[cst.SimpleStatementLine] = []
        self.optimizers: list[MadeOptimizer] = []
        self.changed_gradients: ChangedGradients | None = None
        self.updates: list[cst.With] = []
        self._read_at: dict[cst.CSTNode, int] = {}  # statement of `updates` -> `updates_read`
        self.grouped: list[cst.Call] = []
        self._step_lines: list[Line] = []  # which compute or apply gradients
        self.problems: list[Problem] = []
        self._check_place(spec_line, "the spec with the train_op")
        self._follow(train_op, spec_line)
        self.updates_read = min([
            *(self._read_at[statement] for line in self._step_lines for statement, _ in line.around
              if statement in self._read_at),
            *(self._read_at[call] for call in self.grouped)], default=None)

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self.problems.append(Problem(node, "TEE402", message))

    def _definitions(self, name: str) -> list[Line]:
        return [line for line in self._all if binds(line.node, name)]

    def _check_bound_by_lines(self, node: cst.Name, what: str) -> None:
        if node.value in self._odd:
            self._problem(node, f"`{node.value}`, {what}, is bound by a statement other than "
                          f"`{node.value} = ...`")

    def _only_definition(self, node: cst.Name, what: str,
                         among: list[Line] | None = None) -> _Value | None:
        """Returns the value of a variable that is assigned once, by a plain assignment.

        Args:
            node: the variable.
            what: it is.
            among: the lines that count; None means all.
        """
        self._check_bound_by_lines(node, what)
        found = self._definitions(node.value) if among is None else among
        for line in found if len(found) > 1 else ():
            if _is_none(line.statement):
                self.lines.append(line.node)
        found = [line for line in found if line.node not in self.lines or len(found) == 1]
        if not found:
            self._problem(node, f"`{node.value}`, {what}, is not assigned in model_fn: move the "
                          "code that makes it into model_fn")
            return None
        if len(found) != 1:
            for line in found[1:]:
                self._problem(line.node, f"`{node.value}`, {what}, gets a second value here: "
                              f"{train_op_advice.on_second_value(line, self._names)}")
            return None
        [line] = found
        statement = line.statement
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or not isinstance(
                statement.targets[0].target, cst.Name):
            self._problem(line.node, f"`{node.value}`, {what}, comes from a statement "
                          f"other than `{node.value} = ...`")
            return None
        self._take(line, what)
        return _Value(statement.value, line)

    def _take(self, line: Line, what: str, *, conditions: bool = False) -> None:
        if line.node not in self.lines:
            self.lines.append(line.node)
            self._check_place(line, what, conditions=conditions)

    def _check_place(self, line: Line, what: str, *, conditions: bool = False) -> None:
        """Reports what decides whether, how often or after what a line runs.

        Args:
            line: the line.
            what: of the train_op stands there.
            conditions: whether conditions that Python decides are carried over.
        """
        for statement, is_else in line.around:
            if isinstance(statement, cst.With) and self._is_harmless(statement):
                continue
            if isinstance(statement, cst.If):
                taken = self.in_training(statement.test)
                if taken is not None and taken != is_else or taken is None and conditions:
                    continue
            text = text_of(statement).partition(":")[0][:60]
            self._problem(statement, f"`{text}` controls {what}: only conditions on `mode`, name "
                          "scopes and control dependencies on UPDATE_OPS are known")

    def _is_harmless(self, statement: cst.With) -> bool:
        for item in statement.items:
            if not isinstance(item.item, cst.Call):
                return False
            name = self._names.of_tensorflow(item.item.func)
            if name == "control_dependencies" and len(item.item.args) == 1 and self._is_update_ops(
                    read := item.item.args[0].value):
                self.updates.append(statement)
                self._read_at[statement] = next(
                    self._place[line.node] for line in self._all
                    if any(one is statement for one, _ in line.around)
                    or isinstance(read, cst.Name) and binds(line.node, read.value))
            elif name != "name_scope":
                return False
        return True

    def _is_update_ops(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is the collection of update ops."""
        if isinstance(node, cst.Name):
            found = self._definitions(node.value)
            if len(found) == 1 and isinstance(found[0].statement, cst.Assign) and len(
                    found[0].statement.targets) == 1 and self._is_update_ops(
                        found[0].statement.value):
                if found[0].node not in self.lines:
                    self.lines.append(found[0].node)
                return True
            return False
        return (isinstance(node, cst.Call) and bool(node.args)
                and not any(one.star for one in node.args)
                and self._names.of_tensorflow(node.func) == "get_collection"
                and self._is_without_scope(node)
                and (self._names.of_tensorflow(node.args[0].value) == "GraphKeys.UPDATE_OPS"
                     or getattr(node.args[0].value, "raw_value", "") == "update_ops"))

    def _is_without_scope(self, call: cst.Call) -> bool:
        """Whether a call reads a whole collection, or model_fn makes nothing for UPDATE_OPS."""
        scopes = [one.value for one in call.args[1:]]
        if all(text_of(one) in ("None", "''", '""') for one in scopes):
            return True
        if not self._makes_updates():
            return len(scopes) == 1
        self._problem(call, f"`{shown(call)}` runs the updates of one scope, but TF2 runs all: "
                      "delete the scope if it contains every normalization")
        return True

    def _makes_updates(self) -> bool:
        """Whether a layer of the module may have updates, as far as its calls show."""
        functions = [self._function, *(one for found in (
            *self._names.functions.values(), *self._names.methods.values()) for one in found)]
        return any(called_name(call).lower().startswith(("batch_norm", "batchnorm"))
                   for function in functions for call in find_all(function, cst.Call))

    def in_training(self, test: cst.BaseExpression) -> bool | None:
        """Returns whether a condition holds in mode TRAIN; None if it depends on anything else."""
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            value = self.in_training(test.expression)
            return None if value is None else not value
        if isinstance(test, cst.Name):
            found = self._definitions(test.value) if test.value not in self._odd else []
            statement = found[0].statement if len(found) == 1 else None
            return self.in_training(statement.value) if isinstance(
                statement, cst.Assign) and not found[0].around else None
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
            return None
        operator, other = test.comparisons[0].operator, test.comparisons[0].comparator
        if not isinstance(test.left, cst.Name) or test.left.value != "mode":
            return None
        if isinstance(operator, (cst.In, cst.NotIn)) and isinstance(
                other, (cst.Tuple, cst.List, cst.Set)):
            modes = [_mode(element.value) for element in other.elements]
        else:
            modes = [_mode(other)]
        if None in modes:
            return None
        if isinstance(operator, (cst.Equal, cst.In)):
            return "TRAIN" in modes
        return "TRAIN" not in modes if isinstance(operator, (cst.NotEqual, cst.NotIn)) else None

    def _follow(self, node: cst.BaseExpression, line: Line) -> None:
        if isinstance(node, cst.Name):
            found = self._last_group(node) or self._only_definition(node, "the train_op")
            if found:
                self._follow(*found)
            return
        method, optimizer = "", node
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            method, optimizer = node.func.attr.value, node.func.value
        if isinstance(node, cst.Call) and self._names.of_tensorflow(node.func) == "group":
            self._group(node, line)
            return
        self._step_lines.append(line)
        if isinstance(node, cst.Call) and method == "minimize":
            given = self._arguments(node, _MINIMIZE, ("loss", "global_step"))
            self._minimized(given.get("loss"), node, line)
        elif isinstance(node, cst.Call) and method == "apply_gradients":
            given = self._arguments(node, _APPLY, ("grads_and_vars", "global_step"))
            self._gradients(given.get("grads_and_vars"), optimizer, node)
        else:
            name = node.func.value if isinstance(node, cst.Call) and isinstance(
                node.func, cst.Name) else ""
            self._report_changes(function.body for function in self._names.functions.get(name, ()))
            self._problem(node, f"the train_op is `{shown(node)}`: the tool knows "
                          "`optimizer.minimize(loss, global_step)` and unmodified pairs of "
                          "`compute_gradients` and `apply_gradients`; "
                          f"{train_op_advice.on_train_op(node, self._names)}")
            return
        self._step(given.get("global_step"), node)
        self._optimizer(optimizer, line)

    def _group(self, call: cst.Call, line: Line) -> None:
        """Follows the one train_op in a group, whose other ops are the UPDATE_OPS."""
        steps: list[cst.BaseExpression] = []
        for value in self._grouped(call):
            if self._is_update_ops(value):
                self._read_at[call] = min(self._read_at.get(call, len(self._all)),
                                          self._place_of_read(value, line))
                self.grouped.append(call)
            else:
                steps.append(value)
        if len(steps) == 1 and isinstance(steps[0], cst.Name):
            found = self._before(steps[0], line)
            if found:
                self._follow(*found)
        elif len(steps) == 1:
            self._follow(steps[0], line)
        else:
            self._problem(call, f"`{shown(call)}` groups {len(steps)} ops other than UPDATE_OPS, "
                          "and the tool follows one train_op: delete the others; a second "
                          "optimizer, moving averages and counters belong in `train_step` of a "
                          "class derived from Trainer, as the page `training` shows")

    def _grouped(self, call: cst.Call) -> list[cst.BaseExpression]:
        """Returns the ops that `tf.group` joins, with those of groups and lists in it."""
        found: list[cst.BaseExpression] = []
        todo = [argument.value for argument in reversed(call.args)
                if argument.keyword is None or argument.keyword.value != "name"]
        while todo:
            value = todo.pop()
            if isinstance(value, (cst.List, cst.Tuple)):
                todo += [one.value for one in reversed(value.elements)]
            elif isinstance(value, cst.BinaryOperation) and isinstance(value.operator, cst.Add):
                todo += [value.right, value.left]
            elif isinstance(value, cst.Call) and self._names.of_tensorflow(value.func) == "group":
                todo += [argument.value for argument in reversed(value.args)
                         if argument.keyword is None]
            else:
                found.append(value)
        return found

    def _before(self, node: cst.Name, line: Line) -> _Value | None:
        """Returns the value of a variable above a line that may give it another one."""
        earlier = [one for one in self._definitions(node.value)
                   if self._place[one.node] < self._place[line.node]]
        return self._only_definition(node, "the train_op", earlier)

    def _place_of_read(self, read: cst.BaseExpression, line: Line) -> int:
        """Returns the index of the line that reads UPDATE_OPS."""
        if isinstance(read, cst.Name):
            return min((self._place[one.node] for one in self._definitions(read.value)),
                       default=self._place[line.node])
        return self._place[line.node]

    def _last_group(self, node: cst.Name) -> _Value | None:
        """Returns the last value of a variable where that groups an earlier one of it."""
        found = self._definitions(node.value)
        statement = found[-1].statement if len(found) > 1 else None
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or not (
                isinstance(statement.value, cst.Call) and isinstance(
                    statement.targets[0].target, cst.Name)
                and self._names.of_tensorflow(statement.value.func) == "group"
                and find_names(statement.value, node.value)):
            return None
        self._check_bound_by_lines(node, "the train_op")
        self._take(found[-1], "the train_op")
        return _Value(statement.value, found[-1])

    def _arguments(self, call: cst.Call, order: tuple[str, ...],
                   known: tuple[str, ...]) -> dict[str, cst.BaseExpression]:
        given = {}
        for index, argument in enumerate(call.args):
            name = argument.keyword.value if argument.keyword else (
                order[index] if index < len(order) else "*")
            if name == "var_list" and not argument.star and self._is_all_variables(
                    argument.value, call):
                continue
            if argument.star or name not in (*known, *_WITHOUT_EFFECT) and not matchers.matches(
                    argument.value, matchers.Name("None")):
                instead = _IN_TRANSFORM_GRADIENTS.get(name)
                advice = "delete it" + (
                    f"; {instead} in `transform_gradients` of a class derived from Trainer"
                    if instead else "")
                self._problem(argument, f"the argument `{shown(argument)}` of "
                              f"`{shown(call.func)}`: {advice}")
            elif name in known:
                given[name] = argument.value
        return given

    def _is_all_variables(self, node: cst.BaseExpression, call: cst.Call) -> bool:
        """Whether an expression has all trainable variables that the loss depends on."""
        place = next((self._place[one.node] for one in self._all if holds(one.node, call)), 0)
        if isinstance(node, cst.Name):
            found = [one for one in self._definitions(node.value)
                     if self._place[one.node] < place]  # `grads, tvars = zip(*pairs)` may follow
            if len(found) != 1 or node.value in self._odd or not isinstance(
                    found[0].statement, cst.Assign) or not isinstance(
                        found[0].statement.targets[0].target, cst.Name):
                return False
            if self._changes_of(node.value):
                return False
            place, node = self._place[found[0].node], found[0].statement.value
            if found[0].node not in self.lines:
                self.lines.append(found[0].node)
        is_all = isinstance(node, cst.Call) and self._names.of_tensorflow(node.func) in (
            "trainable_variables", "get_collection") and (
                not node.args if self._names.of_tensorflow(node.func) == "trainable_variables"
                else len(node.args) == 1 and self._names.of_tensorflow(
                    node.args[0].value) == "GraphKeys.TRAINABLE_VARIABLES")
        # Variables that are made below the loss have no gradient.
        made = [self._place[one.node] for one in self._definitions(getattr(
            self._loss, "value", ""))]
        return is_all and bool(made) and max(made) < place

    def _changes_of(self, name: str) -> bool:
        """Whether an object may be changed in place, by the forms of its uses."""
        return any(isinstance(innermost(one), cst.Name) and getattr(
            innermost(one), "value", "") == name for one in changed_in(self._function.body))

    def _minimized(self, loss: cst.BaseExpression | None, node: cst.CSTNode, line: Line) -> None:
        if loss is None:
            self._problem(node, "it minimizes no loss that the tool can follow")
        elif not isinstance(loss, cst.Name) or not isinstance(self._loss, cst.Name) or (
                loss.value != self._loss.value):
            other = shown(self._loss) if self._loss is not None else "nothing"
            self._problem(loss, f"`{shown(loss)}` is minimized, and the loss of the spec is "
                          f"`{other}`: give both the same variable")
        else:
            self._check_bound_by_lines(loss, "the loss")
            start, end = (self._place[one.node] for one in (line, self._spec_line))
            for later in self._definitions(loss.value):
                if start <= self._place[later.node] <= end and later.node is not line.node:
                    self._problem(later.node, f"`{loss.value}` is assigned again between the "
                                  "train_op and the spec")

    def _gradients(self, node: cst.BaseExpression | None, optimizer: cst.BaseExpression,
                   call: cst.Call) -> None:
        line: Line | None = next((one for one in self._all if holds(one.node, call)), None)
        if node is not None and line is not None and self._is_changed(node, line, optimizer):
            return
        if isinstance(node, cst.Name):
            applied = node
            found = self._only_definition(node, "the gradients")
            if not found:
                return
            node, line = found
            self._check_unchanged(applied, line)
        if _is_compute(node):
            self._computed(node, optimizer, line)
            return
        self._report_changes(line.node for line in self._all)
        self._problem(node or call, f"the gradients are `{shown(node or call)}`: only the result "
                      f"of `compute_gradients`, unmodified or clipped, is known; {GRADIENTS}")

    def _computed(self, node: cst.CSTNode | None, optimizer: cst.BaseExpression,
                  line: Line | None) -> None:
        """Checks a call of `compute_gradients` by the optimizer that applies them."""
        assert isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute)
        if not node.func.value.deep_equals(optimizer):
            self._problem(node, "the gradients are computed by another optimizer than the one "
                          "that applies them")
        given = self._arguments(node, _COMPUTE, ("loss",))
        if line is not None:
            self._step_lines.append(line)
            self._minimized(given.get("loss"), node, line)

    def _is_changed(self, node: cst.BaseExpression, line: Line,
                    optimizer: cst.BaseExpression) -> bool:
        """Follows gradients that known functions change; False if there are others."""
        chain = gradient_chain.follow(
            node, self._all[:self._place[line.node]], self._names, self._function, line,
            self.in_training)
        if chain is None or self._odd & chain.names:
            return False
        if chain.other_uses:
            for use in chain.other_uses:
                self._problem(use, f"`{shown(use)}` is made of the gradients, and is used here as "
                              "well: delete this use; `transform_gradients` of a class derived "
                              "from Trainer has the gradients in TF2")
            return True
        origin = chain.origin
        if isinstance(origin.func, cst.Attribute) and origin.func.attr.value == (
                "compute_gradients"):
            self._computed(origin, optimizer, chain.origin_line)
        else:
            given = self._arguments(origin, ("ys", "xs"), ("ys", "xs"))
            if not self._is_all_variables(given.get("xs", origin), origin):
                return False
            self._step_lines.append(chain.origin_line)
            self._minimized(given.get("ys"), origin, chain.origin_line)
        for one in chain.lines:
            self._take(one, "the gradients", conditions=one is not chain.origin_line)
        self.changed_gradients = chain.changed
        return True

    def _report_changes(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Reports the functions that usually change gradients, at their lines."""
        for node in nodes:
            for call in find_all(node, cst.Call):
                name = self._names.of_tensorflow(call.func)
                if name in ("gradients", "IndexedSlices") or name.startswith("clip_by"):
                    self._problem(call, f"`{name}` makes or changes gradients: {GRADIENTS}")

    def _check_unchanged(self, applied: cst.Name, definition: Line) -> None:
        """Reports other uses of a list of gradients, which may change it in place."""
        for node in self._names.places_of(self._function, applied.value):
            if node is not applied and not holds(definition.node, node):
                self._problem(node, f"`{applied.value}`, the gradients, are used here too, which "
                              f"may change them: {GRADIENTS}")

    def _step(self, node: cst.BaseExpression | None, call: cst.CSTNode) -> None:
        value = node
        if isinstance(node, cst.Name) and node.value != "None":
            found = self._definitions(node.value)
            statement = found[0].statement if len(found) == 1 else None
            value = statement.value if isinstance(statement, cst.Assign) else None
        if not (isinstance(value, cst.Call) and self._names.of_tensorflow(
                value.func) in STEP_CALLS):
            self._problem(node or call, f"`{shown(node or call)}`: the train_op increments no "
                          "global step that the tool can follow: pass "
                          "`global_step=tf.train.get_global_step()`, which is what Trainer counts")

    def _optimizer(self, node: cst.BaseExpression, line: Line) -> None:
        made = [_Value(node, line)]
        while len(made) == 1 and isinstance(made[0].expression, cst.Name):
            made = self._unwrapped(made[0].expression)
            if len(made) == 1 and self._is_cross_shard(made[0].expression):
                made = [_Value(self._inside_of(made[0].expression), made[0].line)]
        for value, place in made:
            inside = self._inside_of(value)
            if isinstance(inside, cst.Call) and self._names.of_tensorflow(inside.func) in {
                    f"train.{one}Optimizer" for one in OPTIMIZERS}:
                self.optimizers.append(MadeOptimizer(place, inside))
            else:
                self._problem(inside, f"its optimizer is `{shown(inside)}`, which is not one of "
                              "tf.train that the tool knows: "
                              f"{train_op_advice.on_optimizer(inside, self._names)}")

    def _inside_of(self, node: cst.BaseExpression) -> cst.BaseExpression:
        """Returns the optimizer in a CrossShardOptimizer."""
        while self._is_cross_shard(node):
            assert isinstance(node, cst.Call)
            inside, others = node.args[:1], node.args[1:]
            if not inside or inside[0].star or inside[0].keyword or not all(
                    map(self._is_default_reduction, others)):
                self._problem(node, "CrossShardOptimizer with arguments other than the optimizer: "
                              "delete them")
                return node
            node = inside[0].value
        return node

    def _is_default_reduction(self, argument: cst.Arg) -> bool:
        return argument.keyword is not None and argument.keyword.value == "reduction" and (
            self._names.of_tensorflow(argument.value) == "losses.Reduction.MEAN")

    def _is_cross_shard(self, call: cst.CSTNode) -> bool:
        return isinstance(call, cst.Call) and any(
            path.rpartition(".")[2] == "CrossShardOptimizer" and path.startswith(
                ("tensorflow", "tpu_estimator_embedding."))
            for path in self._names.paths(call.func))

    def _unwrapped(self, node: cst.Name) -> list[_Value]:
        """Returns the values of a variable that later ones only wrap for a TPU, at their lines."""
        self._check_bound_by_lines(node, "the optimizer")
        found = self._definitions(node.value)
        values: list[_Value] = []
        for line in found:
            statement = line.statement
            if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or (
                    not isinstance(statement.targets[0].target, cst.Name)):
                self._problem(line.node, f"`{node.value}`, the optimizer, comes from a statement "
                              f"of another shape than `{node.value} = ...`")
                return []
            value = statement.value
            is_wrap = self._is_cross_shard(value) and matchers.matches(
                self._inside_of(value), matchers.Name(node.value))
            if is_wrap or _is_none(statement):
                self.lines.append(line.node)
            else:
                values.append(_Value(value, line))
        if not values:
            self._problem(node, f"the optimizer `{node.value}` is not made in the model_fn: make "
                          "it there, by its name in tf.train")
        for _, line in values:
            self._take(line, "the optimizer", conditions=True)
        return values


def _is_compute(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and (
        node.func.attr.value == "compute_gradients")


def _is_none(statement: cst.BaseSmallStatement | None) -> bool:
    return isinstance(statement, cst.Assign) and matchers.matches(
        statement.value, matchers.Name("None"))


def _mode(node: cst.BaseExpression) -> str | None:
    words = dotted(node)
    return words[-1] if words[-2:-1] == ("ModeKeys",) and words[-1] in (
        "TRAIN", "EVAL", "PREDICT", "INFER") else None
