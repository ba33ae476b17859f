# SPDX-License-Identifier: Apache-2.0
"""Suppresses the messages that TensorFlow's C++ code writes while it is loaded."""

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import IO

from tpu_estimator_embedding.runtime import noise

_STDERR = 2


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Adds the option that shows everything."""
    parser.add_argument("--verbose", action="store_true",
                        help="show what TensorFlow writes while it is loaded, too")


@contextlib.contextmanager
def quiet_start(verbose: bool) -> Iterator[None]:
    """Hides standard error of native code inside the context; sets the log level.

    What was hidden is shown if an exception ends the block.

    Args:
        verbose: hides nothing.
    """
    if verbose:
        yield
        return
    noise.prepare("silent")
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
    """Redirects Python's standard error to the present one; yields its descriptor."""
    sys.stderr.flush()
    shown = os.dup(_STDERR)
    before: IO[str] = sys.stderr
    with os.fdopen(os.dup(shown), "w", buffering=1) as stream:
        if _is_standard_error(before):
            sys.stderr = stream
        try:
            yield shown
        finally:
            sys.stderr = before
            os.close(shown)


def _is_standard_error(stream: IO[str]) -> bool:
    try:
        return stream.fileno() == _STDERR
    except (OSError, ValueError):  # a test's own
        return False
