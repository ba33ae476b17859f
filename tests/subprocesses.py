# SPDX-License-Identifier: Apache-2.0
"""Runs Python programs in a separate process, for code that must run before anything else."""

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence

TIMEOUT = 300  # seconds; a program that hangs fails its test


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs `code`; raises AssertionError with its stderr unless it exits with 0."""
    done = start([sys.executable, "-c", textwrap.dedent(code)], **environment)
    assert done.returncode == 0, done.stderr
    return done


def start(command: Sequence[str], cwd: str | os.PathLike[str] | None = None,
          timeout: float = TIMEOUT, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end, whatever its exit status."""
    inherited = {name: value for name, value in os.environ.items()
                 if name != "TF_USE_LEGACY_KERAS"}  # what this process decided is not theirs
    return subprocess.run(list(map(str, command)), env={**inherited, **environment}, cwd=cwd,
                          capture_output=True, text=True, timeout=timeout, check=False)


def is_running(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for its parent to notice."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True,
                           check=False).stdout
    return bool(state) and not state.startswith("Z")


def wait_until(condition: Callable[[], object]) -> None:
    """Waits until a condition holds; fails after half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
