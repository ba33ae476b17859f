# SPDX-License-Identifier: Apache-2.0
"""The parts of `tf.contrib` that TPU programs used, as aliases of existing names."""

import importlib
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from tpu_estimator_embedding.compat.contrib import contents
from tpu_estimator_embedding.compat.contrib.contents import Contents

PREFIX = "tensorflow.contrib"


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
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self._find(name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        homes = [name for home in self._homes() for name in dir(home) if not name.startswith("_")]
        return sorted({*vars(self), *self._contents.names, *homes})

    def _find(self, name: str) -> Any:
        if name in self._contents.names:
            path, _, attribute = self._contents.names[name].partition(":")
            module = importlib.import_module(path)
            return getattr(module, attribute) if attribute else module
        for home in self._homes():
            if not name.startswith("_") and hasattr(home, name):
                return getattr(home, name)
        raise AttributeError(missing(f"{self._path}.{name}".lstrip(".")), name=name, obj=self)

    def _homes(self) -> Iterator[ModuleType]:
        for home in self._contents.homes:
            try:
                yield importlib.import_module(home)
            except ModuleNotFoundError as error:
                if error.name != home.partition(".")[0]:  # it exists, but cannot be imported
                    raise


def missing(path: str) -> str:
    """Describes a missing name of `tf.contrib` and its replacement."""
    instead = contents.INSTEAD.get(path) or contents.INSTEAD.get(
        path.partition(".")[0]) or "TensorFlow no longer has an equivalent."
    return f"TensorFlow 2.0 removed tf.contrib.{path}. {instead}"


def _with_parents(paths: Iterable[str]) -> list[str]:
    """Returns the paths and all of their parents, parents first."""
    parts = [path.split(".") for path in paths]
    return sorted({".".join(part[:length]) for part in parts for length in range(len(part) + 1)})


# Path below `tf.contrib` -> module, for the table of patches; parents come first.
MODULES = {path: ContribModule(path, contents.CONTENTS.get(path, Contents()))
           for path in _with_parents(contents.CONTENTS)}


def __getattr__(name: str) -> ContribModule:
    """Returns a module by its path, with `root` for `tf.contrib` itself."""
    path = "" if name == "root" else name
    if path not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return MODULES[path]
