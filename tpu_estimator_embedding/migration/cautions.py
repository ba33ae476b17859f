# SPDX-License-Identifier: Apache-2.0
"""Findings in a rewritten program that need a check although no legacy name is involved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.bindings import dotted

if TYPE_CHECKING:
    from tpu_estimator_embedding.migration.to_imports import ModuleRewriter

_SESSIONS = ("Session", "InteractiveSession", "train.MonitoredTrainingSession")
_ROOTS = ("tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2")
# Functions that inspect a module without using its names.
_LOOKING = ("getattr", "hasattr", "setattr", "print", "dir", "id", "reload", "str", "repr", "vars",
            "type", "getsource", "getfile", "isinstance", "dict", "super")


def report(rewriter: ModuleRewriter) -> None:
    """Reports sessions with an address, TensorFlow passed on as a value, and Keras 3."""
    for call in matchers.findall(rewriter.source.module, matchers.Call()):
        assert isinstance(call, cst.Call)
        _report_session(rewriter, call)
        for argument in call.args:
            _report_value(rewriter, call, argument.value)
    for line in matchers.findall(rewriter.source.module, matchers.Import()):
        assert isinstance(line, cst.Import)
        if any(dotted(alias.name)[0] == "keras" for alias in line.names):
            _report_keras(rewriter, line)


def _report_session(rewriter: ModuleRewriter, call: cst.Call) -> None:
    paths = _paths(rewriter, call.func)
    if not any(path == f"{root}.{name}" for path in paths for root in _ROOTS
               for name in _SESSIONS):
        return
    first = call.args[0] if call.args else None
    named = {argument.keyword.value for argument in call.args if argument.keyword}
    given = first is not None and first.keyword is None and not first.star and not (
        matchers.matches(first.value, matchers.SimpleString("''") | matchers.SimpleString('""')
                         | matchers.Name("None")))
    if given or named & {"target", "master"}:
        rewriter.report(call, "TEE209", "no server may be at the address; write "
                        "`tf.compat.v1.Session()` where it is that of a TPU")


def _report_value(rewriter: ModuleRewriter, call: cst.Call, value: cst.BaseExpression) -> None:
    function = (dotted(call.func) or ("",))[-1]
    if not isinstance(value, cst.Name) or function in _LOOKING:
        return
    if set(_paths(rewriter, value)) & {*_ROOTS, "tensorflow.contrib"}:
        rewriter.report(value, "TEE211", f"`{value.value}` is given to `{function}`, which may "
                        "use names of the legacy API")


def _report_keras(rewriter: ModuleRewriter, line: cst.Import) -> None:
    rewriter.report(line, "TEE210", "`keras` is Keras 3 from TensorFlow 2.16 on, and Estimators "
                    "need Keras 2: import `tf_keras` or `tensorflow.keras` instead")


def _paths(rewriter: ModuleRewriter, node: cst.BaseExpression) -> list[str]:
    words = dotted(node)
    scope = rewriter.bindings.scope_of(_root(node)) if words else None
    if scope is None:
        return []
    return [".".join((path, *words[1:]))
            for path in rewriter.bindings.meaning(scope, words[0]).paths]


def _root(node: cst.BaseExpression) -> cst.BaseExpression:
    while isinstance(node, cst.Attribute):
        node = node.value
    return node
