# SPDX-License-Identifier: Apache-2.0
"""Imports below `tensorflow.contrib`: aliases of existing modules, or an error when they are used.

`from tensorflow.contrib.x import name` and `import tensorflow.contrib.x.name` have the same result
as `tf.contrib.x.name`: the same object, or the same advice.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

from tpu_estimator_embedding.compat.contrib import modules

_INSIDE = f"{modules.PREFIX}."


class ContribFinder:
    """Finds the modules of `tf.contrib`, including those that no longer exist: see `missing`.

    Raises ModuleNotFoundError for names that were no modules, and inside of `try` for those
    that are none today.

    The error has no `name`, because `from package import module` suppresses an error that names
    the module, and the advice with it.
    """

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """Returns the spec of a module below `tensorflow.contrib`; None for other modules."""
        if not fullname.startswith(_INSIDE):
            return None
        parent, _, name = fullname.rpartition(".")
        try:
            found = getattr(sys.modules.get(parent), name)
        except AttributeError as error:
            raise ModuleNotFoundError(str(error)) from None
        if isinstance(found, ModuleType):
            return importlib.machinery.ModuleSpec(fullname, _SecondName(found))
        raise ModuleNotFoundError(modules.missing(fullname.removeprefix(_INSIDE)))


class _SecondName(importlib.abc.Loader):
    """Imports an existing module under an additional name."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Lets Python create a module, which `exec_module` replaces with the existing one."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = self._module


def install() -> None:
    """Installs the finder; further calls change nothing."""
    if not any(isinstance(finder, ContribFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, ContribFinder())


def uninstall() -> None:
    """Removes the finder and every module imported below `tensorflow.contrib`."""
    sys.meta_path[:] = [finder for finder in sys.meta_path
                        if not isinstance(finder, ContribFinder)]
    for name in [name for name in sys.modules if name.startswith(_INSIDE)]:
        del sys.modules[name]
