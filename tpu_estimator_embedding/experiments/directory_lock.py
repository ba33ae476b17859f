# SPDX-License-Identifier: Apache-2.0
"""Keeps a second process out of the directory of a sweep while one runs there.

Two would run the same settings into the same model directories, and cut each other's lines in the
journal of a search.
"""

import contextlib
import os
import pathlib
from collections.abc import Iterator

from tpu_estimator_embedding import checks

_NAME = "sweep.lock"  # stays in the directory, with the process that held it last


@contextlib.contextmanager
def held(directory: pathlib.Path, argument: str) -> Iterator[None]:
    """Holds a directory, which is created; the system releases it when the process ends or dies.

    Args:
        directory: the directory.
        argument: the name under which it was given, as the message has it: "--out", "`out`".

    Raises:
        ValueError: if another process, or another thread, holds it.
    """
    import fcntl  # not on Windows, where the module can be imported at least

    directory.mkdir(parents=True, exist_ok=True)
    lock = directory / _NAME
    with lock.open("a+b", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = lock.read_text(encoding="utf-8")
            raise ValueError(_refusal(directory, argument, holder)) from None
        except OSError:  # the file system has no locks; runs are worth more than this check
            yield
            return
        with contextlib.suppress(OSError):  # on a full disk the process stays unnamed
            file.truncate(0)
            file.write(f"{os.getpid()}\n".encode())
        yield


def _refusal(directory: pathlib.Path, argument: str, holder: str) -> str:
    who = f"Process {holder.strip()}" if holder.strip() else "Another process"
    return checks.complaint(
        argument.strip("`"), "a directory in which no other sweep runs", str(directory),
        f"{who} runs one there: wait for its end, or choose another {argument}.")
