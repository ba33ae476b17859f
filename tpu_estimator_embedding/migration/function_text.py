# SPDX-License-Identifier: Apache-2.0
"""The source text of functions that a program created: learning rates, multipliers, initializers.

A function is written out with the constants, modules and functions of its program that it uses.
Values without self-contained source text, such as an object of the program's own class, are left
to do by hand.
"""

import ast
import dataclasses
import functools
import inspect
import textwrap
from collections.abc import Callable, Mapping
from types import FunctionType, ModuleType
from typing import Any

# Initializers work with any import of TensorFlow, because their names include `compat`.
TENSORFLOW = "import tensorflow as tf"

_SIMPLE = (bool, int, float, str, bytes, type(None))
_MODULES = {"tensorflow._api.v2.compat.v1": "tensorflow.compat.v1",
            "tensorflow._api.v2.v2": "tensorflow", "tensorflow._api.v2.compat.v2": "tensorflow"}


class NoTextError(Exception):
    """A value has no self-contained source text; the message gives the reason."""


@dataclasses.dataclass
class Texts:
    """Collects the imports and definitions that a written module needs.

    Attributes:
        imports: variable -> the import statement that binds it.
        definitions: name -> text of a constant or function, in the order of their dependencies.
    """

    imports: dict[str, str] = dataclasses.field(default_factory=dict)
    definitions: dict[str, str] = dataclasses.field(default_factory=dict)

    def expression(self, value: Any, name: str = "function") -> str:
        """Returns an expression for a value, and collects what it needs.

        Args:
            value: a constant, a container of constants, a function, a partial, or a schedule.
            name: its name, if it has none.

        Raises:
            NoTextError: it has no text.

        >>> Texts().expression({"rate": (0.1, None)})
        "{'rate': (0.1, None)}"
        """
        if is_constant(value):
            return repr(value)
        if isinstance(value, functools.partial):
            return self._partial(value, name)
        if isinstance(value, FunctionType):
            return self._function(value, name)
        if type(value).__module__.startswith("tpu_estimator_embedding.multipliers"):
            self.imports["multipliers"] = "from tpu_estimator_embedding import multipliers"
            return f"multipliers.parse({value.text!r})"
        if isinstance(value, ModuleType):
            return self._module(value, value.__name__.rpartition(".")[2])
        raise NoTextError(f"an object of {type(value).__module__}.{type(value).__qualname__} has "
                          "no source text of its own")

    def _module(self, module: ModuleType, name: str) -> str:
        path = _MODULES.get(module.__name__, module.__name__)
        line = f"import {path}" if path == name else f"import {path} as {name}"
        if self.imports.get(name, TENSORFLOW) not in (line, TENSORFLOW):
            raise NoTextError(f"two different modules are called `{name}`")
        self.imports[name] = line
        return name

    def _partial(self, value: functools.partial[Any], name: str) -> str:
        self.imports["functools"] = "import functools"
        parts = [self.expression(value.func, name), *map(self.expression, value.args)]
        parts += [f"{key}={self.expression(argument)}" for key, argument in value.keywords.items()]
        return f"functools.partial({', '.join(parts)})"

    def _function(self, function: FunctionType, name: str) -> str:
        source = source_of(function)
        name = name if function.__name__ == "<lambda>" else function.__name__
        variables = inspect.getclosurevars(function)
        for key, value in variables.globals.items():
            self._collect_global(key, value)
        if variables.unbound - set(_attributes(source)):
            raise NoTextError(f"`{name}` uses {sorted(variables.unbound)}, which is not defined")
        text = source if function.__name__ != "<lambda>" else f"{name} = {source}"
        if variables.nonlocals:
            text = self._with_closure(name, text, variables.nonlocals)
        self._define(name, text)
        return name

    def _with_closure(self, name: str, text: str, nonlocals: Mapping[str, Any]) -> str:
        lines = [f"{key} = {self.expression(value, key)}" for key, value in nonlocals.items()]
        body = textwrap.indent("\n".join([*lines, "", text, "", f"return {name}"]), "    ")
        return f"def _make_{name}():\n{body}\n\n\n{name} = _make_{name}()"

    def _collect_global(self, name: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            self._module(value, name)
        elif is_constant(value):
            self._define(name, f"{name} = {value!r}")
        elif isinstance(value, FunctionType):
            found = self._function(value, name)
            if found != name:
                self._define(name, f"{name} = {found}")
        else:
            raise NoTextError(f"it uses `{name}`, an object of {type(value).__qualname__}")

    def _define(self, name: str, text: str) -> None:
        if self.definitions.setdefault(name, text) != text:
            raise NoTextError(f"two different things are called `{name}`")


def is_constant(value: Any) -> bool:
    """Whether `repr` of a value is an expression for it."""
    if isinstance(value, (list, tuple, set)) and type(value) in (list, tuple, set):
        return all(map(is_constant, value))
    if type(value) is dict:
        return all(is_constant(key) and is_constant(one) for key, one in value.items())
    return type(value) in _SIMPLE


def source_of(function: Callable[..., Any]) -> str:
    """Returns the text of a function, of a lambda without the statement around it.

    Raises:
        NoTextError: it was not read from a file, or cannot be distinguished from another one.
    """
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError) as error:
        raise NoTextError(f"`{function.__name__}` was not read from a file") from error
    if function.__name__ != "<lambda>":
        return text.rstrip("\n")
    found = {ast.unparse(node) for node in _lambdas(text)
             if _code(node).co_code == function.__code__.co_code
             and _code(node).co_consts == function.__code__.co_consts
             and _code(node).co_names == function.__code__.co_names}
    if len(found) != 1:
        raise NoTextError("a lambda that cannot be told from others on its line")
    return found.pop()


def _lambdas(text: str) -> list[ast.Lambda]:
    # The lines of a lambda may be part of a statement: shorten them at both ends until they parse.
    for candidate in (text, f"({text.strip()})", text.strip().rstrip(",)"), text[:text.rfind(")")]):
        for start in [0, *(index for index in range(len(candidate))
                           if candidate.startswith("lambda", index))]:
            for end in range(len(candidate), start, -1):
                try:
                    tree = ast.parse(candidate[start:end].strip())
                except SyntaxError:
                    continue
                nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
                if nodes:
                    return nodes
    return []


def _code(node: ast.Lambda) -> Any:
    return eval(compile(ast.Expression(node), "<lambda>", "eval")).__code__


def _attributes(source: str) -> list[str]:
    """Names after a dot, which `getclosurevars` mistakes for variables."""
    return [node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
