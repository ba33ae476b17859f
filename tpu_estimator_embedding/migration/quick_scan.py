# SPDX-License-Identifier: Apache-2.0
"""A quick scan of files, which decides whether they need the slow analysis of their names.

A program may have thousands of files, of which a few use the legacy API. LibCST takes ten times as
long as Python's own parser, and resolving names as long again: this looks for words in the bytes,
then at the tree of Python's parser. Everything after it asks `names`.

It errs on one side only: a file that it clears has no name of the legacy API, in no form, and
nothing else that the report mentions. It knows names by the variables through which a module
reaches TensorFlow, in any scope, and by words that every name of the legacy API has.
"""

import ast
import collections
import dataclasses
import pathlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping

from tpu_estimator_embedding.migration.targets import SINGLE_NAMES
from tpu_estimator_embedding.migration.tf1_programs import is_tf1_only

_WORDS = {"estimator", "tpu", "contrib", "tensorflow_estimator", "Session", "InteractiveSession",
          "MonitoredTrainingSession", *(name.rpartition(".")[2] for name in SINGLE_NAMES)}
_PARTS = ("estimator", "tpu", "contrib")  # modules of TensorFlow that its legacy names are in
_LOOKUPS, _IMPORTERS = {"getattr", "hasattr"}, {"import_module", "__import__"}
_OF_KERAS = re.compile(r"tensorflow(\.compat\.v[12])?\.(layers|keras)\b")
_NAME_IN_STRING = re.compile(r"(?:tf|tensorflow)(?:\.\w+)+")
_ALIASES = 4  # assignments from a variable to the next that are followed


@dataclasses.dataclass(frozen=True)
class QuickScan:
    """What a file may have.

    Attributes:
        may_be_legacy: whether the legacy API, or anything else to report, may be in it.
        may_be_tf1: whether it may use a name that only TensorFlow 1.x has.
        uses_tensorflow: whether it imports TensorFlow.
        uses_keras: whether it uses names that TensorFlow has from Keras.
        uses_compat: whether it says itself which TensorFlow its names are of.
        imported: dotted names that it imports, without the dots of relative ones.
    """

    may_be_legacy: bool
    may_be_tf1: bool
    uses_tensorflow: bool
    uses_keras: bool
    uses_compat: bool
    imported: tuple[str, ...]


def has_word(data: bytes, word: str = "tensorflow") -> bool:
    """Whether a file may have an identifier."""
    return word.encode() in data


def has_any_word(data: bytes) -> bool:
    """Whether a file may have names of the legacy API, by its text alone."""
    return any(has_word(data, word) for word in ("tensorflow", *_PARTS))


def scan(data: bytes) -> QuickScan | None:
    r"""Looks at a file; returns None if it cannot be parsed.

    >>> scan(b"import tensorflow as tf\nx = tf.add(1, 2)").may_be_legacy
    False
    >>> scan(b"import tensorflow as tf\nv = tf.compat.v1\nx = v.estimator").may_be_legacy
    True
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            nodes = list(ast.walk(ast.parse(data)))
    except (SyntaxError, ValueError):
        return None
    imported = tuple(name for node in nodes for name in _imported(node))
    variables, is_complete = _variables(nodes)
    is_open = not is_complete or any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
                                     for node in nodes)
    paths = {name for name in imported if name.startswith("tensorflow")}
    for node in nodes:
        paths |= _paths(node, variables)
    may_be_legacy = (
        is_open or any(name.split(".")[0] == "keras" for name in imported)
        or any(not _WORDS.isdisjoint(path.split(".")) for path in paths)
        or any(_is_suspicious(node, variables) for node in nodes))
    may_be_tf1 = is_open or any(is_tf1_only(path.removeprefix("tensorflow.")) for path in paths
                                 if path.startswith("tensorflow."))
    return QuickScan(may_be_legacy, may_be_tf1, bool(paths),
                     any(map(_OF_KERAS.match, paths)),
                     any("compat" in path.split(".") for path in paths), imported)


def read_by(others: Iterable[bytes], path: str) -> frozenset[str]:
    """Returns the names that other modules may read of a module; "*" stands for all.

    Args:
        others: the texts of the other modules.
        path: of the module. One of theirs with an equal last name may be meant by an import, too.
    """
    file = pathlib.PurePath(path)
    stem = file.parent.name if file.stem == "__init__" else file.stem
    found: set[str] = set()
    for text in others:
        if stem.encode() not in text:
            continue
        try:
            nodes = list(ast.walk(ast.parse(text)))
        except (SyntaxError, ValueError):
            return frozenset("*")
        is_whole = False  # whether the module itself is imported, under any variable
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [alias.name for alias in node.names]
                # `from package import *` may bind the module, too.
                is_whole |= any(name.rpartition(".")[2] in (stem, "*") for name in names)
                if isinstance(node, ast.ImportFrom) and (
                        (node.module or stem).rpartition(".")[2] == stem):
                    found.update(names)
            elif isinstance(node, ast.Call) and getattr(
                    node.func, "attr", getattr(node.func, "id", "")) in (
                        "import_module", "__import__"):
                is_whole = True
        if is_whole:
            found |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
            found |= {node.value for node in nodes if isinstance(node, ast.Constant)
                      and isinstance(node.value, str)}
    return frozenset(found)


def only_imports(data: bytes, name: str) -> bool:
    """Whether a file, which can be parsed, imports a name and does nothing else with it."""
    nodes = list(ast.walk(ast.parse(data)))
    return any(isinstance(node, ast.ImportFrom) and any(
        alias.name == name and alias.asname in (None, name) for alias in node.names)
        for node in nodes) and not any(
            isinstance(node, ast.Name) and node.id == name
            or isinstance(node, ast.Attribute) and node.attr == name for node in nodes)


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.module:
            yield node.module
        yield from (f"{node.module}.{alias.name}" if node.module else alias.name
                    for alias in node.names if alias.name != "*")


def _variables(nodes: list[ast.AST]) -> tuple[dict[str, set[str]], bool]:
    """Returns variable -> dotted names in TensorFlow that it may mean, and whether these are all.

    A variable counts in every scope.
    """
    found: dict[str, set[str]] = collections.defaultdict(set)
    values: list[tuple[ast.expr, str]] = []
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("tensorflow"):
                    path = alias.name if alias.asname else alias.name.split(".")[0]
                    found[alias.asname or path].add(path)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tensorflow"):
            for alias in node.names:
                found[alias.asname or alias.name].add(f"{node.module}.{alias.name}")
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            values += [(node.value, target.id) for target in targets
                       if isinstance(target, ast.Name)]
    for _ in range(_ALIASES):
        new = [(name, paths) for value, name in values
               if (paths := _paths(value, found)) and not paths <= found[name]]
        if not new:
            break
        for name, paths in new:
            found[name] |= paths
    return {name: paths for name, paths in found.items() if paths}, not new


def _paths(node: ast.AST, variables: Mapping[str, set[str]]) -> set[str]:
    """Returns the dotted names in TensorFlow that a chain of attributes may mean."""
    words = _chain(node)
    roots = variables.get(words[0], ()) if words else ()
    return {".".join((root, *words[1:])) for root in roots}


def _chain(node: ast.AST) -> tuple[str, ...]:
    """Returns the identifiers of a name with attributes; empty for anything else."""
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.append(node.attr)
        node = node.value
    return (node.id, *reversed(words)) if isinstance(node, ast.Name) else ()


def _is_suspicious(node: ast.AST, variables: Mapping[str, set[str]]) -> bool:
    """Whether names may be looked up, in strings too, or TensorFlow is passed on."""
    if isinstance(node, ast.Call):
        function = _chain(node.func)
        if function and (function[-1] in _IMPORTERS or (
                function[-1] in _LOOKUPS and node.args and _paths(node.args[0], variables))):
            return True
        return any(isinstance(value, ast.Name) and value.id in variables for value in (
            *node.args, *(keyword.value for keyword in node.keywords)))
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Attribute) and node.value.attr in _PARTS
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.RShift):
        return _chain(node.left) == ("print",)  # of Python 2
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    if isinstance(annotation, ast.expr):
        return any(isinstance(part, ast.Constant) and isinstance(part.value, str)
                   for part in ast.walk(annotation))
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(
        _NAME_IN_STRING.fullmatch(node.value))
