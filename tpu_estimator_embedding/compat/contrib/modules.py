# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib`, as far as programs for TPUs used it: other names of what exists today."""

import importlib
from types import ModuleType
from typing import Any

from tpu_estimator_embedding.compat.contrib import contents
from tpu_estimator_embedding.compat.contrib.contents import Contents

PREFIX = "tensorflow.contrib"


class ContribModule(ModuleType):
    """A module of `tf.contrib`; it loads what it shows when a name is first read.

    Args:
        path: its name below `tf.contrib`; empty for `tf.contrib` itself.
        contents: what it shows.

    >>> data = ContribModule("data", Contents(homes=("tensorflow.compat.v1.data.experimental",)))
    >>> data.map_and_batch.__name__
    'map_and_batch'
    """

    def __init__(self, path: str, contents: Contents) -> None:
        super().__init__(f"{PREFIX}.{path}".rstrip("."),
                         "Names of TensorFlow 1.x, which lead to what has them today.")
        # An empty path makes it a package, which finds what is in sys.modules only.
        vars(self).update(_path=path, _contents=contents, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = self._find(name)
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        homes = [name for home in self._contents.homes for name in dir(
            importlib.import_module(home)) if not name.startswith("_")]
        return sorted({*vars(self), *self._contents.names, *homes})

    def _find(self, name: str) -> Any:
        if name in self._contents.names:
            module, _, attribute = self._contents.names[name].partition(":")
            return getattr(importlib.import_module(module), attribute)
        for home in self._contents.homes:
            module_today = importlib.import_module(home)
            if not name.startswith("_") and hasattr(module_today, name):
                return getattr(module_today, name)
        raise AttributeError(missing(f"{self._path}.{name}".lstrip(".")), name=name, obj=self)


def missing(path: str) -> str:
    """Says that a name, by its path below `tf.contrib`, is nowhere, and what to write."""
    instead = contents.INSTEAD.get(path) or contents.INSTEAD.get(
        path.partition(".")[0]) or "TensorFlow has nothing of that name any more."
    return f"tf.contrib.{path} went with TensorFlow 1.15. {instead}"


_NOTHING = Contents()

# The path below `tf.contrib` -> the module, for the table of patches.
MODULES = {path: ContribModule(path, contents) for path, contents in {
    "": _NOTHING, **contents.CONTENTS, "tpu.python": _NOTHING, "tpu.python.tpu": _NOTHING,
    "tpu.python.ops": _NOTHING, "cluster_resolver.python": _NOTHING,
    "cluster_resolver.python.training": contents.CONTENTS["cluster_resolver"],
    "layers": _NOTHING}.items()}


def __getattr__(name: str) -> ContribModule:
    """Returns a module by its path, with `root` for `tf.contrib` itself."""
    path = "" if name == "root" else name
    if path not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return MODULES[path]
