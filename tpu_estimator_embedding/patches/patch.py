# SPDX-License-Identifier: Apache-2.0
"""Replaces names in other packages and records the originals.

A patch is undone only where the name still has the value that was put there. If a program has put
another one on top since, such as a wrapper, that one stays, with the patch below it, and a warning
names it.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any

from tpu_estimator_embedding import versions
from tpu_estimator_embedding.patches.module_view import ModuleView

NOTHING = "(nothing)"  # the original of a new name


@dataclasses.dataclass(frozen=True)
class Patch:
    """A name in another package that this package adds or replaces.

    Attributes:
        module: full name of the module that gets the name; "module:Class" for an attribute of a
            class; empty for a top-level module.
        name: the attribute; for a submodule, the last part of its name.
        source: the new value: "module" or "module:attribute".
        reason: why the name is patched.
        is_module: whether `module.name` also becomes importable.
        is_lazy: whether the source is imported when one of its names is first read.
        replaces: whether to replace a name that TensorFlow already has.
        since: first TensorFlow version, `(major, minor)`, with the module.
        wraps: whether the source is a function that returns the new value, given the one that it
            replaces, which may be another program's.
    """

    module: str
    name: str
    source: str
    reason: str
    is_module: bool = False
    is_lazy: bool = False
    replaces: bool = False
    since: tuple[int, int] | None = None
    wraps: bool = False

    @property
    def path(self) -> str:
        """The name as a program writes it."""
        return f"{self.module.replace(':', '.')}.{self.name}".lstrip(".")


@dataclasses.dataclass(frozen=True)
class Original:
    """What a patched name was, `NOTHING` if it is new, and what it is now."""

    attribute: object
    module: Any
    replacement: object


# Global, because patches are global state of the interpreter. In order of application.
_originals: dict[Patch, Original] = {}

# Number of `applied` contexts that hold a patch which is not applied permanently; 0 if it could not
# be undone.
_held: Counter[Patch] = Counter()
_lock = threading.RLock()


def apply(patch: Patch) -> None:
    """Applies a patch permanently, if it is needed.

    One that is applied stays as it is, below what a program has put on top of it since.
    """
    with _lock:
        _held.pop(patch, None)
        _put_in_place(patch)


@contextlib.contextmanager
def applied(patches: Iterable[Patch]) -> Iterator[None]:
    """Applies patches inside the context; earlier patches stay.

    Several threads may apply the same patches; the last one to exit restores the originals. A name
    that was replaced inside the context is left as it is, with a warning, until it has the patch
    again and another context with it ends.

    >>> import math
    >>> with applied([Patch("math", "answer", "math:e", "for a moment")]):
    ...     hasattr(math, "answer")
    True
    >>> hasattr(math, "answer")
    False
    """
    held = []
    try:
        for patch in patches:
            with _lock:
                if patch in _originals and patch not in _held:
                    continue
                _put_in_place(patch)
                if patch in _originals:
                    _held[patch] += 1
                    held.append(patch)
        yield
    finally:
        for patch in reversed(held):
            with _lock:
                _release(patch)


def _release(patch: Patch) -> None:
    if not _held[patch]:  # it was applied permanently, or undone, in the meantime
        return
    _held[patch] -= 1
    if not _held[patch]:
        _undo(patch)


def _put_in_place(patch: Patch) -> None:
    if patch in _originals:
        return
    if patch.since and versions.tensorflow_minor() < patch.since:
        return
    if not patch.replaces and _exists(patch):
        return
    attribute = current_attribute(patch)
    replacement = _replacement(patch)
    if patch.wraps:
        replacement = replacement(attribute)
    before = Original(attribute, sys.modules.get(patch.path, NOTHING), replacement)
    if patch.module and before.attribute is not replacement:
        setattr(_target(patch), patch.name, replacement)
        _originals[patch] = before
    if patch.is_module and before.module is not replacement:
        sys.modules[patch.path] = replacement
        _originals[patch] = before


def undo_all() -> None:
    """Restores the originals of all patched names, latest first, but for those replaced since."""
    with _lock:
        for patch in reversed(list(_originals)):
            _held[patch] = 0
            _undo(patch)


def _undo(patch: Patch) -> None:
    before = _originals[patch]
    if _is_covered(patch, before):
        warnings.warn(
            f"{patch.path} was replaced after tpu_estimator_embedding had patched it "
            f"({patch.reason}). It is left as it is, with the patch below it. Restore what was "
            "there before, and call uninstall().", stacklevel=2)
        return
    del _originals[patch], _held[patch]
    if patch.module:
        _restore_attribute(patch, before)
    if patch.is_module and before.module is NOTHING:
        sys.modules.pop(patch.path, None)
    elif patch.is_module:
        sys.modules[patch.path] = before.module


def _is_covered(patch: Patch, before: Original) -> bool:
    """Whether a name has neither the patch nor its original any more, but another value."""
    known = (NOTHING, before.replacement)
    found = [(current_attribute(patch), before.attribute)] if patch.module else []
    if patch.is_module:
        found.append((sys.modules.get(patch.path, NOTHING), before.module))
    return any(all(value is not each for each in (*known, original)) for value, original in found)


def current_attribute(patch: Patch) -> object:
    """Returns the present value of a name; `NOTHING` if there is none."""
    target = _target(patch)
    if target is None:
        return NOTHING
    if isinstance(target, type):  # the class's own attribute, unbound, not an inherited one
        return vars(target).get(patch.name, NOTHING)
    # TensorFlow's module wrappers log a deprecation when such a name is read.
    names = vars(getattr(target, "_tfmw_wrapped_module", target))
    return names[patch.name] if patch.name in names else getattr(target, patch.name, NOTHING)


def originals() -> dict[Patch, Original]:
    """Every patch applied in this process, oldest first, with its originals."""
    return dict(_originals)


def _target(patch: Patch) -> ModuleType | type | None:
    """The module or class that has the name; None for a top-level module."""
    module, _, class_name = patch.module.partition(":")
    target = importlib.import_module(module) if module else None
    return getattr(target, class_name) if class_name else target


def _restore_attribute(patch: Patch, before: Original) -> None:
    target = _target(patch)
    if before.attribute is not NOTHING:
        setattr(target, patch.name, before.attribute)
    elif current_attribute(patch) is not NOTHING:
        delattr(target, patch.name)


def _exists(patch: Patch) -> bool:
    if patch.is_module:
        return patch.path in sys.modules or _can_be_imported(patch.path)
    return current_attribute(patch) is not NOTHING


def _can_be_imported(path: str) -> bool:
    try:
        return importlib.util.find_spec(path) is not None
    except ModuleNotFoundError:  # the parent does not exist
        return False


@functools.cache  # a patch that is applied again is the same module
def _lazy_module(path: str, source: str) -> ModuleView:
    return ModuleView(path, lambda: importlib.import_module(source))


def _replacement(patch: Patch) -> Any:
    module, _, attribute = patch.source.partition(":")
    if patch.is_lazy:
        return _lazy_module(patch.path, module)
    loaded = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
