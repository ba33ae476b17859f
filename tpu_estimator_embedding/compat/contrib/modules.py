# SPDX-License-Identifier: Apache-2.0
"""The parts of `tf.contrib` that TPU programs used, as aliases of existing names."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from tpu_estimator_embedding.compat.contrib import contents, reasons
from tpu_estimator_embedding.compat.contrib.contents import Contents
from tpu_estimator_embedding.compat.contrib.missing import Missing, is_asked

PREFIX = "tensorflow.contrib"
_SLIM = "tf_slim"  # the package that continues most of contrib's layers and metrics


class ContribModule(ModuleType):
    """A module of `tf.contrib` that loads its contents when a name is first read.

    Args:
        path: its name below `tf.contrib`; empty for `tf.contrib` itself.
        contents: the names that it shows.

    >>> data = ContribModule("data", Contents(homes=("tensorflow.compat.v1.data.experimental",)))
    >>> data.map_and_batch.__name__
    'map_and_batch'
    """

    def __init__(self, path: str, contents: Contents) -> None:
        super().__init__(f"{PREFIX}.{path}".rstrip("."),
                         "Names of TensorFlow 1.x, as aliases of existing names.")
        # An empty path makes it a package; `finder` imports modules below it.
        vars(self).update(_path=path, _contents=contents, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # which others look for in any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = find(f"{self._path}.{name}".lstrip("."))
        if not isinstance(value, Missing):
            setattr(self, name, value)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        if not isinstance(value, Missing):  # which `try` in another module may ask for
            super().__setattr__(name, value)

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        """Raises TypeError: this module stands where a function of tf-slim would be."""
        raise TypeError(missing(self._path))

    def __dir__(self) -> list[str]:
        homes = [name for home in self._homes() for name in dir(home) if not name.startswith("_")]
        return sorted({*vars(self), *self._contents.names, *homes, *self._contents.otherwise})

    def _find(self, name: str) -> Any:
        """Returns what the module has under a name.

        Raises:
            AttributeError: if it has nothing.
        """
        if name in self._contents.names:
            return _load(self._contents.names[name])
        for home in self._homes():
            if hasattr(home, name):
                return getattr(home, name)
            if hasattr(home, "__path__") and find_spec(f"{home.__name__}.{name}"):
                return importlib.import_module(f"{home.__name__}.{name}")
        if name in self._contents.otherwise:
            return _load(self._contents.otherwise[name])
        # Without `name`, by which Python would add its own suggestion.
        raise AttributeError(missing(f"{self._path}.{name}".lstrip(".")))

    def _homes(self) -> Iterator[ModuleType]:
        return filter(None, map(_installed, self._contents.homes))


def find(path: str) -> Any:
    """Returns what a path below `tf.contrib` leads to today, or a `Missing`.

    A module that is not in the table shows the names of its part of `tf.contrib`, which has nearly
    all that its modules define: `rnn.python.ops.lstm_ops` those of `rnn`.

    Raises:
        AttributeError: if nothing has the name, and the program asks whether there is one or it was
            no part of TensorFlow 1.15 either.
    """
    parent, _, name = path.rpartition(".")
    first = path.partition(".")[0]
    for module in dict.fromkeys((parent, first)):
        if module in MODULES and (module or name in contents.CONTENTS):
            try:
                return MODULES[module]._find(name)
            except AttributeError:
                continue
    if first not in contents.CONTENTS and reasons.of(first) is None:
        raise AttributeError(f"tf.contrib of TensorFlow 1.15 has no {first!r}.")
    if is_asked():
        # What an import left there that did not ask would be the answer.
        sys.modules.pop(f"{PREFIX}.{path}", None)
        raise AttributeError(missing(path))
    return Missing(path, find, missing)


def missing(path: str) -> str:
    """Describes a missing name of `tf.contrib` and its replacement."""
    return f"TensorFlow 2.0 removed tf.contrib.{path}. {_advice(path)}"


def _advice(path: str) -> str:
    exact, instead = reasons.of_name(path), reasons.of(path) or ""
    if exact:
        return exact
    if not any(home.startswith(_SLIM) for home in _homes_above(path)):
        return instead
    if _installed(_SLIM):
        return f"tf-slim does not have it either. {instead}"
    return ("Run `pip install tf-slim`, which has tf.contrib.slim and parts of tf.contrib.layers, "
            f"framework, losses, metrics and training. Without it: {instead}")


def _homes_above(path: str) -> tuple[str, ...]:
    """Returns the homes of the innermost module of the table that contains the path."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        if (above := ".".join(parts[:end])) in contents.CONTENTS:
            return contents.CONTENTS[above].homes
    return ()


def _load(path: str) -> Any:
    """Imports "module:attribute" or "module"."""
    module, _, attribute = path.partition(":")
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def _installed(home: str) -> ModuleType | None:
    """Imports a module; returns None if its package is not installed."""
    try:
        return importlib.import_module(home)
    except ModuleNotFoundError as error:
        if error.name != home.partition(".")[0]:  # it exists, but cannot be imported
            raise
        return None


def _with_parents(paths: Iterable[str]) -> list[str]:
    """Returns the paths and all of their parents, parents first."""
    parts = [path.split(".") for path in paths]
    return sorted({".".join(part[:length]) for part in parts for length in range(len(part) + 1)})


def _modules() -> dict[str, ContribModule]:
    """Makes all modules; each has those directly below it as attributes."""
    made = {path: ContribModule(path, contents.CONTENTS.get(path, Contents()))
            for path in _with_parents(contents.CONTENTS)}
    for path in made.keys() - contents.HIDDEN - {""}:
        parent, _, name = path.rpartition(".")
        setattr(made[parent], name, made[path])  # now, because a lookup would import tf-slim
    return made


# Path below `tf.contrib` -> module, for the table of patches; parents come first.
MODULES = _modules()


def __getattr__(name: str) -> ContribModule:
    """Returns a module by its path, with `root` for `tf.contrib` itself."""
    path = "" if name == "root" else name
    if path not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return MODULES[path]
