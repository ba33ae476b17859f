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
from collections.abc import Mapping
from types import CodeType, FunctionType, ModuleType
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
        enclosed: (function, variable, value) for constants of functions around functions, which
            may be others in another run.
    """

    imports: dict[str, str] = dataclasses.field(default_factory=dict)
    definitions: dict[str, str] = dataclasses.field(default_factory=dict)
    enclosed: list[tuple[str, str, object]] = dataclasses.field(default_factory=list)

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
                          "no source text")

    def _module(self, module: ModuleType, name: str) -> str:
        path = _MODULES.get(module.__name__, module.__name__)
        line = f"import {path}" if path == name else f"import {path} as {name}"
        if self.imports.get(name, TENSORFLOW) not in (line, TENSORFLOW):
            raise NoTextError(f"two different modules are called `{name}`")
        self.imports[name] = line
        return name

    def _partial(self, value: functools.partial[object], name: str) -> str:
        self.imports["functools"] = "import functools"
        parts = [self.expression(value.func, name), *map(self.expression, value.args)]
        parts += [f"{key}={self.expression(argument)}" for key, argument in value.keywords.items()]
        return f"functools.partial({', '.join(parts)})"

    def _function(self, function: FunctionType, name: str) -> str:
        source = source_of(function)
        name = name if function.__name__ == "<lambda>" else function.__name__
        variables = inspect.getclosurevars(function)
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for key, value in variables.globals.items():  # which have names of attributes, too
            if key in used and value is not function:
                self._collect_global(key, value)
        if variables.unbound - set(_attributes(source)):
            raise NoTextError(f"`{name}` uses {sorted(variables.unbound)}, which is not defined")
        is_lambda = function.__name__ == "<lambda>"
        if variables.nonlocals:
            made = f"return {source}" if is_lambda else f"{source}\n\nreturn {name}"
            text = self._with_closure(name, made, variables.nonlocals)
        else:
            text = f"{name} = {source}" if is_lambda else source
        self._define(name, text)
        return name

    def _with_closure(self, name: str, text: str, nonlocals: Mapping[str, object]) -> str:
        self.enclosed += [(name, key, value) for key, value in nonlocals.items()
                          if is_constant(value)]
        lines = [f"{key} = {self.expression(value, key)}" for key, value in nonlocals.items()]
        body = textwrap.indent("\n".join([*lines, "", text]), "    ")
        return f"def _make_{name}():\n{body}\n\n\n{name} = _make_{name}()"

    def _collect_global(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType):
            self._module(value, name)
        elif is_constant(value):
            self._define(name, f"{name} = {value!r}")
        elif is_flags(value):
            self.flags(name)
        elif isinstance(value, FunctionType):
            found = self._function(value, name)
            if found != name:
                self._define(name, f"{name} = {found}")
        else:
            raise NoTextError(f"it uses `{name}`, an object of {type(value).__qualname__}")

    def flags(self, name: str) -> None:
        """Makes a variable the flags of the program."""
        self.imports["flags"] = "from absl import flags"
        self._define(name, f"{name} = flags.FLAGS")

    def _define(self, name: str, text: str) -> None:
        if self.definitions.setdefault(name, text) != text:
            raise NoTextError(f"two different things are called `{name}`")


def is_flags(value: object) -> bool:
    """Whether a value is the flags of absl, or of `tf.flags`."""
    return type(value).__name__ in ("FlagValues", "_FlagValuesWrapper")


def is_constant(value: object) -> bool:
    """Whether `repr` of a value is an expression for it."""
    if isinstance(value, (list, tuple, set)) and type(value) in (list, tuple, set):
        return all(map(is_constant, value))
    if type(value) is dict:
        return all(is_constant(key) and is_constant(one) for key, one in value.items())
    return type(value) in _SIMPLE


def source_of(function: FunctionType) -> str:
    """Returns the text of a function, of a lambda without the statement around it.

    Raises:
        NoTextError: it was not read from a file, or cannot be distinguished from another one.
    """
    try:
        if function.__name__ == "<lambda>":
            return ast.unparse(_lambda_of(function.__code__, inspect.findsource(function)[0]))
        return textwrap.dedent(inspect.getsource(function)).rstrip("\n")
    except (OSError, TypeError, SyntaxError) as error:
        raise NoTextError(f"`{function.__name__}` was not read from a file") from error


def _lambda_of(code: CodeType, lines: list[str]) -> ast.Lambda:
    """Returns the lambda in a file whose body has the places of all instructions."""
    found = [node for node in ast.walk(ast.parse("".join(lines))) if isinstance(node, ast.Lambda)
             and node.lineno == code.co_firstlineno]
    places = [(line, column) for line, _, column, end in code.co_positions()
              if line is not None and column is not None and column != end]
    if places:
        found = [node for node in found if all(
            (node.body.lineno, node.body.col_offset) <= place
            < (node.body.end_lineno, node.body.end_col_offset) for place in places)]
        found.sort(key=lambda node: node.body.col_offset, reverse=True)  # the innermost first
    elif len({ast.dump(node) for node in found}) > 1:
        found = []
    if not found:
        raise NoTextError("a lambda that cannot be distinguished from others on its line")
    return found[0]


def _attributes(source: str) -> list[str]:
    """Names after a dot, which `getclosurevars` mistakes for variables."""
    return [node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
