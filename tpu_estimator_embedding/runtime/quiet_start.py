# SPDX-License-Identifier: Apache-2.0
"""Suppresses the messages that TensorFlow's C++ code writes while it is loaded."""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO, Any

from tpu_estimator_embedding.runtime import noise

_STDERR = 2


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--verbose`."""
    parser.add_argument("--verbose", action="store_true",
                        help="also show the messages that TensorFlow writes while it is loaded")


@contextlib.contextmanager
def quiet_start(verbose: bool, level: str = "silent") -> Iterator[None]:
    """Hides standard error of native code inside the context; sets the log level.

    The hidden text is shown if an exception ends the block.

    Args:
        verbose: whether to hide nothing.
        level: log level of native code from then on, see `noise.prepare`.
    """
    if verbose:
        yield
        return
    noise.prepare(level)
    with tempfile.TemporaryFile() as hidden, _python_to_stderr() as shown:
        os.dup2(hidden.fileno(), _STDERR)
        try:
            yield
        except BaseException:
            hidden.seek(0)
            os.write(shown, hidden.read())
            raise
        finally:
            os.dup2(shown, _STDERR)


@contextlib.contextmanager
def _python_to_stderr() -> Iterator[int]:
    """Keeps Python's standard error on the original one; yields its descriptor."""
    sys.stderr.flush()
    shown = os.dup(_STDERR)
    before: IO[str] = sys.stderr
    with os.fdopen(os.dup(shown), "w", buffering=1) as stream:
        proxy = _Stream(stream)
        if _is_standard_error(before):
            sys.stderr = proxy
        try:
            yield shown
        finally:
            sys.stderr = before
            proxy.stream = before
            os.close(shown)


class _Stream:
    """Forwards to a stream that can be exchanged, because log handlers keep `sys.stderr`."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _is_standard_error(stream: IO[str]) -> bool:
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError):  # a replacement by a test
        return False
