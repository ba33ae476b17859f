# SPDX-License-Identifier: Apache-2.0
"""The C++ compiler and its command lines."""

import concurrent.futures
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence

from tpu_estimator_embedding import settings

_NAMES = ("c++", "g++", "clang++")
Watch = Callable[..., Iterable[concurrent.futures.Future[None]]]  # such as tqdm

_LIBRARIES_OF_CXX17 = "#include <optional>\n#include <string_view>\nint main() { return 0; }\n"


class CompilationError(Exception):
    """The compiler failed; the message contains its command and output."""


def find() -> list[str] | None:
    """Returns the command of a C++17 compiler: `$CXX` or the first one on the path that works.

    >>> find() is None or isinstance(find()[0], str)
    True
    """
    if platform.system() != "Linux":
        return None  # nothing else was ever tried
    chosen = shlex.split(settings.CXX.read() or "")
    candidates = [chosen] if chosen else [[name] for name in _NAMES]
    return next((command for command in candidates if _works(command)), None)


def run(command: Sequence[str]) -> None:
    """Runs one command of the compiler.

    Raises:
        CompilationError: if it fails.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompilationError(f"{shlex.join(command)}\n{error}") from error
    if done.returncode:
        raise CompilationError(f"{shlex.join(command)}\n{done.stderr}{done.stdout}".rstrip())


def run_all(commands: Sequence[Sequence[str]], watch: Watch | None = None) -> None:
    """Runs independent commands, as many at once as there are cores.

    Args:
        commands: the commands.
        watch: called with the commands that finish, one by one, and their number as `total`;
            yields them.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        finished = concurrent.futures.as_completed(
            [pool.submit(run, command) for command in commands])
        for one in watch(finished, total=len(commands)) if watch else finished:
            one.result()


def _works(command: list[str]) -> bool:
    if shutil.which(command[0]) is None:
        return False
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory, "probe.cc")
        source.write_text(_LIBRARIES_OF_CXX17)
        try:
            run([*command, "-std=c++17", str(source), "-o", str(source.with_suffix(""))])
        except CompilationError:
            return False
    return True
