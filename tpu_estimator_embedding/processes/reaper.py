# SPDX-License-Identifier: Apache-2.0
"""Ends the children of a process that was killed.

A process that SIGKILL ends cannot end others. So a small separate process reads from a pipe, which
the kernel closes when the process dies in whatever way, and then kills its children. Unlike Linux's
parent-death signal this works on every POSIX system, does not depend on the thread that started a
child, and reaches what the child itself has started.
"""

import contextlib
import os
import signal
import subprocess
import sys
import weakref


class Reaper:
    """Kills process groups when this process dies."""

    def __init__(self) -> None:
        """Starts the process that waits for the end of this one."""
        # -I -S: without the paths and modules of the program, within some milliseconds.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        assert process.stdin
        self._pipe = process.stdin
        weakref.finalize(self, process.communicate)  # closes the pipe

    def watch(self, group: int) -> None:
        """Has a process group killed if this process dies before `release`."""
        self._write(f"{group}\n")

    def release(self, group: int) -> None:
        """Leaves a process group alone from now on; its number may be used again."""
        self._write(f"-{group}\n")

    def _write(self, line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reaper was killed
            self._pipe.write(line.encode())
            self._pipe.flush()


def main() -> None:
    """Reads numbers of process groups, negative ones to release; kills the rest at the end."""
    groups: set[int] = set()
    for line in sys.stdin:
        number = int(line)
        groups = groups | {number} if number > 0 else groups - {-number}
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
