# SPDX-License-Identifier: Apache-2.0
"""Runs child processes, several at a time, and ends them gracefully."""

import dataclasses
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from tpu_estimator_embedding.processes.child_process import (
    POLL_SECONDS,
    ChildProcess,
    sigterm_as_interrupt,
    wait_for_all,
)
from tpu_estimator_embedding.processes.reaper import Reaper

# An interrupted estimator finishes its step and saves a checkpoint before it ends.
_GRACE_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Job:
    """A command and the file for its output."""

    name: str
    command: Sequence[str]
    log: pathlib.Path


def run_all(jobs: Iterable[Job], at_once: int, ended: Callable[[Job, int], None],
            waiting: Callable[[list[Job]], Collection[str] | None] = lambda running: None,
            started: Callable[[Job, int], Sequence[str]] | None = None) -> None:
    """Runs jobs in order, at most `at_once` at a time.

    No child survives this call, nor what it has started, also after Ctrl-C, SIGTERM or an exception
    of a callback: children are interrupted, and killed if they do not end within a minute or Ctrl-C
    is pressed again.

    Args:
        jobs: the jobs to run; each is asked for when there is a process for it.
        at_once: maximum number of simultaneous processes.
        ended: called with a job and its exit status.
        waiting: called ten times a second with the running jobs; returns the names of those to
            interrupt, which are killed if they do not end within a minute.
        started: called with a job and its slot, in [0, at_once), before it starts; returns
            arguments to append to its command.

    Raises:
        KeyboardInterrupt: after the children have ended.
    """
    queue, is_empty, reaper = iter(jobs), False, Reaper()
    running: dict[int, tuple[Job, ChildProcess]] = {}
    told_at: dict[int, float] = {}  # process -> when it was interrupted
    with sigterm_as_interrupt():
        try:
            while running or not is_empty:
                for place in range(at_once):
                    if not is_empty and place not in running:
                        job = next(queue, None)
                        if job is None:
                            is_empty = True
                            break
                        added = started(job, place) if started else ()
                        running[place] = (job, _start(job, added, reaper))
                for place, (job, process) in list(running.items()):
                    if process.status is not None:
                        status = process.kill()  # what it has started, too
                        del running[place]
                        told_at.pop(process.pid, None)
                        ended(job, status)
                unwanted = waiting([job for job, _ in running.values()]) or ()
                for job, process in running.values():
                    if job.name in unwanted:
                        _interrupt(process, told_at)
                time.sleep(POLL_SECONDS)
        finally:
            _end([process for _, process in running.values()])


def last_words(log: pathlib.Path) -> str:
    """Returns the last line of a log, which contains the error of a failed Python program."""
    lines = [line.strip() for line in log.read_text("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it printed nothing")


def _start(job: Job, added: Sequence[str], reaper: Reaper) -> ChildProcess:
    with job.log.open("ab") as log:
        return ChildProcess([*job.command, *added], reaper, output=log)


def _interrupt(process: ChildProcess, told_at: dict[int, float]) -> None:
    """Interrupts a process once, and kills it when it has had its time."""
    if process.pid not in told_at:
        told_at[process.pid] = time.monotonic()
        process.send(signal.SIGINT)
    elif time.monotonic() > told_at[process.pid] + _GRACE_SECONDS:
        process.send(signal.SIGKILL)


def _end(processes: Sequence[ChildProcess]) -> None:
    try:
        for process in processes:
            process.send(signal.SIGINT)
        wait_for_all(processes, _GRACE_SECONDS)
    finally:
        for process in processes:
            process.kill()


def python_module(name: str) -> list[str]:
    """Returns the command that runs a module with this Python."""
    return [sys.executable, "-m", name]
