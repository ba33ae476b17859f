# SPDX-License-Identifier: Apache-2.0
"""What users of the package can name: public names, arguments, commands, options, variables.

`python -m tests.public_surface` writes the list of today, after a name was added.
"""

import argparse
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
            "tpu_estimator_embedding.engine.partitioned_embedding")
ROOT = pathlib.Path(tpu_estimator_embedding.__file__).parent


def surface() -> list[str]:
    """One line for each thing that can be named, made by walking the package."""
    return sorted({*_names(), *_commands(), *_variables()})


def _names() -> Iterator[str]:
    for name in _public_modules():
        module = importlib.import_module(name)
        for public in module.__all__:
            yield f"name {name}.{public}"
            for parameter in _parameters(getattr(module, public)):
                yield f"argument {name}.{public}({parameter})"


def _public_modules() -> Iterator[str]:
    """Those that say which of their names are public."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if re.search(r"^__all__ =", path.read_text("utf-8"), re.MULTILINE) and not (
                name.endswith("command") or name in INTERNAL):
            yield name


def _parameters(value: Any) -> list[str]:
    """The arguments of a function or class of this package."""
    if not str(getattr(value, "__module__", "")).startswith(ROOT.name):
        return []
    try:
        return [name for name in inspect.signature(value).parameters if not name.startswith("_")]
    except (TypeError, ValueError):  # no function or class, or none of Python's
        return []


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
        for option in action.option_strings or [action.dest]:
            yield f"option {command} {option}"
            for choice in action.choices or ():
                yield f"choice {command} {option} {choice}"


def _variables() -> Iterator[str]:
    for path in ROOT.rglob("*.py"):
        for name in re.findall(r"\bTPU_ESTIMATOR_EMBEDDING_[A-Z_]+\b", path.read_text("utf-8")):
            yield f"environment variable {name}"


if __name__ == "__main__":
    LIST.write_text("\n".join(surface()) + "\n", "utf-8")
