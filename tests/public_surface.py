# SPDX-License-Identifier: Apache-2.0
"""What users of the package can name: names, signatures, commands, options, variables.

`public_surface.txt` has those of the last release, whose version is in its first line.
`python -m tests.public_surface` writes it, as a step of the next release.
"""

import argparse
import enum
import importlib
import inspect
import pathlib
import re
from collections.abc import Iterator
from typing import Any

import tpu_estimator_embedding
from tpu_estimator_embedding import cli

LIST = pathlib.Path(__file__).with_suffix(".txt")
INTERNAL = ("tpu_estimator_embedding.compat.upstream",
            "tpu_estimator_embedding.config.optimization_parameters")  # the package exports them
ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent


def surface() -> list[str]:
    """One line for each thing that can be named, made by walking the package."""
    return sorted({*_names(), *_commands(), *_variables()})


def subject(line: str) -> str:
    """Returns the word that a changelog has to contain if that line came, went or changed.

    >>> subject("signature tpu_estimator_embedding.io.record_batches(files, batch_size)")
    'record_batches'
    >>> subject("option run --cores default=None")
    '--cores'
    >>> subject("choice migrate --to tf2")
    'tf2'
    """
    kind, _, rest = line.partition(" ")
    if kind == "option":
        return rest.partition(" default=")[0].split()[-1]
    return rest.partition("(")[0].replace(".", " ").split()[-1]


def public_modules() -> Iterator[str]:
    """Those that say which of their names are public."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if re.search(r"^__all__ =", path.read_text("utf-8"), re.MULTILINE) and not (
                name.endswith("command") or name in INTERNAL):
            yield name


def _names() -> Iterator[str]:
    for name in public_modules():
        module = importlib.import_module(name)
        for public in module.__all__:
            yield f"name {name}.{public}"
            yield from _signatures(f"{name}.{public}", getattr(module, public))


def _signatures(name: str, value: Any) -> Iterator[str]:
    """Those of a function, or of a class and the methods that this package defines."""
    if not _is_ours(value) or not callable(value):
        return
    try:
        yield f"signature {name}{_signature(value)}"
    except (TypeError, ValueError):  # none of Python's
        return
    if isinstance(value, type):
        for method, function in inspect.getmembers(value, inspect.isroutine):
            if not method.startswith("_") and _is_ours(function):
                yield f"signature {name}.{method}{_signature(function)}"


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith(ROOT.name)


def _signature(function: Any) -> str:
    """The arguments, with their defaults and without their types."""
    signature = inspect.signature(function)
    shown = [parameter.replace(annotation=parameter.empty, default=(
                 parameter.empty if parameter.default is parameter.empty
                 else _Shown(parameter.default)))
             for name, parameter in signature.parameters.items()
             if name != "self" and not name.startswith("_")]
    return str(inspect.Signature(shown))


class _Shown:
    """A default whose text is the same in every process."""

    def __init__(self, value: Any):
        self._value = value

    def __repr__(self) -> str:
        if isinstance(self._value, enum.Enum):
            return str(self._value)
        text = repr(self._value)
        return f"<{type(self._value).__name__}>" if " at 0x" in text else text


def _commands() -> Iterator[str]:
    for verb, (module, _) in cli.VERBS.items():
        parser = argparse.ArgumentParser()
        importlib.import_module(f"{ROOT.name}.{module}").add_arguments(parser)
        yield from _options(verb, parser)


def _options(command: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"command {command}"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, inner in action.choices.items():
                yield from _options(f"{command} {name}", inner)
            continue
        is_optional = action.option_strings and not action.required
        default = f" default={action.default!r}" if is_optional else ""
        for option in action.option_strings or [action.dest]:
            yield f"option {command} {option}{default}"
            for choice in action.choices or ():
                yield f"choice {command} {option} {choice}"


def _variables() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        for name in re.findall(r"\bTPU_ESTIMATOR_EMBEDDING_[A-Z_]+\b", path.read_text("utf-8")):
            yield f"environment variable {name}"


if __name__ == "__main__":
    version = f"version {tpu_estimator_embedding.__version__}"
    LIST.write_text("\n".join([version, *surface()]) + "\n", "utf-8")
