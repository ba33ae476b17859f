# SPDX-License-Identifier: Apache-2.0
"""Filters TensorFlow's log and Python's warnings: shows a deprecation once, or sets a level.

It uses filters on TensorFlow's logger, because programs set the level of the logger themselves.
A deprecation is shown only if the reader can act on it: the caller is not a file of TensorFlow, of
the Estimator or of this package, and the name is not one that this package keeps alive.
"""

import contextlib
import importlib.util
import logging
import os
import pathlib
import sys
import warnings
from typing import Any, Literal

# The lowest severity that TensorFlow's C++ prints, read when it is loaded.
_CPP_LEVEL = {"silent": "3", "quiet": "2", "normal": "1", "verbose": "0"}
_CPP_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"

# Packages that call deprecated functions, which a program cannot change.
_PACKAGES = ("tpu_estimator_embedding", "tensorflow", "tensorflow_estimator", "tf_keras", "keras")

# Decorators of functions, in which TensorFlow wrongly locates the call of some.
_WRAPPERS = os.path.join("tensorflow", "python", "util", "")

# Prefixes of names, modules and replacements in deprecations of what `install` and `run --tf1` keep
# alive: the Estimator, tf.contrib, and the TensorFlow 1.x API, which tf.compat.v1 is already.
_KEPT_ALIVE = ("tf.estimator.", "tf.contrib.", "tensorflow_estimator.", "tf.compat.v1.")

# The same in Python's warnings of the legacy layers.
_KEPT_ALIVE_MESSAGE = r"`(tf\.layers|tf\.nn\.rnn_cell|layer)\.\w+` is deprecated"

_warning_filters: list[object] = []  # those added to `warnings.filters`
_chosen: set[str] = set()  # the level; kept if the program itself calls `install`


class DeprecationsOnce(logging.Filter):
    """Drops repeated deprecations and those that the reader cannot act on; shortens the others.

    >>> record = logging.makeLogRecord({"msg": "From %s: %s is deprecated", "args": ("a", "f")})
    >>> once = DeprecationsOnce()
    >>> once.filter(record), once.filter(record)
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[tuple[str, ...]] = set()
        self._directories = _directories()

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_deprecation(record):
            return True
        location, *named = map(str, _arguments(record))  # of the call; the deprecated name
        location = _caller() if _WRAPPERS in location else location
        if location.startswith(self._directories) or any(
                argument.startswith(_KEPT_ALIVE) for argument in named):
            return False
        key = (record.msg, *named)
        is_new = key not in self._shown
        self._shown.add(key)
        record.msg = record.msg.partition("\n")[0]  # the rest is advice for TensorFlow 2
        record.args = (location, *named)[:record.msg.count("%s")]
        return is_new


class NoChatter(logging.Filter):
    """Drops deprecations and records below WARNING."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno >= logging.WARNING and not _is_deprecation(record)


class NotByAbslToo(logging.Filter):
    """Drops records in TensorFlow's handler that absl's root handler also shows."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not any(type(handler).__module__.startswith("absl.")
                       for handler in logging.getLogger().handlers)


def prepare(level: str) -> None:
    """Sets the environment variables that TensorFlow reads while it is loaded.

    Call it before importing TensorFlow.

    Args:
        level: "quiet", "normal" or "verbose"; "silent" for this package's commands.
    """
    os.environ.setdefault(_CPP_VARIABLE, _CPP_LEVEL[level])


def show_once() -> None:
    """Installs the filters; further calls change nothing."""
    import tensorflow as tf
    if "verbose" not in _chosen:
        _add(tf.get_logger(), DeprecationsOnce())
        _filter_warnings("ignore", message=_KEPT_ALIVE_MESSAGE)
    for handler in tf.get_logger().handlers:
        _add(handler, NotByAbslToo())


def set_level(level: str) -> None:
    """Sets the level, "quiet", "normal" or "verbose", after TensorFlow was loaded."""
    _chosen.add(level)
    if level == "quiet":
        _add(_logger(), NoChatter())
        _filter_warnings("ignore")
        _filter_warnings("default", category=RuntimeWarning)  # of NumPy, about wrong numbers
        _filter_warnings("default", category=UserWarning, module=r"tpu_estimator_embedding\.")
        _filter_warnings("ignore", message=_KEPT_ALIVE_MESSAGE)
    elif level == "verbose":
        _remove(_logger(), DeprecationsOnce)
        _logger().setLevel(logging.INFO)


def forget() -> None:
    """Removes the filters."""
    _chosen.clear()
    _remove(_logger(), DeprecationsOnce, NoChatter)
    for item in _warning_filters:
        with contextlib.suppress(ValueError):  # the program removed it
            warnings.filters.remove(item)  # type: ignore[attr-defined]
    _warning_filters.clear()
    for handler in _logger().handlers:
        _remove(handler, NotByAbslToo)


def _filter_warnings(action: Literal["default", "ignore"], **which: Any) -> None:
    if not sys.warnoptions:  # otherwise the user has chosen
        warnings.filterwarnings(action, **which)
        _warning_filters.append(warnings.filters[0])


def _caller() -> str:
    """Returns the location of the call that TensorFlow's wrappers forwarded to this log record."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _WRAPPERS not in frame.f_code.co_filename:
        frame = frame.f_back  # of the logging library
    while frame.f_back is not None and _WRAPPERS in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _directories() -> tuple[str, ...]:
    found = [spec for spec in map(importlib.util.find_spec, _PACKAGES) if spec is not None]
    return tuple(f"{pathlib.Path(spec.origin).parent}{os.sep}" for spec in found if spec.origin)


def _is_deprecation(record: logging.LogRecord) -> bool:
    """Whether a record has the form of TensorFlow's deprecations."""
    return (bool(_arguments(record)) and str(record.msg).startswith("From %s: ")
            and " deprecated" in record.msg)


def _arguments(record: logging.LogRecord) -> tuple[object, ...]:
    return record.args if isinstance(record.args, tuple) else ()


def _logger() -> logging.Logger:
    return logging.getLogger("tensorflow")


def _add(where: logging.Filterer, new: logging.Filter) -> None:
    if not any(type(present) is type(new) for present in where.filters):
        where.addFilter(new)


def _remove(where: logging.Filterer, *kinds: type) -> None:
    for present in list(where.filters):
        if isinstance(present, kinds):
            where.removeFilter(present)
