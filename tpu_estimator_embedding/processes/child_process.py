# SPDX-License-Identifier: Apache-2.0
"""Child processes of which nothing is left, not even what they started themselves.

Each child has its own session and so its own process group, to which signals are sent. A child
that has ended is not reaped before `kill`: until then the number of its group is not used again, so
that `kill` reaches what it has left behind. A `Reaper` does the same if this process is killed.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, Any, Protocol

from tpu_estimator_embedding.processes.reaper import Reaper

POLL_SECONDS = 0.1


class ChildProcess:
    """A process, and all that it starts without leaving its session.

    Attributes:
        pid: the process, and its group.
        output: what it prints, if `output` was `subprocess.PIPE`.
    """

    def __init__(self, command: Sequence[str], reaper: Reaper, *, output: int | IO[bytes],
                 environment: Mapping[str, str] | None = None):
        """Starts the process, in a new session: only this process sends it Ctrl-C, and only once.

        Args:
            command: what it runs.
            reaper: kills it if this process dies.
            output: where it prints; `subprocess.PIPE` to read it.
            environment: variables that it has in addition to those of this process.
        """
        self._process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"})
        self._reaper = reaper
        self.pid, self.output = self._process.pid, self._process.stdout
        reaper.watch(self.pid)

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        if not hasattr(os, "waitid"):  # macOS
            return self._process.poll()
        ended = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def send(self, number: int) -> None:
        """Sends a signal to the process, and to what it has started, unless it has ended."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def kill(self) -> int:
        """Ends the process and what it has started, at once; returns the exit status."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # of a group that ended
                os.killpg(self.pid, signal.SIGKILL)
        return self.wait()

    def wait(self) -> int:
        """Waits for the end of the process; returns the exit status."""
        status = self._process.wait()
        self._reaper.release(self.pid)
        return status


class HasStatus(Protocol):
    """A process, or what has one."""

    @property
    def status(self) -> int | None: ...


def wait_for_all(processes: Collection[HasStatus], seconds: float) -> None:
    """Waits until processes have ended, or so many seconds are over."""
    deadline = time.monotonic() + seconds
    while any(process.status is None for process in processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raises KeyboardInterrupt on SIGTERM as well, inside the context."""
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # only the main thread can handle signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
