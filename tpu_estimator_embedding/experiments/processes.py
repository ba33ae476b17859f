# SPDX-License-Identifier: Apache-2.0
"""Runs child processes, several at a time, and ends them gracefully."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

# An interrupted estimator finishes its step and saves a checkpoint before it ends.
_GRACE_SECONDS = 60.0
_POLL_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Job:
    """A command and the file for its output."""

    name: str
    command: Sequence[str]
    log: pathlib.Path


def run_all(jobs: Sequence[Job], at_once: int, ended: Callable[[Job, int], None],
            waiting: Callable[[list[Job]], None] = lambda running: None,
            started: Callable[[Job, int], Sequence[str]] | None = None) -> None:
    """Runs jobs in order, at most `at_once` at a time.

    No child survives this call, also after Ctrl-C, SIGTERM or an exception of a callback: children
    are interrupted, and killed if they do not end within a minute or Ctrl-C is pressed again.

    Args:
        jobs: the jobs to run.
        at_once: maximum number of simultaneous processes.
        ended: called with a job and its exit status.
        waiting: called ten times a second with the running jobs.
        started: called with a job and its slot, in [0, at_once), before it starts; returns
            arguments to append to its command.

    Raises:
        KeyboardInterrupt: after the children have ended.
    """
    queue = list(jobs)
    running: dict[int, tuple[Job, subprocess.Popen[bytes]]] = {}
    with sigterm_as_interrupt():
        try:
            while queue or running:
                for place in range(at_once):
                    if queue and place not in running:
                        job = queue.pop(0)
                        added = started(job, place) if started else ()
                        running[place] = (job, _start(job, added))
                for place, (job, process) in list(running.items()):
                    if process.poll() is not None:
                        del running[place]
                        ended(job, process.returncode)
                waiting([job for job, _ in running.values()])
                time.sleep(_POLL_SECONDS)
        finally:
            _end([process for _, process in running.values()])


def last_words(log: pathlib.Path) -> str:
    """Returns the last line of a log, which contains the error of a failed Python program."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it printed nothing")


def _start(job: Job, added: Sequence[str]) -> subprocess.Popen[bytes]:
    with job.log.open("ab") as log:
        # In a new session, so that only this process forwards Ctrl-C, and only once.
        return subprocess.Popen([*job.command, *added], stdin=subprocess.DEVNULL, stdout=log,
                                stderr=subprocess.STDOUT, start_new_session=True,
                                env={**os.environ, "PYTHONUNBUFFERED": "1"})


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _GRACE_SECONDS
    try:
        for process in processes:
            _signal(process, signal.SIGINT)
        while any(process.poll() is None for process in processes):
            if time.monotonic() > deadline:
                break
            time.sleep(_POLL_SECONDS)
    finally:
        for process in processes:
            if process.poll() is None:
                _signal(process, signal.SIGKILL)
            process.wait()


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)  # its session has its own process group


@contextlib.contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raises KeyboardInterrupt on SIGTERM as well, inside the context."""
    def interrupt(number: int, frame: object) -> None:
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


def python_module(name: str) -> list[str]:
    """Returns the command that runs a module with this Python."""
    return [sys.executable, "-m", name]
