# SPDX-License-Identifier: Apache-2.0
"""Checks of arguments, and the sentence in which most of them complain."""

import argparse
import fnmatch
import inspect
import os
from collections.abc import Callable, Collection


def complaint(argument: str, rule: str, value: object, fix: str = "", *, sentence: str = "") -> str:
    """Says which argument broke which rule, with what value, and the fix.

    Args:
        argument: its name, or a phrase such as "ids of feature 'a'".
        rule: end of "`argument` must be …", or "have …".
        value: what was received.
        fix: a sentence with the fix, where the rule does not say it.
        sentence: TensorFlow's sentence for the case, which people search for; comes first.

    >>> complaint("dimension", "an int of at least 1", 0)
    '`dimension` must be an int of at least 1, got 0.'
    >>> complaint("ids of feature 'a'", "integers", "float32")
    "Ids of feature 'a' must be integers, got 'float32'."
    >>> complaint("columns", "have distinct names", ["a", "a"])
    "`columns` must have distinct names, got ['a', 'a']."
    """
    must = "must" if rule.startswith("have ") else "must be"
    own = f"{_subject(argument)} {must} {rule}, got {value!r}."
    return " ".join(filter(None, [sentence, own, fix]))


def _subject(argument: str) -> str:
    """Returns an argument, or a phrase, as the first words of a sentence.

    >>> _subject("optimizer of table 'a'"), _subject("learning_rate of SGD")
    ("Optimizer of table 'a'", '`learning_rate` of SGD')
    """
    first, _, rest = argument.partition(" ")
    if rest and first.isalpha():
        return argument[:1].upper() + argument[1:]
    return f"`{first}` {rest}" if rest.startswith(("of ", "in ", "at ")) else f"`{argument}`"


def check(holds: bool, argument: str, rule: str, value: object, fix: str = "", *,
          sentence: str = "") -> None:
    """Raises ValueError with the house sentence unless `holds`."""
    if not holds:
        raise ValueError(complaint(argument, rule, value, fix, sentence=sentence))


def check_with_sentence(holds: bool, sentence: str, fix: str = "") -> None:
    """Raises ValueError unless `holds`: TensorFlow's sentence for the case, then the fix."""
    if not holds:
        raise ValueError(f"{sentence} {fix}".rstrip())


def check_type(types: type | tuple[type, ...], argument: str, rule: str, value: object,
               fix: str = "", *, sentence: str = "") -> None:
    """Raises TypeError with the house sentence unless `value` is one of `types`."""
    if not isinstance(value, types):
        raise TypeError(complaint(argument, rule, value, fix, sentence=sentence))


def check_positive_int(argument: str, value: object, *, sentence: str = "") -> None:
    """Raises ValueError unless `value` is an int of at least 1 (a bool is not)."""
    is_positive = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    check(is_positive, argument, "an int of at least 1", value, sentence=sentence)


def read_positive_int(text: str) -> int:
    """Reads an int of at least 1 from an option of a command.

    Raises:
        argparse.ArgumentTypeError: the text is anything else.
    """
    return _read_int(text, 1)


def read_count(text: str) -> int:
    """Reads an int of at least 0 from an option of a command.

    Raises:
        argparse.ArgumentTypeError: the text is anything else.
    """
    return _read_int(text, 0)


def _read_int(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f"must be an integer of at least {least}, got {text!r}")
    return int(text)


def check_can_be_directory(argument: str,
                           path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None)-> None:
    """Raises an error if a path of this machine, or one above it, is no directory.

    Paths of other file systems, such as `gs://...`, and None are not checked.

    Raises:
        TypeError: if it is no path.
        ValueError: if a file is in the way.

    >>> check_can_be_directory("model_dir", "/nonexistent/model")
    """
    if path is None:
        return
    check_type((str, bytes, os.PathLike), argument, "a path", path)
    given = os.path.abspath(os.fspath(path))
    existing = given
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    kind = "file" if os.path.exists(existing) else "link to a missing path"
    check(os.path.isdir(existing), argument, "a directory or a new path", os.fspath(path),
          f"{'It' if existing == given else repr(existing)} is a {kind}. Give another path, or "
          f"move the {kind.partition(' ')[0]} away.")


def check_can_hold_checkpoints(
        argument: str, path: str | bytes | os.PathLike[str] | os.PathLike[bytes] | None) -> None:
    """Raises an error if TensorFlow could not find checkpoints again that it writes to a path.

    TensorFlow looks them up by patterns, in which brackets are a set of characters and a backslash
    quotes the next one. None is not checked.

    Raises:
        TypeError: if it is no path.
        ValueError: if a file is in the way, or the path as a pattern does not match itself.

    >>> check_can_hold_checkpoints("model_dir", "/nonexistent/rate[0.1]")
    Traceback (most recent call last):
        ...
    ValueError: `model_dir` must be a path without brackets and backslashes, got
    '/nonexistent/rate[0.1]'. TensorFlow takes them for patterns of file names, and finds no
    checkpoint there.
    """
    check_can_be_directory(argument, path)
    if path is not None:
        given = os.fsdecode(path)
        matches_itself = all(fnmatch.fnmatchcase(part, part) for part in given.split("/"))
        check(matches_itself and "\\" not in given, argument,
              "a path without brackets and backslashes", given,
              "TensorFlow takes them for patterns of file names, and finds no checkpoint there.")


def check_can_be_file(argument: str, path: str) -> None:
    """Raises ValueError if no file of this machine can be written at a path.

    >>> check_can_be_file("--report", "/tmp/report.json")
    """
    check(not os.path.isdir(path), argument, "a file", path,
          "It is a directory. Give the path of a file in it.")
    folder = os.path.dirname(os.path.abspath(path))
    check(os.path.isdir(folder), argument, "a file in a directory that exists", path,
          f"There is no directory {folder!r}. Make it, or give another path.")


def check_one_of(argument: str, allowed: Collection[object], value: object, fix: str = "", *,
                 sentence: str = "") -> None:
    """Raises ValueError unless `value` is among `allowed`."""
    names = ", ".join(repr(item) for item in allowed)
    check(value in allowed, argument, f"one of {names}", value, fix, sentence=sentence)


def check_takes(arguments: Collection[str], argument: str, function: Callable[..., object],
                fix: str = "") -> None:
    """Raises ValueError if a function can not be called with these arguments, by position.

    Args:
        arguments: what it is called with, in words.
        argument: the name under which the function was given.
        function: one whose signature may be unknown; then nothing is checked.
        fix: a sentence with the fix.

    >>> check_takes(["the global step"], "learning_rate_fn", lambda step: 0.1)
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin, for instance
        return
    try:
        signature.bind(*arguments)
    except TypeError:
        expected = ", ".join(arguments) or "no arguments"
        check(False, argument, f"a function of {expected}", f"a function of {signature}", fix)


def check_callable_or_none(argument: str, value: Callable[..., object] | None, *,
                           takes: Collection[str] | None = None, sentence: str = "")-> None:
    """Raises ValueError unless `value` is None or can be called, with `takes` if that is given."""
    check(value is None or callable(value), argument, "a callable or None", value,
          sentence=sentence)
    if value is not None and takes is not None:
        check_takes(takes, argument, value)
