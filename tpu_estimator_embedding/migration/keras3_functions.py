# SPDX-License-Identifier: Apache-2.0
"""Writes the functions of a Keras 3 model for the forward pass of a model_fn.

A line that needs no labels belongs to the model. What the loss, the metrics and the predictions
use of it becomes an output of the model. Lines are assignments; `if mode == ...` says what they
are for.
"""

from __future__ import annotations

import collections
import dataclasses
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

import libcst as cst

from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.keras3_expressions import (
    CODE,
    LAYERS,
    Op,
    Translator,
    UntranslatedError,
    names_of_loop,
    signature,
)
from tpu_estimator_embedding.migration.model_fn_parts import arguments_of_spec
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    dotted,
    find_all,
    shown,
    text_of,
    variables_in,
)

TRAIN, EVAL, PREDICT = "TRAIN", "EVAL", "PREDICT"
_ALL = frozenset((TRAIN, EVAL, PREDICT))
WRITTEN = ("forward", "loss_of", "predictions_of", "new_metrics", "metric_values",
           "make_optimizer")
_SCOPES = ("control_dependencies", "name_scope")
_UNKNOWN = cst.Ellipsis()  # the value of a variable that a statement of another kind assigns
_WIDTH = 100  # of written lines
_WEIGHTS = "weights=None metrics_collections=None updates_collections=None"
_METRIC_FIXED = "weights metrics_collections updates_collections"


def _metric(arguments: str, fixed: str = "") -> Op:
    return Op(signature(f"{arguments} {_WEIGHTS} name=None"), "",
              [*_METRIC_FIXED.split(), *fixed.split()])


# Metric of tf.metrics -> its arguments, the metric of Keras, and what updates it.
_METRICS = {
    "metrics.auc": (_metric("labels predictions num_thresholds=200 curve='ROC' "
                            "summation_method='trapezoidal' thresholds=None",
                            "curve summation_method thresholds"),
                    "keras.metrics.AUC(num_thresholds={num_thresholds}, name={key})",
                    "({labels}, {predictions})"),
    "metrics.accuracy": (_metric("labels predictions"), "keras.metrics.Mean(name={key})",
                         "(keras_training.equal({labels}, {predictions}),)"),
    "metrics.mean": (_metric("values"), "keras.metrics.Mean(name={key})", "({values},)"),
}


@dataclasses.dataclass(frozen=True)
class _Line:
    """An assignment, and the modes in which it is executed; a loop is one for each variable."""

    target: str
    value: cst.BaseExpression | cst.For
    modes: frozenset[str]
    node: cst.CSTNode


@dataclasses.dataclass(frozen=True)
class _Outputs:
    """The arguments of an `Outputs`, and its modes."""

    given: Mapping[str, cst.BaseExpression]
    modes: frozenset[str]


def write(function: cst.FunctionDef, names: Names) -> tuple[str, list[Problem]]:
    """Returns the text of the functions, and what has no counterpart.

    Args:
        function: the model_fn, of which the split has found no problem.
        names: of the module.
    """
    return _Functions(function, names).run()


class _Functions:
    def __init__(self, function: cst.FunctionDef, names: Names) -> None:
        self._function, self._names = function, names
        self.problems: list[Problem] = []
        self._lines: list[_Line] = []
        self._specs: list[_Outputs] = []
        self._inner: dict[str, cst.FunctionDef] = {}
        self._training: set[str] = set()  # variables that are true in training only
        constants = {name for name, values in names.globals.items() if len(values) == 1
                     and name not in names.functions and name not in names.changed_later()}
        self._translator = Translator(names, constants, self._is_training)

    def run(self) -> tuple[str, list[Problem]]:
        self._read(self._function.body, _ALL)
        for parameter in self._function.params.params:
            if parameter.name.value == "config":
                self._problem(parameter, "`config` has no counterpart")
        if self.problems:
            return "", self.problems
        counts = collections.Counter(line.target for line in self._lines)
        self._translator.local = {
            line.target: line.value for line in self._lines if counts[line.target] == 1
            and isinstance(line.value, cst.BaseExpression) and line.value is not _UNKNOWN}
        of_labels = self._of_labels()
        loss = self._loss()
        metrics = self._argument("eval_metrics", EVAL)
        predictions = self._argument("predictions", PREDICT) or self._argument(
            "predictions", TRAIN) or self._argument("predictions", EVAL)
        texts = [text for write in (
            lambda: [self._loss_text(loss, of_labels)],
            lambda: [self._predictions_text(predictions, of_labels)],
            lambda: self._metrics_texts(*self._metric_fn(metrics), of_labels),
        ) for text in self._written(write)]
        # Last, as the others say which values they need of it.
        texts[:0] = self._written(lambda: [self._forward_text(sorted(self._exported), of_labels)])
        if self.problems:
            return "", list(dict.fromkeys(self.problems))
        return "\n".join(map(_wrapped, "\n\n".join(texts).split("\n"))), []

    def _written(self, write: Callable[[], list[str]]) -> list[str]:
        """Returns what a function writes; nothing if it has no counterpart, which is noted."""
        try:
            return write()
        except UntranslatedError as error:
            self.problems.append(error.problem)
            return []

    def _problem(self, node: cst.CSTNode, message: str) -> None:
        self.problems.append(Problem(node, CODE, message))

    # Reading.

    def _read(self, body: cst.BaseSuite, modes: frozenset[str]) -> frozenset[str]:
        """Collects lines; returns the modes in which the function goes on below."""
        for statement in body.body:
            if isinstance(statement, cst.FunctionDef):
                self._inner[statement.name.value] = statement
            elif isinstance(statement, cst.If):
                modes = self._read_if(statement, modes)
            elif isinstance(statement, cst.For) and (targets := _targets_of_loop(statement)):
                self._lines += [_Line(target, statement, modes, statement) for target in targets]
            elif isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    modes = self._read_small(small, modes)
            elif isinstance(statement, cst.With) and all(
                    isinstance(item.item, cst.Call) and self._names.of_tensorflow(
                        item.item.func) in _SCOPES for item in statement.items):
                modes = self._read(statement.body, modes)
            else:
                self._read_unknown(statement, modes)
        return modes

    def _read_unknown(self, statement: cst.CSTNode, modes: frozenset[str]) -> None:
        """Takes a statement for an assignment of variables that nothing but training may use."""
        targets = {name.value for one in find_all(statement, cst.AssignTarget)
                   for name in find_all(one.target, cst.Name)}
        first = text_of(statement).strip().splitlines()[0][:60]
        if not targets or any(find_all(statement, cst.Return, cst.Expr)):
            self._problem(statement, f"`{first}`: a statement of this kind has no counterpart")
        self._lines += [_Line(target, _UNKNOWN, modes, statement) for target in sorted(targets)]

    def _read_if(self, statement: cst.If, modes: frozenset[str]) -> frozenset[str]:
        taken = self._modes(statement.test)
        if taken is None:
            self._read_unknown(statement, modes)
            return modes
        after = self._read(statement.body, modes & taken)
        left = modes - taken
        if isinstance(statement.orelse, cst.If):
            return after | self._read_if(statement.orelse, left)
        if statement.orelse is not None:
            return after | self._read(statement.orelse.body, left)
        return after | left

    def _read_small(self, small: cst.BaseSmallStatement,
                    modes: frozenset[str]) -> frozenset[str]:
        if isinstance(small, (cst.Del, cst.Pass)) or isinstance(small, cst.Expr) and isinstance(
                small.value, (cst.SimpleString, cst.ConcatenatedString)):
            return modes
        if isinstance(small, cst.Return) and isinstance(small.value, cst.Call):
            self._specs.append(_Outputs(arguments_of_spec(small.value), modes))
            return frozenset()
        target = small.targets[0].target if isinstance(small, cst.Assign) and len(
            small.targets) == 1 else getattr(small, "target", None)
        value = getattr(small, "value", None)
        if not isinstance(target, cst.Name) or not isinstance(value, cst.BaseExpression):
            self._problem(small, f"`{shown(small)}`: only `name = ...` has a counterpart")
            return modes
        if isinstance(small, cst.AugAssign):
            self._problem(small, f"`{shown(small)}`: write `{target.value} = ...`")
            return modes
        if self._is_training(value):
            self._training.add(target.value)
        else:
            self._lines.append(_Line(target.value, value, modes, small))
        return modes

    def _modes(self, test: cst.BaseExpression) -> frozenset[str] | None:
        """Returns the modes in which a condition is true; None if it does not depend on them."""
        if isinstance(test, cst.Name) and test.value in self._training:
            return frozenset((TRAIN,))
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._modes(test.expression)
            return None if inner is None else _ALL - inner
        if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1 or (
                text_of(test.left) != "mode"):
            return None
        [part] = test.comparisons
        values = [one.value for one in part.comparator.elements] if isinstance(
            part.comparator, (cst.Tuple, cst.List)) else [part.comparator]
        found = frozenset(dotted(one)[-1] for one in values
                          if dotted(one)[-2:-1] == ("ModeKeys",) and dotted(one)[-1] in _ALL)
        if len(found) != len(values):
            return None
        if isinstance(part.operator, (cst.Equal, cst.In)):
            return found
        return _ALL - found if isinstance(part.operator, (cst.NotEqual, cst.NotIn)) else None

    def _is_training(self, node: cst.BaseExpression) -> bool:
        return self._modes(node) == frozenset((TRAIN,))

    # What the specs return.

    def _argument(self, key: str, mode: str) -> cst.BaseExpression | None:
        found = [spec.given[key] for spec in self._specs if mode in spec.modes
                 and key in spec.given and text_of(spec.given[key]) != "None"]
        return found[0] if found else None

    def _loss(self) -> cst.BaseExpression:
        loss, of_evaluation = self._argument("loss", TRAIN), self._argument("loss", EVAL)
        assert loss is not None  # the split has seen it
        if of_evaluation is not None and text_of(loss) != text_of(of_evaluation):
            self._problem(of_evaluation, "evaluation and training have different losses")
        return loss

    def _of_labels(self) -> set[str]:
        """Returns the variables that depend on labels."""
        found = {"labels"}
        for line in self._lines:
            if variables_in(line.value) & found:
                found.add(line.target)
        return found

    # Writing.

    _exported: set[str]

    def _forward_text(self, exported: Sequence[str], of_labels: set[str]) -> str:
        lines = [line for line in self._lines if line.target not in of_labels]
        used = self._needed(lines, set(exported))
        text = ('def forward(features, params):\n'
                '    """Returns the outputs of the model, as model_fn computed them."""\n')
        self._translator.known = {"params", "features"}
        self._translator.layers_allowed = True
        for line in used:
            self._check_modes(line, lines)
            text += self._assignment(line)
        for name in exported:
            if name not in self._translator.known:
                raise UntranslatedError(self._function, f"`{name}` is not assigned in model_fn")
        outputs = ", ".join(f"{name!r}: {name}" for name in exported)
        return f"{text}    return {{{outputs}}}\n"

    def _check_modes(self, line: _Line, lines: Sequence[_Line]) -> None:
        others = [one for one in lines if one.target == line.target and one.modes != line.modes]
        has_layers = any(self._names.of_tensorflow(call.func) in LAYERS
                         for call in find_all(line.value, cst.Call))
        if line.modes != _ALL and (others or has_layers):
            self._problem(line.node, f"`{line.target}` depends on the mode")

    def _needed(self, lines: Sequence[_Line], wanted: set[str]) -> list[_Line]:
        """Returns the lines that variables need, in order."""
        chosen: list[_Line] = []
        wanted = set(wanted)
        for line in reversed(lines):
            if line.target in wanted:
                if not chosen or chosen[0].node is not line.node:  # once for all of a loop's
                    chosen.insert(0, line)
                wanted |= variables_in(line.value, self._translator.columns_in(line.value))
        return chosen

    def _body(self, expressions: Iterable[cst.BaseExpression], of_labels: set[str],
              inner: Sequence[_Line] = (), parameters: Iterable[str] = ()) -> str:
        """Returns the lines that a function of labels and outputs needs, before its result."""
        wanted = {name for one in (*expressions, *(line.value for line in inner))
                  for name in variables_in(one)} - set(parameters) - {line.target for line in inner}
        mine = [line for line in self._lines if line.target in of_labels]
        lines = self._needed(mine, wanted)
        wanted |= {name for line in lines for name in variables_in(line.value)}
        assigned = {line.target for line in self._lines} - of_labels
        outputs = sorted(wanted & assigned)
        for node in (*expressions, *(line.value for line in lines)):
            if "features" in variables_in(node):
                raise UntranslatedError(node, "it uses `features` outside of the model: assign "
                                        "what it needs to a variable above")
        self._check_not_reassigned(outputs, of_labels)
        self._exported |= set(outputs)
        self._translator.known = {"params", "labels", *outputs}
        self._translator.layers_allowed = False
        text = "".join(f"    {name} = outputs[{name!r}]\n" for name in outputs)
        return text + "".join(map(self._assignment, lines))

    def _check_not_reassigned(self, outputs: Iterable[str], of_labels: set[str]) -> None:
        """Rejects outputs of the model that are assigned again after labels are used."""
        first = next((index for index, line in enumerate(self._lines)
                      if line.target in of_labels), len(self._lines))
        for line in self._lines[first:]:
            if line.target in outputs and any(one.target == line.target
                                              for one in self._lines[:first]):
                raise UntranslatedError(line.node, f"`{line.target}` is assigned again after the "
                                        "loss was begun: give it another name")

    def _assignment(self, line: _Line) -> str:
        if line.value is _UNKNOWN:
            raise UntranslatedError(line.node, f"`{line.target}` is assigned in a statement of a "
                                    "kind that has no counterpart: write `name = ...`")
        if isinstance(line.value, cst.For):
            return self._loop(line.value)
        text = f"    {line.target} = {self._translator.text(line.value)}\n"
        self._translator.known.add(line.target)
        return text

    def _loop(self, loop: cst.For) -> str:
        values, names = self._translator.text(loop.iter), names_of_loop(loop.target)
        text = f"    for {', '.join(names)} in {values}:\n"
        self._translator.known |= set(names)
        for target, value in _lines_of_loop(loop):
            text += f"        {target} = {self._translator.text(value)}\n"
            self._translator.known.add(target)
        return text

    def _loss_text(self, loss: cst.BaseExpression, of_labels: set[str]) -> str:
        self._exported = set()
        body = self._body([loss], of_labels)
        modes = {mode for mode in (TRAIN, EVAL) if self._argument("loss", mode) is not None}
        mine = [line for line in self._lines if line.target in of_labels]
        for line in self._needed(mine, variables_in(loss)):
            if not modes <= line.modes:
                raise UntranslatedError(line.node, f"`{line.target}` depends on the mode")
        result, last = self._translator.text(loss), body.rsplit("\n", 2)[-2:-1]
        if last and last[0].startswith(f"    {result} = "):
            body = body.removesuffix(f"{last[0]}\n")
            result = last[0].removeprefix(f"    {result} = ")
        return ('def loss_of(labels, outputs, params):\n'
                '    """Returns the loss of a batch."""\n'
                f"{body}    return {result}\n")

    def _predictions_text(self, predictions: cst.BaseExpression | None,
                          of_labels: set[str]) -> str:
        head = ('def predictions_of(outputs, params):\n'
                '    """Returns name -> prediction of each example."""\n')
        if predictions is None:
            return f"{head}    return dict(outputs)\n"
        if isinstance(predictions, cst.Name):
            predictions = self._translator.local.get(predictions.value, predictions)
            self._lines = [line for line in self._lines if line.value is not predictions]
        if variables_in(predictions) & of_labels:
            raise UntranslatedError(predictions, "predictions that need labels")
        body = self._body([predictions], of_labels)
        text = self._translator.text(predictions)
        if not isinstance(predictions, cst.Dict):
            text = f"{{'output': {text}}}"
        return f"{head}{body}    return {text}\n"

    def _metric_fn(self, metrics: cst.BaseExpression | None) -> tuple[
            cst.FunctionDef | cst.Lambda | None, list[tuple[str, cst.BaseExpression]]]:
        """Returns the metric function, and its parameters with their values."""
        if metrics is None:
            return None, []
        if isinstance(metrics, cst.Name):
            metrics = self._translator.local.get(metrics.value, metrics)
            self._lines = [line for line in self._lines if line.value is not metrics]
        if not isinstance(metrics, cst.Tuple) or len(metrics.elements) != 2:
            raise UntranslatedError(metrics, "eval_metrics that are not `(function, tensors)`")
        function, tensors = (one.value for one in metrics.elements)
        found: cst.FunctionDef | cst.Lambda | None = function if isinstance(
            function, cst.Lambda) else None
        if isinstance(function, cst.Name):
            known = [self._inner[function.value]] if function.value in self._inner else (
                self._names.functions.get(function.value, []))
            found = known[0] if len(known) == 1 else None
        if found is None:
            raise UntranslatedError(function, "its metric function is not one of this module")
        order = [one.name.value for one in found.params.params]
        if isinstance(tensors, (cst.List, cst.Tuple)):
            values = [one.value for one in tensors.elements]
            return found, list(zip(order, values, strict=False))
        if isinstance(tensors, cst.Dict):
            by_key = {text_of(one.key).strip("'\""): one.value for one in tensors.elements
                      if isinstance(one, cst.DictElement)}
            return found, [(name, by_key[name]) for name in order if name in by_key]
        raise UntranslatedError(tensors, "tensors of eval_metrics outside a list or dictionary")

    def _metrics_texts(self, function: cst.FunctionDef | cst.Lambda | None,
                       bound: list[tuple[str, cst.BaseExpression]],
                       of_labels: set[str]) -> list[str]:
        made, updates, body = "", "", ""
        if function is not None:
            inner, result = _lines_and_result(function)
            body = self._body([value for _, value in bound], of_labels)
            names, values = zip(*bound, strict=True) if bound else ((), ())
            if names and list(names) != list(map(self._translator.text, values)):
                body += (f"    {', '.join(names)} = "
                         f"{', '.join(map(self._translator.text, values))}\n")
            self._translator.known |= set(names)
            body += "".join(map(self._assignment, inner))
            for one in result.elements:
                kind, update = self._metric(one)
                made += f"        {kind},\n"
                updates += f"        {update},\n"
        wrap = ("{{\n{0}    }}" if made else "{{}}").format
        return ['def new_metrics():\n    """Returns metric -> what accumulates it."""\n'
                f"    return {wrap(made)}\n",
                'def metric_values(labels, outputs, params):\n'
                '    """Returns metric -> what a batch adds to it."""\n'
                f"{body}    return {wrap(updates)}\n"]

    def _metric(self, element: cst.BaseDictElement) -> tuple[str, str]:
        call = element.value
        name = self._names.of_tensorflow(call.func) if isinstance(call, cst.Call) else ""
        if not isinstance(element, cst.DictElement) or name not in _METRICS:
            raise UntranslatedError(call, f"the metric `{shown(call)}` has no counterpart: "
                                    f"those that have one are {', '.join(_METRICS)}")
        assert isinstance(call, cst.Call)
        op, kind, update = _METRICS[name]
        given = self._translator.arguments(call, op)
        texts = {key: op.arguments[key] if value is None else self._translator.text(value)
                 for key, value in given.items() if key not in op.fixed and key != "name"}
        key = self._translator.text(element.key)
        return (f"{key}: {kind.format(key=key, **texts)}", f"{key}: {update.format(**texts)}")


def _targets_of_loop(loop: cst.For) -> list[str]:
    """Returns the variables that a loop of assignments assigns; nothing for other loops."""
    names, lines = names_of_loop(loop.target), _lines_of_loop(loop)
    if loop.orelse is not None or loop.asynchronous is not None or not names or not lines:
        return []
    return list(dict.fromkeys([*names, *(target for target, _ in lines)]))


def _lines_of_loop(loop: cst.For) -> list[tuple[str, cst.BaseExpression]]:
    """Returns (variable, value) of each line of a loop; nothing if a line is something else."""
    smalls: list[cst.CSTNode] = [small for statement in loop.body.body for small in (
        statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement])]
    found = [(small.targets[0].target.value, small.value) for small in smalls
             if isinstance(small, cst.Assign) and len(small.targets) == 1
             and isinstance(small.targets[0].target, cst.Name)]
    return found if len(found) == len(smalls) else []


def _wrapped(line: str) -> str:
    """Breaks a long line within its brackets; one with a string that has spaces stays whole."""
    texts = re.findall(r"""'[^']*'|"[^"]*\"""", line)
    if len(line) <= _WIDTH or any(" " in text for text in texts):
        return line
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    head, bracket, rest = line.partition("(")
    first, *others = textwrap.wrap(rest, _WIDTH, initial_indent=f"{head}{bracket}",
                                   subsequent_indent=indent, break_long_words=False,
                                   break_on_hyphens=False)
    return "\n".join([first, *others])


def _lines_and_result(function: cst.FunctionDef | cst.Lambda) -> tuple[list[_Line], cst.Dict]:
    """Returns the assignments of a metric function, and the dictionary that it returns."""
    lines: list[_Line] = []
    if isinstance(function, cst.Lambda):
        result: object = function.body
    else:
        smalls: list[cst.CSTNode] = [small for statement in function.body.body for small in (
            statement.body if isinstance(statement, cst.SimpleStatementLine) else [statement])]
        smalls = [one for one in smalls if not (isinstance(one, cst.Expr) and isinstance(
            one.value, cst.SimpleString))]
        result = getattr(smalls[-1], "value", None) if smalls and isinstance(
            smalls[-1], cst.Return) else None
        for small in smalls[:-1]:
            target = small.targets[0].target if isinstance(small, cst.Assign) and len(
                small.targets) == 1 else None
            if not isinstance(small, cst.Assign) or not isinstance(target, cst.Name):
                raise UntranslatedError(function, "a metric function with other lines than "
                                        "`name = ...`")
            lines.append(_Line(target.value, small.value, _ALL, small))
    if not isinstance(result, cst.Dict):
        raise UntranslatedError(function, "a metric function that returns no dictionary display")
    return lines, result
