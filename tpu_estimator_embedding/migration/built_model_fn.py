# SPDX-License-Identifier: Apache-2.0
"""Rewrites a function that makes a model_fn, as BERT's programs have it, with functools.partial.

    def model_fn_builder(rate):                       def model_fn(features, labels, mode, params,
        def model_fn(features, labels, mode, params):              rate):
            ...                                           ...
        return model_fn

    model_fn_builder(0.1)                             functools.partial(model_fn, rate=0.1)

The functions of a training step can then have the parameters that they need.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration import unused_configs
from tpu_estimator_embedding.migration.assignments import assigned, parameters
from tpu_estimator_embedding.migration.model_fn_given import makes_iterator
from tpu_estimator_embedding.migration.names import Names
from tpu_estimator_embedding.migration.node_search import dotted, find_all, find_names
from tpu_estimator_embedding.migration.source_file import Edit

_DOCSTRING = matchers.SimpleStatementLine([matchers.Expr(
    matchers.SimpleString() | matchers.ConcatenatedString())])
_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def partial_of(module: cst.Module, names: Names, model_fns: Iterable[cst.FunctionDef],
               elsewhere: Set[str]) -> Edit | None:
    """Returns what rewrites the first such function that is called once; None without one.

    Args:
        module: the module.
        names: its names.
        model_fns: the functions that return a TPUEstimatorSpec.
        elsewhere: names that other modules read of it, as `quick_scan.read_by` returns them.
    """
    for builder in module.body:
        if not isinstance(builder, cst.FunctionDef):
            continue
        model_fn, name = _only_function(builder), builder.name.value
        calls = [call for call in find_all(module, cst.Call) if dotted(call.func) == (name,)]
        if model_fn not in [*model_fns] or len(calls) != 1 or elsewhere & {"*", name}:
            continue
        assert model_fn is not None
        if {use.root for use in names.uses(name)} != {builder.name, calls[0].func} or (
                "functools" in names.global_names
                and names.paths_at_top("functools") != ["functools"]):
            continue
        given = _given(builder, model_fn, calls[0])
        if given is not None:
            return _ToPartial(builder, _free_name(builder, model_fn, module), calls[0], given,
                              elsewhere, has_import="functools" in names.global_names)
    return None


def _only_function(builder: cst.FunctionDef) -> cst.FunctionDef | None:
    """Returns the function that another one only defines and returns."""
    body = [one for one in builder.body.body if not matchers.matches(one, _DOCSTRING)]
    if len(body) != 2 or not isinstance(body[0], cst.FunctionDef):
        return None
    returned = matchers.SimpleStatementLine([matchers.Return(matchers.Name(body[0].name.value))])
    return body[0] if matchers.matches(body[1], returned) else None


def _given(builder: cst.FunctionDef, model_fn: cst.FunctionDef,
           call: cst.Call) -> dict[str, cst.Arg] | None:
    """Returns parameter -> argument of the call; None if a parameter would not be the same."""
    own = [one.name.value for one in builder.params.params]
    has_others = any(
        function.decorators or function.asynchronous or function.params.star_kwarg
        or not isinstance(function.params.star_arg, cst.MaybeSentinel)
        or len(function.params.params) != len(parameters(function))
        for function in (builder, model_fn))
    odd: list[cst.CSTNode] = [*find_names(model_fn.body, model_fn.name.value),
                              *find_all(model_fn, cst.Nonlocal)]
    if has_others or odd or makes_iterator(call) or {*own} & {
            *assigned(model_fn), *parameters(model_fn)} or any(
                one.default for one in model_fn.params.params):
        return None
    given: dict[str, cst.Arg] = {}
    for index, argument in enumerate(call.args):
        name = argument.keyword.value if argument.keyword else own[index:index + 1] and own[index]
        if argument.star or not name or name in given or name not in own:
            return None
        given[name] = argument
    needed = {one.name.value for one in builder.params.params if one.default is None}
    return given if needed <= given.keys() else None


def _free_name(builder: cst.FunctionDef, model_fn: cst.FunctionDef, module: cst.Module) -> str:
    outside = {name.value for statement in module.body if statement is not builder
               for name in find_all(statement, cst.Name)}
    name = model_fn.name.value
    while name in outside:
        name = f"own_{name}"
    return name


class _ToPartial(Edit):
    """Puts a model_fn in the place of its builder, and functools.partial in that of its call."""

    def __init__(self, builder: cst.FunctionDef, name: str, call: cst.Call,
                 given: dict[str, cst.Arg], elsewhere: Set[str], *, has_import: bool) -> None:
        super().__init__()
        self._builder, self._name, self._call = builder, name, call
        self._keywords = {argument: name for name, argument in given.items()}
        self._elsewhere, self._has_import = elsewhere, has_import

    def leave_FunctionDef(self, original_node: cst.FunctionDef,
                          updated_node: cst.FunctionDef) -> cst.FunctionDef:
        if original_node is not self._builder:
            return updated_node
        model_fn = next(one for one in updated_node.body.body if isinstance(one, cst.FunctionDef))
        given = {*self._keywords.values()}
        own = sorted((one.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT)
                      if one.name.value in given else one for one in updated_node.params.params),
                     key=lambda one: one.default is not None)
        first = [*model_fn.params.params]
        if first and own:
            first[-1] = first[-1].with_changes(comma=_COMMA)
        comments = [line for line in model_fn.leading_lines if line.comment]
        return model_fn.with_changes(
            name=cst.Name(self._name), leading_lines=[*updated_node.leading_lines, *comments],
            lines_after_decorators=updated_node.lines_after_decorators,
            params=model_fn.params.with_changes(params=[*first, *own]))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if original_node is not self._call:
            return updated_node
        keywords = [new.with_changes(
            keyword=cst.Name(self._keywords[old]),
            equal=old.equal if old.keyword else cst.AssignEqual(
                cst.SimpleWhitespace(""), cst.SimpleWhitespace("")))
            for old, new in zip(original_node.args, updated_node.args, strict=True)]
        function = cst.Arg(cst.Name(self._name), comma=_COMMA if keywords else
                           cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(
            func=cst.parse_expression("functools.partial"), args=[function, *keywords])

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        if self._has_import:
            return updated_node
        return unused_configs.with_imports(updated_node, "import functools\n", self._elsewhere)
