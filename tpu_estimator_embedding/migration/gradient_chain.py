# SPDX-License-Identifier: Apache-2.0
"""Follows gradients of dense variables from where they are computed to where they are applied.

The world is closed: only assignments of known functions may stand between the two.

    grads, variables = zip(*optimizer.compute_gradients(loss))
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    train_op = optimizer.apply_gradients(zip(grads, variables), global_step=step)

    variables = tf.trainable_variables()
    grads, _ = tf.clip_by_global_norm(tf.gradients(loss, variables), params["clip"])
    train_op = optimizer.apply_gradients(zip(grads, variables), global_step=step)

    pairs = [(tf.clip_by_value(g, -1.0, 1.0), v) for g, v in optimizer.compute_gradients(loss)]
    train_op = optimizer.apply_gradients(pairs, global_step=step)

    pairs = optimizer.compute_gradients(loss)
    grads = [tf.clip_by_norm(g, 1.0) for g, _ in pairs]
    train_op = optimizer.apply_gradients(zip(grads, [v for _, v in pairs]), global_step=step)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.assignments import (
    Line,
    binds,
    bound_otherwise,
    changed_in,
    innermost,
    names_of_target,
    parameters,
    targets_of,
)
from tpu_estimator_embedding.migration.effects import is_pure_name
from tpu_estimator_embedding.migration.known_effects import is_random
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    dotted,
    find_all,
    holds,
    last_word,
    text_of,
    variables_in,
)

_BUILTINS = ("zip", "list", "tuple", "len", "float", "int", "isinstance", "max", "min")
_KEEP_LISTS = ("zip", "list", "tuple")
_CLIP = "clip_by_global_norm"
_NORMS = (_CLIP, "global_norm")
_ZERO_FOR_ZERO = ("abs", "l2_loss", "norm", "reduce_max", "reduce_sum", "square")
_STEPS = ("train.get_global_step", "train.get_or_create_global_step")
_ATTRIBUTES = ("name", "shape", "dtype", "values", "indices")
_PAIRS = "list(zip(gradients, variables))"


@dataclasses.dataclass(frozen=True)
class ChangedGradients:
    """How a model_fn changes gradients, as the body of `transform_gradients`.

    Attributes:
        lines: the lines of the model_fn.
        replaced: expression in them -> the text that takes its place.
        result: what is applied, an expression.
        is_pairs: whether `result` has pairs of gradient and variable, not gradients.
    """

    lines: frozenset[cst.CSTNode]
    replaced: dict[cst.CSTNode, str]
    result: cst.BaseExpression
    is_pairs: bool


@dataclasses.dataclass(frozen=True)
class GradientChain:
    """Gradients, followed back.

    Attributes:
        origin: the call that computes them.
        origin_line: its line.
        lines: all lines between, with that one.
        names: the variables that they assign.
        changed: how they are changed; None if they are not.
        other_uses: the nodes that use the gradients, or what is made of them, for anything else.
    """

    origin: cst.Call
    origin_line: Line
    lines: tuple[Line, ...]
    names: frozenset[str]
    changed: ChangedGradients | None
    other_uses: tuple[cst.CSTNode, ...]


def follow(applied: cst.BaseExpression, before: Sequence[Line], names: Names,
           function: cst.FunctionDef, place: Line,
           in_training: Callable[[cst.BaseExpression], bool | None]) -> GradientChain | None:
    """Follows the argument of `apply_gradients`; returns None if a part is of an unknown shape.

    Args:
        applied: the argument.
        before: the lines of the model_fn above.
        names: of the module.
        function: the model_fn.
        place: the line with `apply_gradients`.
        in_training: returns the value of a condition in training; None if it is not known.
    """
    return _Follower(before, names, function, place, in_training).run(applied)


class _Follower:
    def __init__(self, before: Sequence[Line], names: Names, function: cst.FunctionDef,
                 place: Line, in_training: Callable[[cst.BaseExpression], bool | None]) -> None:
        self._before, self._names, self._function, self._place = before, names, function, place
        self._in_training = in_training

    def run(self, applied: cst.BaseExpression) -> GradientChain | None:
        pair = _zipped(applied)
        result = pair[0] if pair else applied
        lines = self._lines(pair or (applied,))
        searched: list[cst.CSTNode] = [*(line.node for line in lines), applied]
        origins = [call for node in searched for call in find_all(node, cst.Call)
                   if self._is_origin(call)]
        if len(origins) != 1:
            return None
        [origin] = origins
        line = next((one for one in lines if holds(one.node, origin)), self._place)
        computed = _last(origin) == "compute_gradients"
        if pair and (self._are_variables(pair[0], lines, origin)
                     or not self._are_variables(pair[1], lines, origin)):
            return None
        if pair is None and not computed:
            return None
        replaced = dict(self._replacements(searched, origin))
        picked = {one.node for one in lines if self._picks(_value(one), origin)
                  and not {"gradients", "self", "params"} & targets_of(one.node)}
        if self._hides([one for one in lines if one.node not in picked], replaced):
            return None
        of_gradients = self._dependent(lines, origin)
        if not self._is_known(searched, replaced, lines) or _depends_on_order(
                searched, of_gradients, self._names) or self._depends_on_number(
                    searched, lines, origin):
            return None
        is_plain = all(_value(one) in replaced for one in lines) and (
            result in replaced or isinstance(result, cst.Name))
        changed = None if is_plain else ChangedGradients(
            frozenset(one.node for one in lines), replaced, result, pair is None)
        return GradientChain(origin, line, tuple(lines), frozenset(
            name for one in lines for name in targets_of(one.node)), changed,
            tuple(self._other_uses(of_gradients, lines, applied)))

    def _lines(self, wanted: Sequence[cst.CSTNode]) -> list[Line]:
        """Returns the lines that expressions need, in order."""
        found: set[cst.CSTNode] = set()
        todo = list(wanted)
        while todo:
            node = todo.pop()
            inner: list[cst.CSTNode] = [
                call for call in find_all(node, cst.Call) if self._is_origin(call)]
            for name in variables_in(node, inner):
                for line in self._before:
                    if line.node not in found and binds(line.node, name):
                        found.add(line.node)
                        todo.append(line.node)
                        todo += self._undecided(line)
        return [line for line in self._before if line.node in found]

    def _undecided(self, line: Line) -> list[cst.BaseExpression]:
        """Returns the conditions around a line that `transform_gradients` has to test."""
        return [one.test for one, _ in line.around
                if isinstance(one, cst.If) and self._in_training(one.test) is None]

    @staticmethod
    def _hides(lines: Sequence[Line], replaced: dict[cst.CSTNode, str]) -> bool:
        """Whether lines assign what `transform_gradients` is given before others read it."""
        for index, line in enumerate(lines):
            targets = targets_of(line.node)
            is_given = any(holds(line.node, node) for node in replaced)
            if {"self", "params", "variables"} & targets and not is_given or (
                    "gradients" in targets and any(
                        holds(later.node, node) for later in lines[index + 1:]
                        for node, text in replaced.items() if "gradients" in text)):
                return True
        return False

    def _is_origin(self, call: cst.Call) -> bool:
        return _last(call) == "compute_gradients" and isinstance(call.func, cst.Attribute) or (
            self._names.of_tensorflow(call.func) == "gradients")

    def _are_variables(self, node: cst.BaseExpression, lines: Sequence[Line],
                       origin: cst.Call) -> bool:
        """Whether an expression has the variables that the gradients are computed of."""
        if self._is_all(node):
            return _last(origin) != "compute_gradients"
        if self._picks(node, origin):
            return True
        line = self._binding(node, after=origin) if isinstance(node, cst.Name) else None
        if line is None:
            return False
        value = _without_container(_value(line))
        if self._is_all(value) or self._picks(value, origin):
            return True
        target = line.statement.targets[0].target if isinstance(
            line.statement, cst.Assign) else None
        return (self._pairs_of(value) is origin and isinstance(target, (cst.Tuple, cst.List))
                and len(target.elements) == 2 and target.elements[1].value.deep_equals(
                    node.with_changes(lpar=[], rpar=[])))

    def _picks(self, node: cst.CSTNode | None, origin: cst.Call) -> bool:
        """Whether an expression is `[v for _, v in pairs]`, of the pairs that are computed."""
        pattern = matchers.ListComp(
            matchers.Name(), matchers.CompFor(matchers.Tuple([
                matchers.Element(matchers.Name()), matchers.Element(matchers.Name())]),
                ifs=[], inner_for_in=None))
        if not isinstance(node, cst.ListComp) or not matchers.matches(node, pattern):
            return False
        second = [*names_of_target(node.for_in.target)][1]
        return second.deep_equals(node.elt) and self._value_of(node.for_in.iter) is origin

    def _value_of(self, node: cst.BaseExpression) -> cst.BaseExpression | None:
        """Returns an expression; if it is a variable, what that is assigned once."""
        if not isinstance(node, cst.Name):
            return node
        line = self._binding(node)
        return _value(line) if line else None

    def _binding(self, name: cst.Name, after: cst.Call | None = None) -> Line | None:
        """Returns the line that assigns a variable; None if several may have.

        Args:
            name: the variable.
            after: a call after which it may be assigned again; then that line counts.
        """
        found = [line for line in self._before if binds(line.node, name.value)]
        lines = [line for line in self._before if after and holds(line.node, after)]
        if lines and found and not {*found[-1].around} - {*self._place.around}:
            place = self._before.index(lines[0])
            if all(self._before.index(line) <= place for line in found[:-1]):
                found = found[-1:]
        return found[0] if len(found) == 1 else None

    def _is_all(self, node: cst.CSTNode | None) -> bool:
        return isinstance(node, cst.Call) and not node.args and self._names.of_tensorflow(
            node.func) == "trainable_variables"

    def _pairs_of(self, node: cst.CSTNode | None) -> cst.CSTNode | None:
        """Returns x of `zip(*x)`; if x is a variable that is assigned once, its value."""
        pairs = _zip_of(node)
        return self._value_of(pairs) if pairs is not None else None

    def _replacements(self, searched: Sequence[cst.CSTNode],
                      origin: cst.Call) -> Iterator[tuple[cst.CSTNode, str]]:
        computed = _last(origin) == "compute_gradients"
        for node in searched:
            zips = [call for call in find_all(node, cst.Call) if self._pairs_of(call) is origin]
            yield from ((call, "(gradients, variables)") for call in zips)
            for call in find_all(node, cst.Call):
                if call is origin and not zips:
                    yield call, _PAIRS if computed else "gradients"
                elif self._is_all(call) and not holds(origin, call):
                    yield call, "variables"

    def _dependent(self, lines: Sequence[Line], origin: cst.Call) -> set[str]:
        """Returns the variables that have gradients."""
        found: set[str] = set()
        for line in lines:
            if holds(line.node, origin) or found & variables_in(line.node):
                found |= targets_of(line.node)
        return found

    def _depends_on_number(self, searched: Sequence[cst.CSTNode], lines: Sequence[Line],
                           origin: cst.Call) -> bool:
        """Whether the number of gradients or variables may matter, which is another one in TF2.

        In the Estimator, each table adds a variable, whose gradient is zero: sums are the same.
        """
        lists: set[str] = set()

        def is_list(node: cst.CSTNode | None) -> bool:
            if isinstance(node, cst.Name):
                return node.value in lists
            if isinstance(node, (cst.ListComp, cst.GeneratorExp, cst.SetComp, cst.DictComp)):
                return any(is_list(one.iter) for one in find_all(node, cst.CompFor))
            if isinstance(node, (cst.List, cst.Tuple)):
                return any(is_list(one.value) for one in node.elements)
            if isinstance(node, cst.IfExp):
                return is_list(node.body) or is_list(node.orelse)
            if isinstance(node, (cst.BinaryOperation, cst.BooleanOperation)):
                return is_list(node.left) or is_list(node.right)
            if isinstance(node, cst.Subscript):
                return is_list(node.value)
            return isinstance(node, cst.Call) and (
                node is origin or self._is_all(node) or last_word(node.func) in (
                    *_KEEP_LISTS, _CLIP) and any(is_list(one.value) for one in node.args))

        for line in lines:
            value = _value(line)
            if is_list(value):
                is_pair = isinstance(value, cst.Call) and last_word(value.func) == _CLIP
                names = names_of_target(line.statement.targets[0].target) if isinstance(
                    line.statement, cst.Assign) else ()
                lists |= {name.value for name in [*names][:1 if is_pair else None]
                          if isinstance(name, cst.Name)}
        return any(
            is_list(argument.value) for node in searched for call in find_all(node, cst.Call)
            for argument in call.args if call is not origin
            and last_word(call.func) not in (*_KEEP_LISTS, *_NORMS, "isinstance")
            and not (last_word(call.func) == "add_n" and _are_zero_for_zero(argument.value)))

    def _is_known(self, searched: Sequence[cst.CSTNode], replaced: dict[cst.CSTNode, str],
                  lines: Sequence[Line]) -> bool:
        """Whether lines only compute, from what `transform_gradients` has."""
        own = {name for line in lines for name in targets_of(line.node)}
        tests = [test for line in lines for test in self._undecided(line)]
        inside = (set(parameters(self._function)) | bound_otherwise(self._function) | {
            name for target in find_all(self._function.body, cst.AssignTarget)
            for name in variables_in(target)}) - {"params"}
        for line in lines:
            if not isinstance(line.statement, cst.Assign) or not targets_of(line.node):
                return False
        for node in (*searched, *tests):
            bound = {name.value for one in find_all(node, cst.CompFor)
                     for name in names_of_target(one.target) if isinstance(name, cst.Name)}
            if (variables_in(node, replaced) & inside) - own - bound:
                return False
            if find_all(node, cst.NamedExpr, cst.Lambda, cst.Await) or not all(
                    _keeps_gradients(one) for one in find_all(node, cst.CompIf)):
                return False
            for call in find_all(node, cst.Call):
                if any(holds(one, call) for one in replaced):
                    continue
                name = self._names.of_tensorflow(call.func)
                is_known = name and is_pure_name(name) and not is_random(name) and (
                    name not in _STEPS)
                if not (is_known or self._is_plain_call(call, bound)):
                    return False
            # What variables have in graphs and in TF2.
            if any(one.value.value in bound and one.attr.value not in _ATTRIBUTES
                   for one in find_all(node, cst.Attribute) if isinstance(one.value, cst.Name)):
                return False
        return not {root.value for root in map(innermost, changed_in(self._function.body))
                    if isinstance(root, cst.Name)} & own

    @staticmethod
    def _is_plain_call(call: cst.Call, bound: set[str]) -> bool:
        """Whether a call is of a builtin, of `params...get`, or looks at a variable's name."""
        words = dotted(call.func)
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "get":
            root = innermost(call.func.value)
            return isinstance(root, cst.Name) and root.value == "params"
        return words in [(one,) for one in _BUILTINS] or words[:1] in [
            (one,) for one in bound] and words[1:] in (("name", "startswith"), ("name", "endswith"))

    def _other_uses(self, gradients: set[str], lines: Sequence[Line],
                    applied: cst.BaseExpression) -> Iterator[cst.CSTNode]:
        known = {*(line.node for line in lines), applied}
        return (node for name in sorted(gradients)
                for node in self._names.places_of(self._function, name)
                if not any(holds(one, node) for one in known))


def _depends_on_order(nodes: Sequence[cst.CSTNode], gradients: set[str],
                      names: Names) -> bool:
    """Whether gradients are taken by their places, which are others in TF2."""
    for node in nodes:
        for one in find_all(node, cst.Subscript):
            if isinstance(one.value, cst.Call) and names.of_tensorflow(
                    one.value.func) == _CLIP:
                continue
            if variables_in(one.value) & gradients:
                return True
    return False


def _are_zero_for_zero(node: cst.CSTNode) -> bool:
    """Whether a comprehension has zero for a gradient of zeros, which changes no sum."""
    if not isinstance(node, (cst.ListComp, cst.GeneratorExp)):
        return False
    value = node.elt
    while isinstance(value, cst.Call) and last_word(value.func) in _ZERO_FOR_ZERO and value.args:
        value = value.args[0].value
    return isinstance(node.elt, cst.Call) and isinstance(value, cst.Name)


def _without_container(node: cst.BaseExpression | None) -> cst.BaseExpression | None:
    """Returns x of `list(x)` and `tuple(x)`."""
    if isinstance(node, cst.Call) and dotted(node.func) in (("list",), ("tuple",)) and len(
            node.args) == 1:
        return node.args[0].value
    return node


def _zipped(node: cst.BaseExpression) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    """Returns the arguments of `zip(gradients, variables)`, also in a list."""
    pairs = _without_container(node)
    if isinstance(pairs, cst.Call) and dotted(pairs.func) == ("zip",) and len(
            pairs.args) == 2 and not any(one.star for one in pairs.args):
        return pairs.args[0].value, pairs.args[1].value
    return None


def _zip_of(node: cst.CSTNode | None) -> cst.BaseExpression | None:
    """Returns x of `zip(*x)`."""
    return node.args[0].value if isinstance(node, cst.Call) and dotted(node.func) == (
        "zip",) and len(node.args) == 1 and node.args[0].star == "*" else None


def _keeps_gradients(condition: cst.CompIf) -> bool:
    """Whether a condition of a comprehension leaves out what has no gradient, and no more."""
    return matchers.matches(condition.test, matchers.Comparison(comparisons=[
        matchers.ComparisonTarget(matchers.IsNot(), matchers.Name("None"))]))


def _last(call: cst.Call) -> str:
    return call.func.attr.value if isinstance(call.func, cst.Attribute) else text_of(call.func)


def _value(line: Line) -> cst.BaseExpression | None:
    return line.statement.value if isinstance(line.statement, cst.Assign) else None
