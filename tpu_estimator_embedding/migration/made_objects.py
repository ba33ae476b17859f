# SPDX-License-Identifier: Apache-2.0
"""Tells whether an object that a model_fn changes in place was made in the same call of it.

An object of the module, of params or of another module lives longer than a call, and the forward
pass is called more often than a model_fn. A variable is followed to every value that it may have,
through helpers' parameters and results.
"""

import builtins
from collections.abc import Iterator, Sequence

import libcst as cst

from tpu_estimator_embedding.migration.assignments import (
    assigned,
    bindings_in,
    innermost,
    names_of_target,
    parameters,
)
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    calls_of,
    dotted,
    find_all,
    find_names,
    holds,
    last_word,
)

_DISPLAYS = (cst.List, cst.Dict, cst.Set, cst.Tuple, cst.BaseComp)
# What returns a new object whatever it is called on.
_COPYING_METHODS = ("copy", "split", "rsplit", "splitlines", "as_list", "tolist")
_COPYING = ("copy.deepcopy", "numpy.array", "numpy.copy")
# Builtins that return an element of their argument, not a new object.
_ELEMENTS = ("next", "min", "max", "getattr")
_OF_ONE_VALUE = (cst.SimpleString, cst.ConcatenatedString, cst.FormattedString, cst.BaseNumber,
                 cst.Lambda, cst.Comparison, cst.Ellipsis)
_Seen = frozenset[tuple[cst.FunctionDef, str, bool]]


class MadeObjects:
    """The objects that a function and the functions that it calls make.

    Args:
        names: of the module.
        called: the function, then those that it calls.
        longer_lived: parameters of the function whose objects outlive a call.
    """

    def __init__(self, names: Names, called: Sequence[cst.FunctionDef],
                 longer_lived: Sequence[str]) -> None:
        self._names, self._called, self._longer_lived = names, called, longer_lived

    def have(self, changed: cst.BaseExpression, function: cst.FunctionDef,
             place: cst.CSTNode) -> bool:
        """Whether the value of an expression is such an object, wherever it comes from.

        Args:
            changed: the expression whose value is changed.
            function: the function that changes it.
            place: where it does so.
        """
        root = innermost(changed)
        if root is changed and isinstance(root, cst.Name) and root.value in parameters(
                function) and root.value not in self._longer_lived:
            before = function.body.body
            index = next((index for index, one in enumerate(before) if holds(one, place)), 0)
            for statement in before[:index]:
                for target, value, needs_all in bindings_in(statement):
                    if target == root.value and not needs_all and value is not None and self._is(
                            value, function, frozenset(), all_of_it=False):
                        return True  # `x = list(x)`, above the change
        return self._is(changed, function, frozenset(), all_of_it=False)

    def is_plain(self, name: str) -> bool:
        """Whether a variable of the module has numbers and texts only, which nothing changes."""
        values = self._names.globals.get(name, ())
        return bool(values) and all(map(_is_plain, values))

    def _is(self, value: cst.BaseExpression, function: cst.FunctionDef, seen: _Seen, *,
            all_of_it: bool) -> bool:
        """Whether a value, with all that it holds if asked for, is made in the forward pass."""
        if isinstance(value, cst.Name):
            return self._is_name(value.value, function, seen, all_of_it)
        if isinstance(value, cst.Call):
            return self._is_result(value, function, seen, all_of_it)
        if isinstance(value, (cst.Subscript, cst.Attribute)):
            if isinstance(value, cst.Attribute) and self._names.of_tensorflow(value):
                return True
            inner = innermost(value)
            assert isinstance(inner, cst.BaseExpression)
            return self._is(inner, function, seen, all_of_it=True)
        if isinstance(value, cst.IfExp):
            return all(self._is(one, function, seen, all_of_it=all_of_it)
                       for one in (value.body, value.orelse))
        if isinstance(value, cst.BooleanOperation):
            return all(self._is(one, function, seen, all_of_it=all_of_it)
                       for one in (value.left, value.right))
        if isinstance(value, cst.NamedExpr):
            return self._is(value.value, function, seen, all_of_it=all_of_it)
        if isinstance(value, _OF_ONE_VALUE) or not all_of_it:
            return True
        return all(self._is(one, function, seen, all_of_it=True) for one in _parts(value))

    def _is_name(self, name: str, function: cst.FunctionDef, seen: _Seen,
                 all_of_it: bool) -> bool:
        if (function, name, all_of_it) in seen:
            return True
        seen |= {(function, name, all_of_it)}
        found = [(value, needs_all or all_of_it) for target, value, needs_all in bindings_in(
            function.body) if target == name]
        is_parameter = name in parameters(function)
        if not found and not is_parameter:
            return self._is_of_outside(name, function, seen, all_of_it)
        return (not is_parameter or self._is_parameter(name, function, seen, all_of_it)) and all(
            value is None or self._is(value, function, seen, all_of_it=needs_all)
            for value, needs_all in found)

    def _is_of_outside(self, name: str, function: cst.FunctionDef, seen: _Seen,
                       all_of_it: bool) -> bool:
        around = [one for one in self._called if one is not function and holds(one.body, function)
                  and (name in parameters(one) or name in assigned(one))]
        if around:
            inner = next(one for one in around if not any(
                other is not one and holds(one.body, other) for other in around))
            return self._is_name(name, inner, seen, all_of_it)
        return self.is_plain(name) or name in self._names.functions or (
            name not in self._names.globals and hasattr(builtins, name))

    def _is_parameter(self, name: str, function: cst.FunctionDef, seen: _Seen,
                      all_of_it: bool) -> bool:
        if function is self._called[0]:
            return name not in self._longer_lived
        if name in ("self", "cls"):
            return name == "self" and not all_of_it and self._makes_all_of(function)
        uses = [node for caller in self._called
                for node in find_names(caller.body, function.name.value)
                if node is not function.name]
        calls = [(caller, call) for caller in self._called
                 for call in calls_of(caller.body, function.name.value)]
        return 0 < len(uses) <= len(calls) and all(
            given is not None and self._is(given, caller, seen, all_of_it=all_of_it)
            for caller, call in calls for given in [_argument(call, function, name)])

    def _makes_all_of(self, method: cst.FunctionDef) -> bool:
        """Whether every object of the class of a method is made in the forward pass."""
        around = [node for nodes in self._names.classes.values() for node in nodes
                  if method in node.body.body]
        return len(around) == 1 and self._makes_objects_of(around[0])

    def _makes_objects_of(self, node: cst.ClassDef, seen: tuple[cst.CSTNode, ...] = ()) -> bool:
        """Whether a class, and each that derives from it, is only called, in the forward pass."""
        name, classes = node.name.value, self._names.classes
        if node in seen:
            return True
        bases = [dotted(one.value) for one in node.bases if dotted(one.value) != ("object",)]
        own = [classes[base[0]][0] for base in bases if base[:1] and base[0] in classes]
        is_plain = len(own) == len(bases) and not node.decorators and not node.keywords and not any(
            find_all(statement, cst.Call) for statement in node.body.body
            if isinstance(statement, cst.SimpleStatementLine))  # such as a descriptor
        if not is_plain or len(classes[name]) > 1 or name in self._names.globals:
            return False
        calls = {call.func for function in self._called for call in calls_of(function.body, name)
                 if self._is_of_pass(function, (*seen, node))}
        derived = [one for nodes in self._names.classes.values() for one in nodes
                   if any(dotted(base.value) == (name,) for base in one.bases)]
        known = {node.name, *calls, *(base.value for one in derived for base in one.bases),
                 *(call.args[0].value for call in calls_of(node, "super") if call.args)}
        return all(chain.root in known for chain in self._names.uses(name)) and all(
            self._makes_objects_of(one, (*seen, node)) for one in (*own, *derived))

    def _is_of_pass(self, function: cst.FunctionDef, seen: tuple[cst.CSTNode, ...]) -> bool:
        """Whether nothing but the forward pass calls a function."""
        if function in seen or holds(self._called[0], function):
            return True
        around = [node for nodes in self._names.classes.values() for node in nodes
                  if holds(node, function)]
        if around:
            return all(self._makes_objects_of(one, (*seen, function)) for one in around)
        callers = [one for one in self._called if self._is_of_pass(one, (*seen, function))
                   ] if function in self._names.module.body else []
        return {use.root for use in self._names.uses(function.name.value)} <= {
            function.name, *(name for one in callers
                             for name in find_names(one.body, function.name.value))}

    def _is_result(self, call: cst.Call, function: cst.FunctionDef, seen: _Seen,
                   all_of_it: bool) -> bool:
        name = last_word(call.func)
        paths = self._names.paths(call.func)
        given = [argument.value for argument in call.args]
        if self._names.of_tensorflow(call.func) or set(paths) & set(_COPYING):
            return True
        own = [*self._names.functions.get(name, ()), *self._names.methods.get(name, ())]
        if isinstance(call.func, cst.Attribute):
            own = self._names.methods.get(name, []) if not paths else []
            if not paths and not own:
                if name in _COPYING_METHODS and not all_of_it:
                    return True
                given.append(call.func.value)
        if own:
            returned = [(line.value, one) for one in own
                        for line in find_all(one.body, cst.Return)]
            return all(value is None or self._is(value, one, seen, all_of_it=all_of_it)
                       for value, one in returned)
        if name in self._names.classes and not paths:
            return not all_of_it  # which may share what its class has
        if not paths and isinstance(call.func, cst.Name) and hasattr(
                builtins, name) and name not in _ELEMENTS and not all_of_it:
            return True
        return all(self._is(value, function, seen, all_of_it=True) for value in given)


def _argument(call: cst.Call, function: cst.FunctionDef, name: str) -> cst.BaseExpression | None:
    """Returns what a call gives for a parameter, or its default; None if that does not show."""
    if any(argument.star for argument in call.args):
        return None
    order = [one for one in parameters(function) if one not in ("self", "cls")]
    for index, argument in enumerate(call.args):
        key = argument.keyword.value if argument.keyword else (
            order[index] if index < len(order) else "")
        if key == name:
            return argument.value
    given = function.params
    return next((one.default for one in (*given.posonly_params, *given.params,
                                         *given.kwonly_params) if one.name.value == name), None)


def _parts(value: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yields the expressions that a literal, an operation or a comprehension is made of."""
    bound = {name.value for one in find_all(value, cst.CompFor)
             for name in names_of_target(one.target)
             if isinstance(name, cst.Name)}
    for child in value.children:
        if isinstance(child, (cst.Name, cst.Call, cst.Subscript, cst.Attribute)):
            if not (isinstance(root := innermost(child), cst.Name) and root.value in bound):
                yield child
        else:
            yield from _parts(child)


def may_be_container(value: cst.BaseExpression) -> bool:
    """Whether an expression is written as a list, a dictionary or a set."""
    return isinstance(value, _DISPLAYS) or isinstance(value, cst.Call) and dotted(
        value.func) in (("list",), ("dict",), ("set",), ("sorted",))


def _is_plain(value: cst.BaseExpression) -> bool:
    if isinstance(value, cst.Tuple):
        return all(_is_plain(element.value) for element in value.elements)
    if isinstance(value, cst.UnaryOperation):
        return _is_plain(value.expression)
    if isinstance(value, cst.BinaryOperation):
        return _is_plain(value.left) and _is_plain(value.right)
    return isinstance(value, (*_OF_ONE_VALUE, cst.Name)) and (
        not isinstance(value, cst.Name) or value.value in ("None", "True", "False"))
