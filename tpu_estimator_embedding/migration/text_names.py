# SPDX-License-Identifier: Apache-2.0
"""Names of the legacy API in strings: `getattr`, `import_module`, annotations, and others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from tpu_estimator_embedding.migration.module_rewrite import ModuleRewrite
from tpu_estimator_embedding.migration.node_search import dotted, find_all, last_word
from tpu_estimator_embedding.migration.targets import in_full, is_attribute

if TYPE_CHECKING:
    from libcst import metadata


_DOTTED = re.compile(r"\b(?:tf|tensorflow|[A-Za-z_]\w*)(?:\.\w+)+")
_WHOLE = re.compile(r"(?:tf|tensorflow)(?:\.\w+)+")
_REGISTERING = ("external_configurable", "configurable", "register")  # of gin


def rewrite_calls(rewriter: ModuleRewrite) -> None:
    """Rewrites `getattr(module, "name")` and `import_module("module")`."""
    for call in find_all(rewriter.source.module, cst.Call):
        function = last_word(call.func)
        if function in ("getattr", "hasattr") and len(call.args) >= 2:
            _rewrite_getattr(rewriter, call, function)
        elif function in ("import_module", "__import__") and call.args:
            _rewrite_import_call(rewriter, call, function)


def _rewrite_getattr(rewriter: ModuleRewrite, call: cst.Call, function: str) -> None:
    words = dotted(call.args[0].value)
    scope = rewriter.names.scope_of(call)
    if not words or scope is None:
        return
    meaning = rewriter.names.meaning(scope, words[0])
    rest = "".join(f".{word}" for word in words[1:])
    modules = {f"{path}{rest}" for path in meaning.paths if path.startswith("tensorflow")}
    if not modules or not meaning.is_sure or all(map(rewriter.is_carried, modules)):
        return
    module = min(modules)
    name = _text(call.args[1].value)
    if name is None:
        if module.count(".") == 0 or module.endswith((".compat.v1", ".compat.v2", ".contrib")):
            rewriter.report(call, "TEE203", f"`{function}({'.'.join(words)}, ...)` may look up "
                            "a name of the legacy API; write the names out")
        return
    target = rewriter.target(f"{module}.{name}")
    if target is None:
        return
    if not target.home or function == "hasattr":
        rewriter.report(call, "TEE203", f"`{function}({'.'.join(words)}, {name!r})`: "
                        f"{target.advice or 'it is False now; ask for this package instead'}")
        return
    new = rewriter.references.expression(target.home, words[0], module.removesuffix(rest))
    rewriter.replace(call, new, "TEE101", f"getattr({'.'.join(words)}, {name!r})")
    rewriter.replacements[call.args[0].value] = ".".join(words)  # goes with the call


def _rewrite_import_call(rewriter: ModuleRewrite, call: cst.Call, function: str) -> None:
    string = call.args[0].value
    path = _text(string)
    if path is None and "tensorflow" in rewriter.source.module.code_for_node(string):
        rewriter.report(call, "TEE203", f"`{function}` of a computed name may import a module of "
                        "the legacy API; write the names out")
    target = rewriter.target(path) if path else None
    if target is None or not isinstance(string, cst.SimpleString):
        return
    if not target.home or function == "__import__" or not target.is_namespace:
        rewriter.report(call, "TEE204", f"`{function}({path!r})`: "
                        f"{target.advice or f'import `{in_full(target.home)}` instead'}")
        rewriter.replacements[string] = string.value
        return
    if is_attribute(target.home):
        rewriter.replace(call, rewriter.references.expression(target.home, "", ""), "TEE107",
                         string.value)
        rewriter.replacements[string] = string.value  # goes with the call
        return
    new = f"{string.prefix}{string.quote}{in_full(target.home)}{string.quote}"
    rewriter.replace(string, new, "TEE107", string.value)


def rewrite_strings(rewriter: ModuleRewrite) -> None:
    """Rewrites annotations that are strings, and reports other strings with legacy names."""
    finder = _Strings()
    rewriter.source.module.visit(finder)
    for string, scope_node in finder.annotations:
        scope = rewriter.names.scope_of(scope_node) or rewriter.names.scope_of(string)
        if scope is not None and string not in rewriter.replacements:
            _rewrite_annotation(rewriter, string, scope)
    for string, caller in finder.others:
        if string not in rewriter.replacements:
            _report_string(rewriter, string, caller)


def _rewrite_annotation(rewriter: ModuleRewrite, string: cst.SimpleString,
                        scope: metadata.Scope) -> None:
    def new_name(match: re.Match[str]) -> str:
        words = match[0].split(".")
        meaning = rewriter.names.meaning(scope, words[0])
        for path in sorted(meaning.paths):
            target = rewriter.target(".".join((path, *words[1:])))
            if target and target.home and not rewriter.is_carried(path):
                index = target.parts - path.count(".")
                new = rewriter.references.expression(target.home, words[0], path)
                return ".".join((new, *words[index:]))
        return match[0]

    new = _DOTTED.sub(new_name, string.value)
    if new != string.value:
        rewriter.replace(string, new, "TEE107", string.value)


def _report_string(rewriter: ModuleRewrite, string: cst.SimpleString,
                   caller: str) -> None:
    text = _text(string) or ""
    if not _WHOLE.fullmatch(text):
        return
    path = re.sub(r"^tf\b", "tensorflow", text)
    target = rewriter.target(path)
    if target is None:
        return
    if caller in _REGISTERING:
        rewriter.report(string, "TEE111", f"`{text}` is a name in gin's configuration; files "
                        "of bindings keep that name")
        return
    rewriter.report(string, "TEE204", f"`{text}`: "
                    f"{target.advice or f'here it is `{in_full(target.home)}`'}")


def _text(node: cst.BaseExpression) -> str | None:
    value = node.evaluated_value if isinstance(node, cst.SimpleString) else None
    return value if isinstance(value, str) else None


class _Strings(cst.CSTVisitor):
    """Collects strings: annotations, with a node of the scope they are read in, and others."""

    def __init__(self) -> None:
        super().__init__()
        self.annotations: list[tuple[cst.SimpleString, cst.CSTNode]] = []
        self.others: list[tuple[cst.SimpleString, str]] = []
        self._annotated: list[cst.Annotation] = []
        self._callers: list[str] = []

    def visit_Annotation(self, node: cst.Annotation) -> None:
        self._annotated.append(node)

    def leave_Annotation(self, original_node: cst.Annotation) -> None:
        self._annotated.pop()

    def visit_Call(self, node: cst.Call) -> None:
        self._callers.append(last_word(node.func))

    def leave_Call(self, original_node: cst.Call) -> None:
        self._callers.pop()

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if self._annotated:
            self.annotations.append((node, self._annotated[-1]))
        else:
            self.others.append((node, self._callers[-1] if self._callers else ""))
