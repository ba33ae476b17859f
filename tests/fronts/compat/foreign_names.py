# SPDX-License-Identifier: Apache-2.0
"""Finds the private names of other packages in source code.

Three kinds: what is imported from private modules, and read from those; members of objects
whose name begins with an underscore and which this package does not define; and members that
a class of this package shares with a class of another package that it derives from.
"""

import ast
import inspect
import pathlib
import re
import textwrap
from collections.abc import Callable, Iterator
from types import ModuleType

PACKAGE = "tpu_estimator_embedding"
PRIVATE_MODULES = ("tensorflow.python", "tensorflow.core", "tensorflow.compiler",
                   "tensorflow._api", "tensorflow.__internal__", "tensorflow_estimator",
                   "tf_keras.src", "keras.src")
OF_NAMED_TUPLES = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}
READS = {"getattr", "hasattr", "setattr", "delattr"}
STANDARD = ("builtins", "typing", "collections", "abc", "dataclasses", "enum", "logging",
            "contextlib", "threading", "argparse")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def bindings(tree: ast.Module, reexported: dict[str, str]) -> dict[str, str]:
    """Returns name -> path, of what a module imports from private ones."""
    found = {"tf": "tensorflow"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                found[alias.asname or alias.name] = reexported.get(path, path)
        elif isinstance(node, ast.Import):
            found |= {alias.asname: alias.name for alias in node.names if alias.asname}
    return {name: path for name, path in found.items()
            if path == "tensorflow" or f"{path}.".startswith(PRIVATE_MODULES)
            or path.startswith(f"{PACKAGE}.compat.upstream")}


def chains(tree: ast.Module) -> Iterator[tuple[ast.expr, list[str], int]]:
    """Yields what stands before the first dot, the names after it, and the line."""
    inner = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in inner:
            names = []
            while isinstance(node, ast.Attribute):
                inner.add(node)
                names.insert(0, node.attr)
                node = node.value
            yield node, names, node.lineno
        elif (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
              and node.func.id in READS and isinstance(node.args[1], ast.Constant)):
            yield node, [node.args[1].value], node.lineno


def defined_names(tree: ast.Module) -> set[str]:
    """Returns the private names that a module gives to its own objects."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
              and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
            found.add(node.attr)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
        elif isinstance(node, ast.Dict):  # of a class that is made by calling type()
            found |= {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "vars(self).update":
            found |= {keyword.arg for keyword in node.keywords}
    return {name for name in found if isinstance(name, str) and is_private(name)}


def reexports(tree: ast.Module, module: str) -> dict[str, str]:
    """Returns path here -> path there, of what a module imports to pass it on."""
    return {f"{module}.{alias.asname or alias.name}": f"{node.module}.{alias.name}"
            for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
            for alias in node.names}


def source(thing: Callable | ModuleType | None) -> str:
    """Returns the source of a class or module; nothing of what is compiled, or made at run time."""
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        # Python finds no class whose module install() has replaced, but its functions.
        functions = [value for value in vars(thing or object).values()
                     if inspect.isfunction(value)] if inspect.isclass(thing) else []
        return "\n".join(map(source, functions))


def source_names(kind: type) -> set[str]:
    """Returns the private members that the source of a class defines or reads of itself."""
    text = source(kind)
    return set(re.findall(r"(?:\b(?:self|cls)|super\(\))\.(_(?!_)\w+)", text)) | set(
        re.findall(r"^    (?:def )?(_(?!_)\w+)", text, re.MULTILINE))


def is_foreign(kind: type) -> bool:
    return not kind.__module__.startswith((PACKAGE, *STANDARD))


def shared_members(kind: type) -> Iterator[tuple[type, str]]:
    """Yields the private members that a class has in common with foreign classes above it."""
    ours = set().union(*(source_names(base) for base in kind.__mro__ if not is_foreign(base)))
    for base in filter(is_foreign, kind.__mro__):
        for name in ours & (source_names(base) | set(filter(is_private, vars(base)))):
            yield base, name


def source_files(root: pathlib.Path) -> dict[pathlib.Path, ast.Module]:
    return {path: ast.parse(path.read_text(encoding="utf-8"))
            for path in sorted(root.rglob("*.py")) if "__pycache__" not in path.parts}
