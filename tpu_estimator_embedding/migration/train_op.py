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

import dataclasses
from collections.abc import Iterable

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.assignments import names_of_target
from tpu_estimator_embedding.migration.bindings import dotted
from tpu_estimator_embedding.migration.effects import Problem, text_of
from tpu_estimator_embedding.migration.forward_rewrite import holds
from tpu_estimator_embedding.migration.name_table import NameTable
from tpu_estimator_embedding.migration.node_search import find_all, find_names

STEP_CALLS = ("train.get_global_step", "train.get_or_create_global_step")
OPTIMIZERS = ("Adadelta", "Adagrad", "AdagradDA", "Adam", "Ftrl", "GradientDescent", "Momentum",
              "ProximalAdagrad", "ProximalGradientDescent", "RMSProp")
_MINIMIZE = ("loss", "global_step", "var_list", "gate_gradients", "aggregation_method",
             "colocate_gradients_with_ops", "name", "grad_loss")
_COMPUTE = ("loss", "var_list", "gate_gradients", "aggregation_method",
            "colocate_gradients_with_ops", "grad_loss")
_APPLY = ("grads_and_vars", "global_step", "name")
_WITHOUT_EFFECT = ("colocate_gradients_with_ops", "name")


@dataclasses.dataclass(frozen=True)
class Line:
    """A line of a function.

    Attributes:
        node: the line.
        around: the compound statements around it, from the outermost, each with whether the line
            is in its `else` branch.
    """

    node: cst.SimpleStatementLine
    around: tuple[tuple[cst.CSTNode, bool], ...]

    @property
    def statement(self) -> cst.BaseSmallStatement | None:
        """Its statement; None if it has several."""
        return self.node.body[0] if len(self.node.body) == 1 else None


def lines_of(body: cst.BaseSuite,
             around: tuple[tuple[cst.CSTNode, bool], ...] = ()) -> list[Line]:
    """Returns the lines of a suite in order, without those of functions and classes in it.

    What stands on the line of its `if` or `with` is no line: `bound_otherwise` has its variables.
    """
    lines: list[Line] = []
    for statement in body.body:
        if isinstance(statement, cst.SimpleStatementLine):
            lines.append(Line(statement, around))
        elif isinstance(statement, cst.If):
            lines += _lines_of_if(statement, around)
        elif not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            for part in (statement, *statement.children):
                suite = getattr(part, "body", None)
                if isinstance(suite, cst.BaseSuite):
                    lines += lines_of(suite, (*around, (statement, part is not statement)))
    return lines


def _lines_of_if(statement: cst.If, around: tuple[tuple[cst.CSTNode, bool], ...]) -> list[Line]:
    lines = lines_of(statement.body, (*around, (statement, False)))
    other = (*around, (statement, True))
    if isinstance(statement.orelse, cst.If):
        lines += _lines_of_if(statement.orelse, other)
    elif statement.orelse is not None:
        lines += lines_of(statement.orelse.body, other)
    return lines


def targets_of(line: cst.BaseStatement) -> set[str]:
    """Returns the variables that a line assigns; empty if it does anything else."""
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return set()
    statement = line.body[0]
    if isinstance(statement, cst.AugAssign):
        targets: list[cst.BaseExpression] = [statement.target]
    elif isinstance(statement, cst.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    elif isinstance(statement, cst.Assign):
        targets = [target.target for target in statement.targets]
    else:
        return set()
    names: set[str] = set()
    for target in targets:
        elements = [element.value for element in target.elements] if isinstance(
            target, (cst.Tuple, cst.List)) else [target]
        for element in elements:
            if not isinstance(element, cst.Name):
                return set()
            names.add(element.value)
    return names


def bound_otherwise(function: cst.FunctionDef) -> set[str]:
    """Returns the variables that a function binds in other ways than by `targets_of` a line."""
    plain = {line.body[0] for line in find_all(function.body, cst.SimpleStatementLine)
             if targets_of(line)}
    known = {node for statement in plain for node in (statement, *statement.children)}
    names: set[str] = set()
    for node in find_all(function.body, cst.For, cst.AsName, cst.FunctionDef, cst.ClassDef,
                         cst.NamedExpr, cst.ImportAlias, cst.AssignTarget, cst.AugAssign,
                         cst.AnnAssign):
        if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
            names.add(node.name.value)
        elif isinstance(node, cst.ImportAlias):
            names |= set() if node.asname else set(dotted(node.name)[:1])
        elif node not in known:
            target = node.name if isinstance(node, cst.AsName) else getattr(node, "target")  # noqa: B009
            names |= {one.value for one in names_of_target(target) if isinstance(one, cst.Name)}
    return names


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
        optimizer: the call that makes the optimizer of tf.train; None if there is none.
        updates: the `with` statements on UPDATE_OPS that its lines have around them.
        updates_read: the index of the line before which UPDATE_OPS is read that the train_op runs;
            None if it runs none.
        problems: what is not known in full.
    """

    def __init__(self, function: cst.FunctionDef, lines: list[Line], spec_line: Line,
                 train_op: cst.BaseExpression, loss: cst.BaseExpression | None,
                 names: NameTable) -> None:
        self._function, self._odd = function, bound_otherwise(function)
        self._all, self._spec_line, self._loss, self._names = lines, spec_line, loss, names
        self._place = {line.node: index for index, line in enumerate(lines)}
        self.lines: list[cst.SimpleStatementLine] = []
        self.optimizer: cst.Call | None = None
        self.updates: list[cst.With] = []
        self._read_at: dict[cst.CSTNode, int] = {}  # statement of `updates` -> `updates_read`
        self._step_lines: list[Line] = []  # which compute or apply gradients
        self.problems: list[Problem] = []
        self._check_place(spec_line, "the spec with the train_op")
        self._follow(train_op, spec_line)
        self.updates_read = min((
            self._read_at[statement] for line in self._step_lines for statement, _ in line.around
            if statement in self._read_at), default=None)

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self.problems.append(Problem(node, "TEE402", message))

    def _definitions(self, name: str) -> list[Line]:
        return [line for line in self._all if _binds(line.node, name)]

    def _check_bound_by_lines(self, node: cst.Name, what: str) -> None:
        if node.value in self._odd:
            self._problem(node, f"`{node.value}`, {what}, is bound by more than lines "
                          f"`{node.value} = ...`")

    def _only_definition(self, node: cst.Name, what: str) -> tuple[cst.BaseExpression, Line] | None:
        """Returns the value of a variable that is assigned once, by a plain assignment."""
        self._check_bound_by_lines(node, what)
        found = self._definitions(node.value)
        for line in found if len(found) > 1 else ():
            if _is_none(line.statement):
                self.lines.append(line.node)
        found = [line for line in found if line.node not in self.lines or len(found) == 1]
        if len(found) != 1:
            places: list[cst.CSTNode] = [line.node for line in found[1:]]
            for place in places or [node]:
                self._problem(place, f"`{node.value}`, {what}, is assigned "
                              f"{len(found)} times: the tool follows one assignment")
            return None
        [line] = found
        statement = line.statement
        if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or not isinstance(
                statement.targets[0].target, cst.Name):
            self._problem(line.node, f"`{node.value}`, {what}, comes from a statement of another "
                          f"shape than `{node.value} = ...`")
            return None
        self._take(line, what)
        return statement.value, line

    def _take(self, line: Line, what: str) -> None:
        if line.node not in self.lines:
            self.lines.append(line.node)
            self._check_place(line, what)

    def _check_place(self, line: Line, what: str) -> None:
        """Reports what decides whether, how often or after what a line runs."""
        for statement, is_else in line.around:
            if isinstance(statement, cst.With) and self._is_harmless(statement):
                continue
            if isinstance(statement, cst.If):
                taken = self.in_training(statement.test)
                if taken is not None and taken != is_else:
                    continue
            text = text_of(statement).partition(":")[0][:60]
            self._problem(statement, f"`{text}` decides about {what}: only conditions on `mode`, "
                          "name scopes and control dependencies on UPDATE_OPS are known")

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
                    or isinstance(read, cst.Name) and _binds(line.node, read.value))
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
        return (isinstance(node, cst.Call) and len(node.args) == 1
                and self._names.of_tensorflow(node.func) == "get_collection"
                and (self._names.of_tensorflow(node.args[0].value) == "GraphKeys.UPDATE_OPS"
                     or getattr(node.args[0].value, "raw_value", "") == "update_ops"))

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
            found = self._only_definition(node, "the train_op")
            if found:
                self._follow(*found)
            return
        method, optimizer = "", node
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
            method, optimizer = node.func.attr.value, node.func.value
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
            self._problem(node, f"the train_op is `{_short(node)}`: the tool knows "
                          "`optimizer.minimize(loss, global_step)` and unmodified pairs of "
                          "`compute_gradients` and `apply_gradients`; override "
                          "Trainer.train_step")
            return
        self._step(given.get("global_step"), node)
        self._optimizer(optimizer, line)

    def _arguments(self, call: cst.Call, order: tuple[str, ...],
                   known: tuple[str, ...]) -> dict[str, cst.BaseExpression]:
        given = {}
        for index, argument in enumerate(call.args):
            name = argument.keyword.value if argument.keyword else (
                order[index] if index < len(order) else "*")
            if argument.star or name not in (*known, *_WITHOUT_EFFECT) and not matchers.matches(
                    argument.value, matchers.Name("None")):
                self._problem(argument, f"the argument `{_short(argument)}` of "
                              f"`{_short(call.func)}`: override Trainer.train_step")
            elif name in known:
                given[name] = argument.value
        return given

    def _minimized(self, loss: cst.BaseExpression | None, node: cst.CSTNode, line: Line) -> None:
        if loss is None:
            self._problem(node, "it minimizes no loss that the tool can follow")
        elif not isinstance(loss, cst.Name) or not isinstance(self._loss, cst.Name) or (
                loss.value != self._loss.value):
            other = _short(self._loss) if self._loss is not None else "nothing"
            self._problem(loss, f"`{_short(loss)}` is minimized, and the loss of the spec is "
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
        if isinstance(node, cst.Name):
            applied = node
            found = self._only_definition(node, "the gradients")
            if not found:
                return
            node, line = found
            self._check_unchanged(applied, line)
        if isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and (
                node.func.attr.value == "compute_gradients"):
            if not node.func.value.deep_equals(optimizer):
                self._problem(node, "the gradients are computed by another optimizer than the one "
                              "that applies them")
            given = self._arguments(node, _COMPUTE, ("loss",))
            if line is not None:
                self._step_lines.append(line)
                self._minimized(given.get("loss"), node, line)
            return
        self._report_changes(line.node for line in self._all)
        self._problem(node or call, f"the gradients are `{_short(node or call)}`: only the result "
                      "of `compute_gradients`, unmodified, is known")

    def _report_changes(self, nodes: Iterable[cst.CSTNode]) -> None:
        """Reports the functions that usually change gradients, at their lines."""
        for node in nodes:
            for call in find_all(node, cst.Call):
                name = self._names.of_tensorflow(call.func)
                if name in ("gradients", "IndexedSlices") or name.startswith("clip_by"):
                    self._problem(call, f"`{name}` makes or changes gradients: override "
                                  "Trainer.transform_gradients")

    def _check_unchanged(self, applied: cst.Name, definition: Line) -> None:
        """Reports other uses of a list of gradients, which may change it in place."""
        for node in find_names(self._function.body, applied.value):
            if node is not applied and not holds(definition.node, node):
                self._problem(node, f"`{applied.value}`, the gradients, are used here too, which "
                              "may change them: override Trainer.transform_gradients")

    def _step(self, node: cst.BaseExpression | None, call: cst.CSTNode) -> None:
        value = node
        if isinstance(node, cst.Name) and node.value != "None":
            found = self._definitions(node.value)
            statement = found[0].statement if len(found) == 1 else None
            value = statement.value if isinstance(statement, cst.Assign) else None
        if not (isinstance(value, cst.Call) and self._names.of_tensorflow(
                value.func) in STEP_CALLS):
            self._problem(node or call, f"`{_short(node or call)}`: the train_op increments no "
                          "global step that the tool can follow; Trainer.train_step increments "
                          "its own by 1")

    def _optimizer(self, node: cst.BaseExpression, line: Line) -> None:
        while True:
            if isinstance(node, cst.Name):
                value = self._unwrapped(node)
                if value is None:
                    return
                node = value
                continue
            name = self._names.of_tensorflow(node.func) if isinstance(node, cst.Call) else ""
            if isinstance(node, cst.Call) and self._is_cross_shard(node):
                if len(node.args) != 1 or node.args[0].star:
                    self._problem(node, "CrossShardOptimizer with arguments besides the optimizer")
                    return
                node = node.args[0].value
                continue
            break
        if isinstance(node, cst.Call) and name in {f"train.{one}Optimizer" for one in OPTIMIZERS}:
            self.optimizer = node
        else:
            self._problem(node, f"its optimizer is `{_short(node)}`, which is not one of tf.train "
                          "that the tool knows")

    def _is_cross_shard(self, call: cst.Call) -> bool:
        return any(path.rpartition(".")[2] == "CrossShardOptimizer" and path.startswith(
            ("tensorflow", "tpu_estimator_embedding.")) for path in self._names.paths(call.func))

    def _unwrapped(self, node: cst.Name) -> cst.BaseExpression | None:
        """Returns the first value of a variable whose later ones only wrap it for a TPU."""
        self._check_bound_by_lines(node, "the optimizer")
        found = self._definitions(node.value)
        values = []
        for line in found:
            statement = line.statement
            if not isinstance(statement, cst.Assign) or len(statement.targets) != 1 or (
                    not isinstance(statement.targets[0].target, cst.Name)):
                self._problem(line.node, f"`{node.value}`, the optimizer, comes from a statement "
                              f"of another shape than `{node.value} = ...`")
                return None
            values.append(statement.value)
        if not values:
            self._problem(node, f"the optimizer `{node.value}` is not made in the model_fn")
            return None
        for line, value in zip(found[1:], values[1:], strict=True):
            if not (isinstance(value, cst.Call) and self._is_cross_shard(value) and len(
                    value.args) == 1 and matchers.matches(
                        value.args[0].value, matchers.Name(node.value))):
                self._problem(line.node, f"`{node.value}`, the optimizer, is assigned "
                              f"{len(found)} times: the tool follows one assignment")
                return None
            self.lines.append(line.node)
        is_wrap = isinstance(values[0], cst.Call) and self._is_cross_shard(values[0])
        if is_wrap:
            self.lines.append(found[0].node)
        else:
            self._take(found[0], "the optimizer")
        return values[0]


def _is_none(statement: cst.BaseSmallStatement | None) -> bool:
    return isinstance(statement, cst.Assign) and matchers.matches(
        statement.value, matchers.Name("None"))


def _mode(node: cst.BaseExpression) -> str | None:
    words = dotted(node)
    return words[-1] if words[-2:-1] == ("ModeKeys",) and words[-1] in (
        "TRAIN", "EVAL", "PREDICT", "INFER") else None


def _binds(line: cst.SimpleStatementLine, name: str) -> bool:
    """Whether a line assigns a variable in any way."""
    found = find_all(line, cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.NamedExpr)
    return any(isinstance(node, cst.Name) and node.value == name
               for target in found
               for node in names_of_target(getattr(target, "target")))  # noqa: B009


def _short(node: cst.CSTNode) -> str:
    text = text_of(node).rstrip(", ")
    return text if len(text) <= 60 else text[:57] + "..."
