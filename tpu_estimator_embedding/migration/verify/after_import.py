# SPDX-License-Identifier: Apache-2.0
"""Calls a function when a program has imported a module."""

import contextlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


@contextlib.contextmanager
def after_import(name: str, function: Callable[[], None]) -> Iterator[None]:
    """Calls a function now if the module is imported, otherwise when it is.

    Importing it earlier than the program does may have effects: tensorflow_estimator, for
    example, decides which Keras version layers use.
    """
    if name in sys.modules:
        function()
        yield
        return
    finder = _Finder(name, function)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # it was imported
            sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name, self._function = name, function

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._function()

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
