# SPDX-License-Identifier: Apache-2.0
"""The source text of functions that a program created: learning rates, multipliers, initializers.

A function is written out with its decorators, and the constants, modules and functions of its
program that it uses. Values without self-contained source text, such as an object of the program's
own class, are left to do by hand.
"""

import ast
import builtins
import dataclasses
import functools
import inspect
import itertools
import textwrap
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

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
            value: a constant, a container of constants, a function, a partial, a schedule, or an
                initializer with settings.
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
        if hasattr(value, "get_config"):
            self.imports.setdefault("tf", TENSORFLOW)
            return _initializer(value)
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
        defined, source = _text_of(function)
        in_text = defined.__code__.co_name  # a decorator may have given it the name of another
        is_lambda = in_text == "<lambda>"
        name = name if is_lambda else in_text
        nonlocals = self._collect_names(defined, source, name)
        if nonlocals:
            made = f"return {source}" if is_lambda else f"{source}\n\nreturn {name}"
            name = self._define_function(name, functools.partial(
                self._with_closure, made, nonlocals))
            self.enclosed += [(name, key, value) for key, value in nonlocals.items()
                              if is_constant(value)]
        else:
            self._define(name, f"{name} = {source}" if is_lambda else source)
        return name

    def _collect_names(self, function: FunctionType, source: str,
                       name: str) -> Mapping[str, object]:
        """Collects what a function uses of its module; returns what it uses of functions around it.
        """
        in_module = function.__globals__
        variables = inspect.getclosurevars(function)
        used = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
        for key, value in variables.globals.items():  # which have names of attributes, too
            if key in used and getattr(value, "__wrapped__", value) is not function:
                self._collect_global(key, value)
        missing = variables.unbound - set(_attributes(source))
        for key in _names_of_head(source):
            if key in in_module:
                self._collect_global(key, in_module[key])
            elif not hasattr(builtins, key):
                missing = {*missing, key}
        if missing:
            raise NoTextError(f"`{name}` uses {sorted(missing)}, which is not defined")
        return variables.nonlocals

    def _define_function(self, name: str, text: Callable[[str], str]) -> str:
        """Defines a function that a function made, under a number if others have its name."""
        for number in itertools.count(1):
            numbered = name if number == 1 else f"{name}_{number}"
            made = text(numbered)
            if self.definitions.setdefault(numbered, made) == made:
                return numbered
        raise AssertionError

    def _with_closure(self, text: str, nonlocals: Mapping[str, object], name: str) -> str:
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


class _Text(NamedTuple):
    """The text of a function.

    Attributes:
        function: that the text defines, without its decorators.
        source: the text.
    """

    function: FunctionType
    source: str


def _text_of(function: FunctionType) -> _Text:
    """Returns the text of a function, with decorators if they made it what it is.

    A decorated function of a module is what the module has under its name. Any other function is
    what its own code defines: one that a decorator made, or the one that it was given.
    """
    decorated = inspect.unwrap(function)
    if isinstance(decorated, FunctionType) and (
            decorated.__globals__.get(decorated.__name__) is function):
        return _Text(decorated, source_of(decorated))
    source = source_of(function)
    tree = ast.parse(source).body[0]
    if not getattr(tree, "decorator_list", ()):
        return _Text(function, source)
    return _Text(function, "\n".join(source.splitlines()[tree.lineno - 1:]))


def source_of(function: FunctionType) -> str:
    """Returns the text of a function's code, of a lambda without the statement around it.

    Raises:
        NoTextError: it was not read from a file, or cannot be distinguished from another one.
    """
    try:
        if function.__code__.co_name == "<lambda>":
            return ast.unparse(_lambda_of(function.__code__, inspect.findsource(function)[0]))
        return textwrap.dedent(inspect.getsource(function.__code__)).rstrip("\n")
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


def _names_of_head(source: str) -> list[str]:
    """Names in decorators, defaults and annotations, which a module needs to define a function."""
    function = ast.parse(source).body[0]
    if not isinstance(function, ast.FunctionDef):
        return []
    head = [*function.decorator_list, function.args, *filter(None, [function.returns])]
    return [node.id for part in head for node in ast.walk(part) if isinstance(node, ast.Name)]


# Class of Keras's initializers_v1 -> name in `tf.compat.v1.keras.initializers`, if it differs.
_V1_KERAS_NAMES = {"HeNormal": "he_normal", "HeUniform": "he_uniform",
                   "LecunNormal": "lecun_normal", "LecunUniform": "lecun_uniform"}
# Class of tensorflow.python.ops.init_ops -> name below `tf.compat.v1`.
_V1_NAMES = {
    "Constant": "constant_initializer", "GlorotNormal": "glorot_normal_initializer",
    "GlorotUniform": "glorot_uniform_initializer", "Identity": "initializers.identity",
    "Ones": "ones_initializer", "Orthogonal": "orthogonal_initializer",
    "RandomNormal": "random_normal_initializer", "RandomUniform": "random_uniform_initializer",
    "TruncatedNormal": "truncated_normal_initializer",
    "UniformUnitScaling": "uniform_unit_scaling_initializer",
    "VarianceScaling": "variance_scaling_initializer", "Zeros": "zeros_initializer"}
_DEFAULTS: dict[str, object] = {"dtype": "float32", "seed": None, "mean": 0.0}


def _initializer(initializer: Any) -> str:
    """Returns an expression for an initializer.

    Raises:
        NoTextError: it is of the program's own class, or one of its settings is an array.

    >>> import tensorflow as tf
    >>> _initializer(tf.compat.v1.truncated_normal_initializer(stddev=0.1))
    'tf.compat.v1.truncated_normal_initializer(stddev=0.1)'
    """
    config = initializer.get_config()
    for key, value in config.items():
        if not is_constant(value):
            raise NoTextError(f"its {key} is not a constant in the program's text")
    module, name = type(initializer).__module__, type(initializer).__name__
    if module == "tensorflow.python.ops.init_ops" and name in _V1_NAMES:
        return f"tf.compat.v1.{_V1_NAMES[name]}({_arguments(config)})"
    if module.endswith(".initializers_v1"):  # which draws other numbers than that of TF2
        name = _V1_KERAS_NAMES.get(name, name)
        return f"tf.compat.v1.keras.initializers.{name}({_arguments(config)})"
    if module.split(".")[0] in ("tf_keras", "keras"):
        return f"tf.compat.v2.keras.initializers.{name}({_arguments(config)})"
    raise NoTextError(f"it is of the program's own class {name}")


def _arguments(config: Mapping[str, object]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in config.items()
                     if key not in _DEFAULTS or value != _DEFAULTS[key])
