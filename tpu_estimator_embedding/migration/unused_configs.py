# SPDX-License-Identifier: Apache-2.0
"""Removes the configuration of the TPUEstimator and unused imports from a TF2 program.

Only what the rewriting left without a use goes. What nothing named before may be reached in ways
that no name shows (`tf.app.run()`, `fire.Fire()`, `globals()["main"]()`), and stays.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable, Set
from typing import Any

import libcst as cst
from libcst import matchers

from tpu_estimator_embedding.migration.assignments import bindings_in, names_of_target
from tpu_estimator_embedding.migration.node_search import (
    Statement,
    bound_name,
    called_name,
    dotted,
    find_all,
)

# What an uncalled function makes that was there for the Estimator only.
_OF_TPU = ("EmbeddingConfigSpec", "embedding_column", "shared_embedding_columns")
_MAKERS = ("RunConfig", "TPUConfig", "TPUClusterResolver", "TableConfig", "FeatureConfig", *_OF_TPU)
_PARAMETERS = "Parameters"  # end of the names of classes
# What a configuration may also call: builtins, methods of texts, and names of TensorFlow.
_BUILTINS = ("dict", "list", "tuple", "range", "zip", "enumerate", "sorted", "int", "float", "len",
             "str", "bool", "min", "max")
_METHODS = ("format", "join")
_OF_TENSORFLOW = ("ConfigProto", "GPUOptions")
_CATEGORICAL = ("categorical_column", "sequence_categorical_column", "weighted_categorical_column")
# What reads variables by names that are computed, or all of them.
_READS_NAMES = ("globals", "locals", "vars", "eval", "exec", "__import__", "import_module",
                "__dict__", "fire", "getmembers", "modules")
_READ_BY_GET = (("os", "environ"), ("params",))
_PACKAGE = "tpu_estimator_embedding"
_LIBRARIES = ("tensorflow", _PACKAGE)
_FROM = matchers.SimpleStatementLine([matchers.ImportFrom()])


def without_unused(module: cst.Module, before: cst.Module, elsewhere: Set[str] = frozenset(),
                   moved: Collection[str] = (), inlined: Set[str] = frozenset()) -> cst.Module:
    """Removes configurations that the rewriting left without a use, until there are none.

    These are assignments of a configuration or of columns, a container of some, or a name of this
    package, to a variable that is used nowhere any more, and top-level functions that construct an
    EmbeddingConfigSpec, or columns of a TPU, and were called before. One that calls what may have
    an effect stays, and so does all that a name in a text, or none at all, may reach.

    Args:
        module: the module, rewritten.
        before: the module before.
        elsewhere: names that other modules read of it, as `quick_scan.read_by` returns them.
        moved: arguments of its RunConfig that stand elsewhere from now on.
        inlined: functions whose calls became their statements, which go too if nothing calls them.
    """
    calls = HarmlessCalls(module)
    texts = reached_by_text(module)
    used_before = _counts(before)
    inside_before: dict[str, collections.Counter[str]] = collections.defaultdict(
        collections.Counter)
    for function in find_all(before, cst.FunctionDef):
        inside_before[function.name.value] += _counts(function)
    while True:
        counts = _counts(module)
        for names in (elsewhere, texts):
            counts.update(counts if "*" in names else names)
        unused = [line for line in module.body
                  if _is_unused_assignment(line, counts, used_before, moved, calls)]
        for function in find_all(module, cst.FunctionDef):
            inside = _counts(function)
            inside.update(inside if "*" in texts else texts)
            unused += [line for line in find_all(function, cst.SimpleStatementLine)
                       if _is_unused_assignment(line, inside, inside_before[function.name.value],
                                                moved, calls)]
        unused += [statement for statement in module.body
                   if isinstance(statement, cst.FunctionDef) and not statement.decorators
                   and counts[statement.name.value] == 1
                   and (statement.name.value in inlined or
                        used_before[statement.name.value] > 1
                        and any(name.value in _OF_TPU for name in find_all(statement, cst.Name)))
                   and calls.are_all_of(statement.params)]
        if not unused:
            return module
        new = module.visit(_Remove(unused))
        assert isinstance(new, cst.Module)
        module = new


def reached_by_text(module: cst.Module) -> frozenset[str]:
    """Returns the names that a module may read by their text; "*" stands for all."""
    words = {name.value for name in find_all(module, cst.Name)}
    if words & {*_READS_NAMES} or any(
            dotted(call.func) == ("getattr",) and len(call.args) > 1 and not isinstance(
                call.args[1].value, cst.SimpleString) for call in find_all(module, cst.Call)):
        return frozenset("*")
    texts: set[str] = set()
    for text in find_all(module, cst.SimpleString):
        value = text.evaluated_value
        if isinstance(value, str):
            texts |= {value, value.rpartition(".")[2]}
    return frozenset(texts - {"*"})


def with_imports(module: cst.Module, text: str, elsewhere: Set[str] = frozenset()) -> cst.Module:
    """Adds imports, given as text, and removes unused ones of this package.

    Args:
        module: the module.
        text: the imports.
        elsewhere: names that other modules read of it.
    """
    used = {name.value for statement in module.body if not _is_import(statement)
            for name in find_all(statement, cst.Name)} | {*elsewhere}
    body: list[Statement] = []
    place = None
    for statement in module.body:
        code = module.code_for_node(statement) if _is_import(statement) else ""
        if "tensorflow" in code or _PACKAGE in code:
            place = len(body) if place is None else place
        if _PACKAGE in code:
            left = _used_import(statement, used)
            body += [left] if left is not None else []
            continue
        body.append(statement)
    added = cst.parse_module(text)
    new: list[Statement] = [left for statement in added.body if (left := (
        _used_import(statement, used) if matchers.matches(statement, _FROM) else statement))]
    if any(module.code_for_node(statement).strip() == "import os" for statement in body[:place]):
        new = [statement for statement in new if added.code_for_node(statement) != "import os\n"]
    place = place or 0
    if new and place < len(body):
        lines = list(body[place].leading_lines)
        blank = next((index for index, line in enumerate(lines) if line.comment), len(lines))
        new[0] = new[0].with_changes(leading_lines=lines[:blank])
        body[place] = body[place].with_changes(leading_lines=lines[blank:])
    body[place:place] = new
    return module.with_changes(body=body)


def _counts(node: cst.CSTNode) -> collections.Counter[str]:
    return collections.Counter(name.value for name in find_all(node, cst.Name))


def _is_unused_assignment(line: cst.CSTNode, counts: collections.Counter[str],
                          before: collections.Counter[str], moved: Collection[str],
                          calls: HarmlessCalls) -> bool:
    if not isinstance(line, cst.SimpleStatementLine) or len(line.body) != 1:
        return False
    assign = line.body[0]
    if not isinstance(assign, cst.Assign):
        return False
    target, value = assign.targets[0].target, assign.value
    if len(assign.targets) != 1 or not isinstance(target, cst.Name):
        return False
    own = _counts(line)[target.value]  # 2 in `tpu = tf_estimator.tpu`
    return (counts[target.value] == own < before[target.value]
            and (calls.is_alias(value) or _is_configuration(value, moved, calls)))


def _is_configuration(value: cst.BaseExpression, moved: Collection[str],
                      calls: HarmlessCalls) -> bool:
    """Whether an expression makes configurations, and does nothing else."""
    if isinstance(value, cst.Call) and called_name(value) == "RunConfig":
        value = value.with_changes(args=[one for one in value.args if not (
            one.keyword and one.keyword.value in moved)])
    return any(map(calls.make_configurations, _calls_now(value))) and calls.are_all_of(value)


class HarmlessCalls:
    """The calls in a module that have no effect other than their result.

    Args:
        module: the module. A name means TensorFlow's, or a builtin, only if no other is bound.
    """

    def __init__(self, module: cst.Module) -> None:
        self._bound = collections.Counter(name for name, _, _ in bindings_in(module))
        self._of_columns = {function.name.value: function for function in module.body
                            if isinstance(function, cst.FunctionDef)
                            and self._bound[function.name.value] == 1 and _makes_columns(function)}
        self._libraries: dict[str, str] = {}  # name -> the library that gives it
        lines: list[cst.Import | cst.ImportFrom] = find_all(module, cst.Import, cst.ImportFrom)
        for line in lines:
            for alias in () if isinstance(line.names, cst.ImportStar) else line.names:
                source = dotted(line.module if isinstance(line, cst.ImportFrom) else alias.name)
                if source[:1] in [(name,) for name in _LIBRARIES] and not getattr(
                        line, "relative", ()):
                    name = bound_name(alias)
                    self._libraries[name] = source[0]
        self._libraries |= self._modules_of_libraries(module)

    def _modules_of_libraries(self, module: cst.Module) -> dict[str, str]:
        """Returns variables with modules of libraries, as in `fc = tf.feature_column`."""
        made = collections.Counter(
            (assign.targets[0].target.value, self._libraries.get("".join(
                dotted(assign.value)[:1]), ""))
            for assign in find_all(module, cst.Assign)
            if len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name)
            and isinstance(assign.value, cst.Attribute))
        return {name: library for (name, library), count in made.items()
                if library and count == self._bound[name]}

    def are_all_of(self, value: cst.CSTNode) -> bool:
        """Whether all calls of an expression are such calls."""
        return not find_all(value, cst.NamedExpr) and all(
            map(self._has, _calls_now(value)))

    def make_configurations(self, call: cst.Call) -> bool:
        """Whether a call makes a configuration of the Estimator or of its tables."""
        name = called_name(call)
        if isinstance(call.func, cst.Name) and name in self._of_columns:
            return self.are_all_of(self._of_columns[name].body)
        return self._is_of_library(call) and (name in _MAKERS or name.endswith(_PARAMETERS))

    def is_alias(self, value: cst.BaseExpression) -> bool:
        """Whether an expression only reads a name of this package: `tf_estimator.tpu`."""
        return self._libraries.get("".join(dotted(value)[:1])) == _PACKAGE

    def _has(self, call: cst.Call) -> bool:
        name = called_name(call)
        if isinstance(call.func, cst.Name) and name in _BUILTINS:
            return name not in self._bound
        if self.make_configurations(call):
            return True
        if self._is_of_library(call):
            return name in _OF_TENSORFLOW or name.endswith("_initializer") or name.startswith(
                _CATEGORICAL)
        return name in _METHODS or name == "get" and dotted(call.func)[:-1] in _READ_BY_GET

    def _is_of_library(self, call: cst.Call) -> bool:
        return dotted(call.func)[:1] in [(name,) for name in self._libraries]


def _makes_columns(function: cst.FunctionDef) -> bool:
    """Whether a function assigns to local names and returns columns, and does nothing else.

    Its calls are not looked at. A function that calls itself is none of these.
    """
    def is_local(line: cst.CSTNode) -> bool:
        return isinstance(line, cst.Return) or matchers.matches(
            line, matchers.Expr(matchers.SimpleString())) or (
                isinstance(line, cst.Assign) and all(isinstance(name, cst.Name) for target in
                    line.targets for name in names_of_target(target.target)))

    statements = function.body.body
    return not function.decorators and _counts(function)[function.name.value] == 1 and any(
        name.value in _OF_TPU for name in find_all(function, cst.Name)) and all(
            isinstance(statement, cst.SimpleStatementLine) and all(map(is_local, statement.body))
            for statement in statements)


def _calls_now(value: cst.CSTNode) -> list[cst.Call]:
    """Returns the calls of an expression without those of functions in it."""
    later = {call for function in find_all(value, cst.Lambda)
             for call in find_all(function, cst.Call)}
    return [call for call in find_all(value, cst.Call) if call not in later]


def _used_import(statement: Any, used: set[str]) -> Statement | None:
    node = statement.body[0]
    if isinstance(node, cst.Import) and not any(
            alias.asname or dotted(alias.name)[0] in used for alias in node.names):
        return None
    if not isinstance(node, cst.ImportFrom) or isinstance(node.names, cst.ImportStar):
        return statement
    left = [alias for alias in node.names if bound_name(alias) in used]
    if not left:
        return None
    if len(left) < len(node.names):
        left[-1] = left[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return statement.with_changes(body=[node.with_changes(names=left)])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1 and (
        isinstance(statement.body[0], (cst.Import, cst.ImportFrom)))


class _Remove(cst.CSTTransformer):
    def __init__(self, nodes: Iterable[cst.CSTNode]) -> None:
        super().__init__()
        self._nodes = set(nodes)

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node not in self._nodes

    def on_leave(self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT) -> (
            cst.CSTNodeT | cst.RemovalSentinel):
        if original_node in self._nodes:
            return cst.RemoveFromParent()
        if isinstance(updated_node, cst.IndentedBlock) and not updated_node.body:
            return updated_node.with_changes(body=[cst.parse_statement("pass")])
        return updated_node
