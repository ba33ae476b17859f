# SPDX-License-Identifier: Apache-2.0
"""Filters TensorFlow's log: shows every deprecation once, in one line, or sets a level.

It uses filters on TensorFlow's logger, because programs set the level of the logger themselves.
"""

import logging
import os

LEVELS = ("quiet", "normal", "verbose")

# The lowest severity that TensorFlow's C++ prints, read when it is loaded.
_CPP_LEVEL = {"silent": "3", "quiet": "2", "verbose": "0"}
_CPP_VARIABLE = "TF_CPP_MIN_LOG_LEVEL"

_chosen: set[str] = set()  # the level; kept if the program itself calls `install`


class DeprecationsOnce(logging.Filter):
    """Drops repeated deprecations, regardless of the caller, and shortens them to one line.

    >>> record = logging.makeLogRecord({"msg": "From %s: %s is deprecated", "args": ("a", "f")})
    >>> once = DeprecationsOnce()
    >>> once.filter(record), once.filter(record)
    (True, False)
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: set[tuple[str, ...]] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        if not _is_deprecation(record):
            return True
        arguments = _arguments(record)  # the location of the call, then the deprecated name
        key = (record.msg, *map(str, arguments[1:]))
        is_new = key not in self._shown
        self._shown.add(key)
        record.msg = record.msg.partition("\n")[0]  # the rest is advice for TensorFlow 2
        record.args = arguments[:record.msg.count("%s")]
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

    Call it before importing TensorFlow. Besides LEVELS it accepts "silent", for this package's
    own commands.
    """
    if level in _CPP_LEVEL:
        os.environ.setdefault(_CPP_VARIABLE, _CPP_LEVEL[level])


def show_once() -> None:
    """Installs the filters; further calls change nothing."""
    import tensorflow as tf
    if "verbose" not in _chosen:
        _add(tf.get_logger(), DeprecationsOnce())
    for handler in tf.get_logger().handlers:
        _add(handler, NotByAbslToo())


def set_level(level: str) -> None:
    """Sets the level, one of LEVELS, after TensorFlow was loaded."""
    _chosen.add(level)
    if level == "quiet":
        _add(_logger(), NoChatter())
    elif level == "verbose":
        _remove(_logger(), DeprecationsOnce)
        _logger().setLevel(logging.INFO)


def forget() -> None:
    """Removes the filters."""
    _chosen.clear()
    _remove(_logger(), DeprecationsOnce, NoChatter)
    for handler in _logger().handlers:
        _remove(handler, NotByAbslToo)


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
