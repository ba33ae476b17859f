# SPDX-License-Identifier: Apache-2.0
"""Finds the function that a TPUEstimator is given as its model_fn.

    TPUEstimator(model_fn, ...)
    TPUEstimator(functools.partial(model_fn, units=8), ...)
    TPUEstimator(model.model_fn, ...)  # of an object of the module's class, or of another module
    TPUEstimator(make_model_fn(8), ...)  # a function that defines and returns it
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import libcst as cst

from tpu_estimator_embedding.migration import model_fn_parts, unused_configs
from tpu_estimator_embedding.migration.effects import Problem
from tpu_estimator_embedding.migration.model_fn_parts import PARAMETERS, NotSplitError
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import (
    called_name,
    dotted,
    find_all,
    holds,
    node_target,
    shown,
    text_of,
    variables_in,
)

_WRITTEN = ("dense_learning_rate", "make_optimizer")


@dataclasses.dataclass(frozen=True)
class GivenModelFn:
    """A model_fn, as a TPUEstimator is given it.

    Attributes:
        function: the function.
        expression: what the TPUEstimator is given, or a variable of it was assigned.
        owner: the text of the object whose method it is; "" if it is a function.
        own: parameter, other than those of every model_fn -> the text of its value; None for its
            default.
        partial: the text of `functools.partial`.
        module: the module of the program that has it, as its import names that; "" if it is the
            one of the TPUEstimator.
        prefix: the text before its name, such as `model.`, for a name of another module.
        maker: the function of another module that defines and returns it; None if it is one of
            that module itself.
        problems: what is not known to be the same in TF2.
    """

    function: cst.FunctionDef
    expression: cst.CSTNode
    owner: str = ""
    own: Mapping[str, str | None] = dataclasses.field(default_factory=dict)
    partial: str = ""
    module: str = ""
    prefix: str = ""
    maker: cst.FunctionDef | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def is_method(self) -> bool:
        """Whether it is a method."""
        return bool(self.owner)

    @property
    def name(self) -> str:
        """The name by which modules read it, or what makes it."""
        return (self.maker or self.function).name.value

    @property
    def path(self) -> str:
        """Its dotted name in the module of the TPUEstimator, if it is one of another module."""
        return f"{self.module}{'.' if self.module.strip('.') else ''}{self.name}"

    def called(self, name: str, own: Sequence[str]) -> str:
        """Returns an expression for a function that is written beside the model_fn.

        Args:
            name: of the function.
            own: those of the parameters that it has.
        """
        if self.is_method:
            return f"{self.owner}.{name}"
        name = f"{self.prefix}{name}"
        given = [f"{one}={self.own[one]}" for one in own if self.own[one] is not None]
        return f"{self.partial}({', '.join((name, *given))})" if given else name

    def parameters(self, usual: Sequence[str], own: Sequence[str]) -> str:
        """Returns the text of the parameters of a function that is written beside the model_fn."""
        code = cst.Module([]).code_for_node
        defaults = {one.name.value: one.default for one in self.function.params.params}
        named = [one if self.own[one] is not None else f"{one}={code(default)}"
                 for one in own if one != "self"
                 for default in [defaults[one] or cst.Name("None")]]
        return ", ".join([*["self"] * self.is_method, *usual, *["*"] * bool(named), *named])


def find(given: cst.BaseExpression | None, call: cst.Call, names: Names,
         assigned: Callable[[cst.Name, cst.Call], cst.BaseExpression | None],
         names_of: Callable[[str], Names | None]) -> GivenModelFn:
    """Finds a model_fn.

    Args:
        given: the argument of the TPUEstimator.
        call: the TPUEstimator.
        names: of its module.
        assigned: returns the only value of a variable.
        names_of: returns the names of another module of the program, given what imports it.

    Raises:
        NotSplitError: it is given in another way.
    """
    return _Search(call, names, assigned, names_of).find(given)


_ITERATORS = ("enumerate", "filter", "iter", "map", "reversed", "zip")


class _Search:
    def __init__(self, call: cst.Call, names: Names,
                 assigned: Callable[[cst.Name, cst.Call], cst.BaseExpression | None],
                 names_of: Callable[[str], Names | None]) -> None:
        self._call, self._module, self._names = call, names.module, names
        self._assigned, self._names_of = assigned, names_of

    def find(self, given: cst.BaseExpression | None) -> GivenModelFn:
        """Finds the model_fn that an expression is."""
        variable, value = "", given
        if isinstance(given, cst.Name) and not self._is_function(given):
            value = self._value_of(given)
            variable = given.value if value is not given else ""
        if isinstance(value, cst.Name):
            return self._with_own(self._function(value))
        if isinstance(value, cst.Call) and "functools.partial" in self._names.paths(value.func):
            return self._partial(value, variable)
        if isinstance(value, cst.Attribute):
            return self._with_own(self._elsewhere(value) or self._method(value))
        name = called_name(value) if isinstance(value, cst.Call) else ""
        made = [inner for node in (*self._names.functions.get(name, ()),
                                   *self._names.methods.get(name, ()))
                for inner in [_returned(node)] if inner is not None]
        found = self._made_elsewhere(value) if isinstance(value, cst.Call) and not made else (
            GivenModelFn(made[0], value or self._call) if len(made) == 1 else None)
        if found is None or not model_fn_parts.returns_specs(found.function):
            raise NotSplitError(
                "its model_fn is neither a function of this module, or of one that is given to "
                "`migrate`, too, nor the result of one that defines and returns it: pass the "
                "function itself, a method of an object, or `functools.partial` of it with "
                "arguments by name", self._call)
        return self._with_own(found)

    def _made_elsewhere(self, call: cst.Call) -> GivenModelFn | None:
        """Returns the model_fn that a function of another module defines and returns."""
        try:
            maker = self._elsewhere(call.func)
        except NotSplitError:  # not of the program
            return None
        inner = _returned(maker.function) if maker else None
        if maker is None or inner is None:
            return None
        return dataclasses.replace(maker, function=inner, maker=maker.function, expression=call)

    def _is_function(self, name: cst.Name) -> bool:
        """Whether a name is that of a function where it is used, not of a variable."""
        return any(isinstance(one, cst.FunctionDef) for one in self._names.bound_by(name))

    def _value_of(self, name: cst.Name) -> cst.BaseExpression:
        """Returns the only value that a variable is assigned; the variable if there is none."""
        found = self._assigned(name, self._call)
        if found is not None:
            return found
        values = [line.value for line in find_all(self._module, cst.Assign)
                  if [dotted(one.target) for one in line.targets] == [(name.value,)]]
        return values[0] if len(values) == 1 else name

    def _function(self, name: cst.Name) -> GivenModelFn:
        found = self._names.functions.get(name.value, [])
        if len(found) == 1 and all(one is found[0] for one in self._names.bound_by(name)):
            return GivenModelFn(found[0], name)
        elsewhere = self._elsewhere(name)
        if elsewhere is None:
            raise NotSplitError(
                f"its model_fn, `{name.value}`, is not one function of this module", name)
        return elsewhere

    def _elsewhere(self, name: cst.BaseExpression) -> GivenModelFn | None:
        """Returns a function of another module; None for a name of this one.

        Raises:
            NotSplitError: it is none, or the module is not one of the program.
        """
        paths = self._names.paths(name)
        if not paths:
            return None
        last = paths[0].rpartition(".")[2]
        module = paths[0].removesuffix(last)  # `.` is a package, `.model.` a module of it
        module = module.removesuffix(".") if module.strip(".") else module
        names = self._names_of(module) if len(paths) == 1 else None
        found = names.functions.get(last, []) if names else []
        if names is None:
            raise NotSplitError(
                f"its model_fn is `{paths[0]}` of another module, which must be given to "
                "`migrate`, too, as in `migrate main.py .`", name)
        if len(found) != 1 or found[0] not in names.module.body or names.paths_at_top(last):
            raise NotSplitError(
                f"its model_fn is `{paths[0]}`, which is not one function at the top of that "
                "module: import it from the module that defines it", name)
        prefix = text_of(name.value) + "." if isinstance(name, cst.Attribute) else ""
        return GivenModelFn(found[0], name, module=module, prefix=prefix)

    def _with_own(self, given: GivenModelFn) -> GivenModelFn:
        """Adds the parameters that have a default."""
        parameters = given.function.params.params
        own = {one.name.value: None for one in parameters
               if one.name.value not in PARAMETERS and one.default is not None}
        return dataclasses.replace(given, own={**own, **given.own})

    def _partial(self, value: cst.Call, variable: str) -> GivenModelFn:
        first, *others = value.args or [cst.Arg(cst.Name("None"))]
        called = self._elsewhere(first.value) if isinstance(first.value, cst.Attribute) else (
            self._function(first.value) if isinstance(first.value, cst.Name) else None)
        if called is None:
            raise NotSplitError(f"`{shown(value)}`: give `functools.partial` a function by its "
                                "name, or give a method without it", value)
        if any(one.star or one.keyword is None for one in others):
            raise NotSplitError(f"`{shown(value)}`: give the arguments of a model_fn by "
                                "name", value)
        calls = unused_configs.HarmlessCalls(self._module)
        own: dict[str, str | None] = {}
        for one in others:
            assert one.keyword is not None
            name = one.keyword.value
            if name in PARAMETERS:
                raise NotSplitError(f"`{shown(one)}` of `functools.partial`: give it to the "
                                    "TPUEstimator", one)
            if makes_iterator(one.value):
                raise NotSplitError(f"`{shown(one)}` of `functools.partial` can be read once, and "
                                    "the forward pass is called more often: pass a list", one)
            if not variable and not calls.are_all_of(one.value):
                raise NotSplitError(f"`{shown(one)}` of `functools.partial` would be "
                                    "computed again: assign it to a variable above", one)
            own[name] = f'{variable}.keywords["{name}"]' if variable else text_of(one.value)
        return self._with_own(dataclasses.replace(
            called, expression=value, own=own, partial=text_of(value.func)))

    def _method(self, value: cst.Attribute) -> GivenModelFn:
        owner, name = value.value, value.attr.value
        found = self._names.methods.get(name, [])
        classes = [node for nodes in self._names.classes.values() for node in nodes
                   if any(one in node.body.body for one in found)]
        if len(found) != 1 or len(classes) != 1 or not isinstance(owner, cst.Name) or (
                not self._is_of(owner, classes[0])):
            raise NotSplitError(
                f"its model_fn is `{shown(value)}`, which is not known to be a method of a "
                "class of this module: assign an object of the class to a variable, and pass its "
                "method", value)
        taken = sorted({*_WRITTEN} & {*self._names.methods})
        if taken:
            raise NotSplitError(f"a class has the methods {taken} already: rename them", value)
        return GivenModelFn(found[0], value, text_of(owner), {"self": None},
                            problems=(*self._changed_attributes(found[0]),))

    def _is_of(self, owner: cst.Name, of: cst.ClassDef) -> bool:
        """Whether a variable is an object of a class of the module."""
        if owner.value == "self":
            return any(holds(of, node) for node in [self._call])
        value = self._value_of(owner)
        return isinstance(value, cst.Call) and dotted(value.func) == (of.name.value,)

    def _changed_attributes(self, function: cst.FunctionDef) -> list[Problem]:
        """Returns the changes of the object's attributes, which a Trainer reads once."""
        read = {node.attr.value for node in find_all(function.body, cst.Attribute)
                if dotted(node.value) == ("self",)}
        first = {node for made in self._names.methods.get("__init__", ())
                 for node in find_all(made, cst.AssignTarget, cst.AugAssign, cst.AnnAssign)}
        return [Problem(
            node, "TEE410", f"`{text_of(target)}` is changed: a Trainer reads it when it traces a "
            "mode, the Estimator at every call of train")
            for node in find_all(self._module, cst.AssignTarget, cst.AugAssign, cst.AnnAssign)
            if node not in first and not holds(function, node)
            for target in [node_target(node)]
            if isinstance(target, cst.Attribute) and target.attr.value in read]


def makes_iterator(node: cst.CSTNode) -> bool:
    """Whether an expression makes what can be read once, as far as it shows."""
    return bool(find_all(node, cst.GeneratorExp)) or any(
        dotted(call.func) in [(name,) for name in _ITERATORS] for call in find_all(node, cst.Call))


def _returned(function: cst.FunctionDef) -> cst.FunctionDef | None:
    """Returns the nested function that is all that a function returns."""
    inner = [node for node in function.body.body if isinstance(node, cst.FunctionDef)]
    nested = {node for one in inner for node in find_all(one, cst.Return)}
    returns = [node.value for node in find_all(function.body, cst.Return)
               if node not in nested]
    found = [one for one in inner if isinstance(returns[0], cst.Name)
             and one.name.value == returns[0].value] if len(returns) == 1 else []
    bound = [node for node in find_all(function.body, cst.AssignTarget)
             if found and found[0].name.value in variables_in(node)]
    return found[0] if len(found) == 1 and not bound else None
