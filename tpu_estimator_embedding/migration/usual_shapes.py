# SPDX-License-Identifier: Apache-2.0
"""Rewrites usual shapes of a model_fn as lines that `train_op` follows, without another meaning.

    loss = train_op = None                        # one line for each
    optimizer = get_optimizer(params, rate)       # the lines of a function of the module
    train_op = build_train_op(loss, params)
    optimizer = A(rate) if c else B(rate)         # under an `if`
    model_fn_builder(rate)                        # see `built_model_fn`
    net = tf.keras.layers.Dense(8, name="a")(net) # in `get_or_create_layer("a", lambda: ...)`

A function takes the place of its call if its results are in the last statements that it runs, and
if no name in it means something else in the model_fn.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import libcst as cst

from tpu_estimator_embedding.migration import built_model_fn
from tpu_estimator_embedding.migration.assignments import assigned, parameters
from tpu_estimator_embedding.migration.effects import SPEC
from tpu_estimator_embedding.migration.layer_problems import layers_with_variables
from tpu_estimator_embedding.migration.made_objects import MadeObjects
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    Statement,
    calls_of,
    dotted,
    find_all,
    replaced,
    variables_in,
)
from tpu_estimator_embedding.migration.source_file import Edit, SourceFile

_TRAINING = ("minimize", "compute_gradients", "apply_gradients")
_MOST_CALLS = 20  # functions that call each other end there


class _NotInlinedError(Exception):
    """A function has a shape that does not stand in the place of its call."""


def rewritten(source: SourceFile, elsewhere: Set[str], *, with_layers: bool
              ) -> tuple[SourceFile, frozenset[str]]:
    """Returns a module with the usual shapes rewritten, and the functions inlined.

    Args:
        source: the module, with explicit imports.
        elsewhere: names that other modules read of it, as `quick_scan.read_by` returns them.
        with_layers: whether the stage needs Keras layers that it finds again.
    """
    inlined = set[str]()
    for _ in range(_MOST_CALLS):
        names = Names(source.module)
        module = source.module
        edit = built_model_fn.partial_of(module, names, _model_fns(module), elsewhere) or (
            _first_shape(module, names, inlined)) or (
                _stored_layers(module, names) if with_layers else None)
        if edit is None:
            break
        source = source.edited(edit).with_distinct_nodes()
    return source, frozenset(inlined)


def _model_fns(module: cst.Module) -> list[cst.FunctionDef]:
    return [function for function in find_all(module, cst.FunctionDef)
            if any(argument.keyword and argument.keyword.value == "train_op"
                   for call in calls_of(function.body, SPEC) for argument in call.args)]


def _first_shape(module: cst.Module, names: Names, inlined: set[str]) -> _ReplaceLine | None:
    """Rewrites the first usual shape of a module; None if there is none."""
    for function in _model_fns(module):
        for line in find_all(function.body, cst.SimpleStatementLine):
            new = _separate_assignments(line) or _condition(line, names) or _inlined(
                line, function, names, inlined)
            if new:
                return _ReplaceLine(line, new)
    return None


def _stored_layers(module: cst.Module, names: Names) -> _StoreLayers | None:
    """Puts the Keras layers that have a name into `get_or_create_layer`; None if there are none.

    The layer is made once, in one place of the model_fn itself. Its name is nowhere else in the
    module, and its arguments are the same in every call and mode.
    """
    layers = layers_with_variables(module, names)
    wrapped = {inner for call in layers for inner in find_all(call, cst.Call) if inner is not call}
    found: dict[cst.CSTNode, tuple[str, str]] = {}
    for function in _model_fns(module):
        several: list[cst.CSTNode] = find_all(
            function.body, cst.For, cst.While, cst.ListComp, cst.SetComp, cst.DictComp,
            cst.GeneratorExp, cst.Lambda, cst.FunctionDef, cst.ClassDef)
        calls = {*find_all(function.body, cst.Call)} - wrapped - {
            call for one in several for call in find_all(one, cst.Call)}
        for call in layers:
            words, name = dotted(call.func), _name_given(call)
            if call in calls and name and words[1:3] == ("keras", "layers") and (
                    words[-1] != "Lambda" and _is_free(name, module)
                    and _are_constant(call, function, names)):
                found[call] = words[0], name
    return _StoreLayers(found) if found else None


def _name_given(call: cst.Call) -> str:
    """Returns the text of the argument `name` of a layer; "" if it is computed or missing."""
    return next((argument.value.value for argument in call.args if argument.keyword
                 and argument.keyword.value == "name"
                 and isinstance(argument.value, cst.SimpleString)), "")


def _is_free(text: str, module: cst.Module) -> bool:
    """Whether the name of a layer is in one place only, and none that TensorFlow may give."""
    name = ast.literal_eval(text)
    texts = [one.evaluated_value for one in find_all(module, cst.SimpleString)]
    return texts.count(name) == 1 and not re.fullmatch(
        "(dense|conv|separable_conv|batch_normalization|dropout|flatten).*", name)


def _are_constant(call: cst.Call, function: cst.FunctionDef, names: Names) -> bool:
    """Whether the arguments of a layer are the same whenever the model_fn is called."""
    constants = MadeObjects(names, [function], ())
    own = {*parameters(function)} - {"features", "labels", "mode"}
    read = {name for argument in call.args for name in variables_in(argument.value)} - {
        "None", "True", "False"}
    return not find_all(call, cst.Lambda) and not read & assigned(function) and all(
        name in own or constants.is_plain(name) or name == "FLAGS" or _is_module(name, names)
        for name in read)


def _is_module(name: str, names: Names) -> bool:
    return bool(names.paths_at_top(name)) and name not in names.globals


def _separate_assignments(line: cst.SimpleStatementLine) -> list[Statement] | None:
    """Returns `a = b = None`, or `a, b = None, None`, as a line for each variable."""
    assign = line.body[0] if len(line.body) == 1 else None
    if not isinstance(assign, cst.Assign):
        return None
    targets = [target.target for target in assign.targets]
    pairs: list[tuple[cst.BaseExpression, cst.BaseExpression]]
    if len(targets) > 1:
        pairs = [(target, assign.value) for target in targets]
    elif isinstance(targets[0], cst.Tuple) and isinstance(assign.value, cst.Tuple) and len(
            targets[0].elements) == len(assign.value.elements):
        pairs = [(target.value, value.value) for target, value in zip(
            targets[0].elements, assign.value.elements, strict=True)]
    else:
        return None
    if not all(isinstance(target, cst.Name) and isinstance(value, cst.Name)
               and value.value == "None" for target, value in pairs):
        return None
    return _with_comments(line, [_assign(target, value) for target, value in pairs])


def _condition(line: cst.SimpleStatementLine, names: Names) -> list[Statement] | None:
    """Returns `x = A() if c else B()` with an optimizer as a statement `if`."""
    assign = line.body[0] if len(line.body) == 1 else None
    if not isinstance(assign, cst.Assign) or len(assign.targets) != 1 or not isinstance(
            assign.value, cst.IfExp) or not isinstance(assign.targets[0].target, cst.Name):
        return None
    value, target = assign.value, assign.targets[0].target
    if not any(names.of_tensorflow(call.func).endswith("Optimizer")
               for call in find_all(value, cst.Call)):
        return None
    return _with_comments(line, [cst.If(
        value.test.with_changes(lpar=[], rpar=[]) if not isinstance(value.test, cst.GeneratorExp)
        else value.test, cst.IndentedBlock([_assign(target, value.body)]),
        cst.Else(cst.IndentedBlock([_assign(target, value.orelse)])))])


def _inlined(line: cst.SimpleStatementLine, function: cst.FunctionDef, names: Names,
             inlined: set[str]) -> list[Statement] | None:
    """Returns a line with the statements of a function above it that makes what trains."""
    for call in find_all(line, cst.Call):
        name = call.func.value if isinstance(call.func, cst.Name) else ""
        called = names.functions.get(name, ())
        if len(called) != 1 or called[0] is function or not _makes_training(called[0], names):
            continue
        try:
            new = _Inlining(called[0], call, function, names).statements(line)
        except _NotInlinedError:
            continue
        inlined.add(name)
        return _with_comments(line, new)
    return None


def _makes_training(function: cst.FunctionDef, names: Names,
                    seen: tuple[cst.FunctionDef, ...] = ()) -> bool:
    """Whether a function makes an optimizer or a train_op, itself or in one that it calls."""
    if function in seen or calls_of(function, SPEC):
        return False
    for call in find_all(function.body, cst.Call):
        if isinstance(call.func, cst.Attribute) and call.func.attr.value in _TRAINING:
            return True
        if names.of_tensorflow(call.func).startswith("train.") and names.of_tensorflow(
                call.func).endswith("Optimizer"):
            return True
        if isinstance(call.func, cst.Name) and any(
                _makes_training(one, names, (*seen, function))
                for one in names.functions.get(call.func.value, ())):
            return True
    return False


class _Inlining:
    """Puts the statements of a function in the place of a call.

    Args:
        called: the function.
        call: in the model_fn.
        function: the model_fn.
        names: of the module.
    """

    def __init__(self, called: cst.FunctionDef, call: cst.Call, function: cst.FunctionDef,
                 names: Names) -> None:
        self._called, self._call, self._function, self._names = called, call, function, names
        self._outside = variables_in(called.body) - {*assigned(called), *parameters(called)}
        self._taken = {*variables_in(function.body), *parameters(function), *assigned(function),
                       *self._outside}

    def statements(self, line: cst.SimpleStatementLine) -> list[Statement]:
        """Returns the line, with the statements above it."""
        self._check()
        given = self._arguments()
        own = {*assigned(self._called), *parameters(self._called)}
        names = {name: cst.Name(self._free(name)) for name in sorted(own)}
        above: list[Statement] = []
        renamed: dict[str, cst.BaseExpression] = {**names}
        for name, value in given.items():
            if self._is_plain(value) and name not in assigned(self._called):
                renamed[name] = value
            else:
                above.append(_assign(names[name], value))
        body = [statement.visit(_Rename(renamed)) for statement in self._body()]
        assign = line.body[0] if len(line.body) == 1 else None
        if isinstance(assign, cst.Assign) and assign.value is self._call and len(
                assign.targets) == 1:
            target = assign.targets[0].target
            return [*above, *self._with_results(body, target)]
        result = cst.Name(self._free(f"{self._called.name.value}_result"))
        [changed] = replaced([line], {self._call: result})
        return [*above, *self._with_results(body, result), changed.with_changes(leading_lines=[])]

    def _check(self) -> None:
        given = self._called.params
        if (self._called.decorators or given.kwonly_params or given.posonly_params
                or not isinstance(given.star_arg, cst.MaybeSentinel) or given.star_kwarg
                or self._called.asynchronous):
            raise _NotInlinedError
        if find_all(self._called.body, cst.FunctionDef, cst.ClassDef, cst.Lambda, cst.Global,
                    cst.Nonlocal, cst.Yield, cst.NamedExpr, cst.Await, cst.Try, cst.While,
                    cst.Import, cst.ImportFrom):
            raise _NotInlinedError
        for loop in find_all(self._called.body, cst.For):
            if find_all(loop, cst.Return):
                raise _NotInlinedError
        if self._outside & {*assigned(self._function), *parameters(self._function)}:
            raise _NotInlinedError

    def _arguments(self) -> dict[str, cst.BaseExpression]:
        order = parameters(self._called)
        given: dict[str, cst.BaseExpression] = {}
        for index, argument in enumerate(self._call.args):
            name = argument.keyword.value if argument.keyword else (
                order[index] if index < len(order) else "")
            if argument.star or name not in order or name in given:
                raise _NotInlinedError
            given[name] = argument.value
        for one in self._called.params.params:
            if one.name.value not in given:
                if one.default is None or not self._is_plain(one.default) or isinstance(
                        one.default, (cst.Name, cst.Attribute)) and dotted(one.default) not in (
                            ("None",), ("True",), ("False",)):
                    raise _NotInlinedError
                given[one.name.value] = one.default
        return given

    def _is_plain(self, value: cst.BaseExpression) -> bool:
        """Whether an expression may stand where a parameter was read."""
        if isinstance(value, cst.Attribute):
            return self._is_plain(value.value)
        if isinstance(value, cst.UnaryOperation):
            return self._is_plain(value.expression)
        if isinstance(value, cst.Name):
            return value.value not in assigned(self._called)
        if isinstance(value, cst.Subscript):
            return isinstance(value.value, cst.Name) and all(
                isinstance(one.slice, cst.Index) and isinstance(one.slice.value, cst.SimpleString)
                for one in value.slice) or isinstance(value.value, cst.Subscript) and (
                    self._is_plain(value.value) and all(isinstance(
                        one.slice, cst.Index) and isinstance(one.slice.value, cst.SimpleString)
                        for one in value.slice))
        return isinstance(value, (cst.SimpleString, cst.BaseNumber))

    def _free(self, name: str) -> str:
        """Returns a name that the model_fn does not use: itself, or with a number."""
        for number in itertools.count(1):
            new = name if number == 1 else f"{name}_{number}"
            if new not in self._taken:
                self._taken.add(new)
                return new
        raise AssertionError

    def _body(self) -> list[Statement]:
        body: list[Any] = list(self._called.body.body)
        if not isinstance(self._called.body, cst.IndentedBlock):
            raise _NotInlinedError
        first = body[0]
        if isinstance(first, cst.SimpleStatementLine) and isinstance(
                first.body[0], cst.Expr) and isinstance(
                    first.body[0].value, (cst.SimpleString, cst.ConcatenatedString)):
            body = body[1:]
        return body

    def _with_results(self, body: Sequence[Any], target: cst.BaseAssignTargetExpression,
                      ) -> list[Statement]:
        statements, ends = _without_returns(body, target)
        if not ends:
            raise _NotInlinedError
        return statements


def _without_returns(body: Sequence[Any], target: cst.BaseAssignTargetExpression,
                     ) -> tuple[list[Statement], bool]:
    """Returns statements that assign what others return, and whether they always do, or raise."""
    new: list[Statement] = []
    for index, statement in enumerate(body):
        if isinstance(statement, cst.SimpleStatementLine):
            last = statement.body[-1]
            if isinstance(last, cst.Return):
                if last.value is None or len(statement.body) > 1:
                    raise _NotInlinedError
                new += _results(statement, target, last.value)
                return new, True
            new.append(statement)
            if isinstance(last, cst.Raise):
                return new, True
        elif not find_all(statement, cst.Return):
            new.append(statement)
        elif isinstance(statement, cst.With):
            inside, ends = _without_returns(statement.body.body, target)
            if not ends:
                raise _NotInlinedError
            new.append(statement.with_changes(body=cst.IndentedBlock(inside)))
            return new, True
        elif isinstance(statement, cst.If):
            new.append(_if_without_returns(statement, body[index + 1:], target))
            return new, True
        else:
            raise _NotInlinedError
    return new, False


def _if_without_returns(statement: cst.If, rest: Sequence[Any],
                        target: cst.BaseAssignTargetExpression) -> cst.If:
    """Returns an `if` with what follows it in the branches that do not return."""
    inside, ends = _without_returns(statement.body.body, target)
    if not ends:
        inside, ends = _without_returns([*statement.body.body, *rest], target)
    other = statement.orelse
    if isinstance(other, cst.If):
        orelse: cst.If | cst.Else = _if_without_returns(other, rest, target)
        left: list[Statement] = []
        others_end = True
    else:
        before = list(other.body.body) if other is not None else []
        left, others_end = _without_returns([*before, *rest], target)
        orelse = cst.Else(cst.IndentedBlock(left))
    if not ends or not others_end:
        raise _NotInlinedError
    return statement.with_changes(body=cst.IndentedBlock(inside), orelse=orelse)


def _results(line: cst.SimpleStatementLine, target: cst.BaseAssignTargetExpression,
             value: cst.BaseExpression) -> list[Statement]:
    if isinstance(target, cst.Tuple):
        if not isinstance(value, cst.Tuple) or len(value.elements) != len(target.elements):
            raise _NotInlinedError
        targets = [element.value for element in target.elements]
        bound = {name.value for one in targets for name in find_all(one, cst.Name)}
        if bound & {name.value for name in find_all(value, cst.Name)}:
            raise _NotInlinedError
        return [_assign(one, element.value)
                for one, element in zip(targets, value.elements, strict=True)]
    return [_assign(target, value).with_changes(leading_lines=line.leading_lines)]


def _assign(target: Any, value: cst.BaseExpression) -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(target)], value)])


def _with_comments(line: cst.SimpleStatementLine, new: Sequence[Any]) -> list[Statement]:
    """Returns statements with the comments above a line above the first of them."""
    return [new[0].with_changes(leading_lines=[*line.leading_lines, *new[0].leading_lines]),
            *new[1:]]


class _ReplaceLine(Edit):
    def __init__(self, line: cst.SimpleStatementLine, new: Iterable[Statement]) -> None:
        super().__init__()
        self._line, self._new = line, list(new)

    def leave_SimpleStatementLine(self, original_node: cst.SimpleStatementLine,
                                  updated_node: cst.SimpleStatementLine) -> Any:
        return cst.FlattenSentinel(self._new) if original_node is self._line else updated_node


class _StoreLayers(Edit):
    """Writes `root.compat.v1.keras.utils.get_or_create_layer(name, lambda: call)` for calls."""

    def __init__(self, layers: Mapping[cst.CSTNode, tuple[str, str]]) -> None:
        super().__init__()
        self._layers = layers

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        if original_node not in self._layers:
            return updated_node
        root, name = self._layers[original_node]
        store = cst.parse_expression(
            f"{root}.compat.v1.keras.utils.get_or_create_layer({name}, lambda: 0)")
        assert isinstance(store, cst.Call)
        made = store.args[1].value
        return store.with_changes(args=[store.args[0], store.args[1].with_changes(
            value=made.with_changes(body=updated_node))])


class _Rename(cst.CSTTransformer):
    """Replaces variables, but not attributes and keywords."""

    def __init__(self, names: dict[str, cst.BaseExpression]) -> None:
        super().__init__()
        self._names = names

    def leave_Attribute(self, original_node: cst.Attribute,
                        updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name,
                   updated_node: cst.Name) -> cst.BaseExpression:
        return self._names.get(original_node.value, updated_node)
