# SPDX-License-Identifier: Apache-2.0
"""Placeholders for names of `tf.contrib` without a successor: they raise an error at first use.

Programs import many names that they never use on their way. A name that they ask for raises at
once: inside of `try`, so that `try: from tensorflow.contrib import x ... except ImportError` still
works, and in a call, so that `hasattr(tf.contrib, "x")` is False, and `getattr(tf.contrib, "x", y)`
is y.
"""

import dis
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any, NoReturn

_OURS = f"{__package__}."
_IMPORTERS = ("importlib", "_frozen_importlib", _OURS)
# The instructions of `import` and of `module.name`; what reads a name in a call is another one.
_READS = frozenset(("IMPORT_NAME", "IMPORT_FROM", "LOAD_ATTR", "LOAD_METHOD"))


class Missing(ModuleType):
    """A placeholder for a module, a class or a function that no longer exists.

    Names in it stand for what exists no longer, too; a class has none. It has no instances.

    Args:
        path: its name below `tf.contrib`.
        find: returns a name in it, given its path, or raises AttributeError.
        reason: returns why a name does not exist, given its path.

    >>> lost = Missing("a.Lost", getattr, lambda path: f"There is no {path}.")
    >>> isinstance(1, lost)
    False
    >>> lost()
    Traceback (most recent call last):
    AttributeError: There is no a.Lost.
    """

    def __init__(self, path: str, find: Callable[[str], Any], reason: Callable[[str], str]) -> None:
        super().__init__(f"tensorflow.contrib.{path}", "A name of TensorFlow 1.x.")
        vars(self).update(_path=path, _find=find, _reason=reason, __path__=[])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # which others look for in any module
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if self._path.rpartition(".")[2][0].isupper():
            self._raise()
        return self._find(f"{self._path}.{name}")

    def _raise(self, *args: object, **kwargs: object) -> NoReturn:
        raise AttributeError(self._reason(self._path))

    __call__ = __getitem__ = __iter__ = __enter__ = __exit__ = __mro_entries__ = _raise

    def __instancecheck__(self, value: object) -> bool:
        return False

    __subclasscheck__ = __instancecheck__


def is_asked() -> bool:
    """Whether the program asks if there is a name, and goes on without it if there is none.

    It does so by a call, such as `hasattr(module, "name")`, and by what stands inside of `try`, but
    not only inside of `with`. All else is an import or a plain attribute.
    """
    frame: FrameType | None = sys._getframe(1)
    is_imported = False
    while frame and (module := frame.f_globals.get("__name__", "")).startswith(_IMPORTERS):
        is_imported = is_imported or not module.startswith(_OURS)
        frame = frame.f_back
    if frame is None:
        return False
    operation = dis.opname[frame.f_code.co_code[frame.f_lasti]]
    if not is_imported and operation not in _READS:
        return True
    code: Any = dis.Bytecode(frame.f_code)
    return any(entry.start <= frame.f_lasti < entry.end and not entry.lasti
               for entry in code.exception_entries)
