# SPDX-License-Identifier: Apache-2.0
"""A task of a cluster: a process with its TF_CONFIG, whose output is prefixed with its name."""

import io
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO, NamedTuple

from tpu_estimator_embedding.processes.child_process import ChildProcess
from tpu_estimator_embedding.processes.reaper import Reaper

TRAINERS = ("chief", "worker")

_printing = threading.Lock()


class Launch(NamedTuple):
    """What the tasks of a cluster have in common.

    Attributes:
        command: what every task runs.
        addresses: job name -> host:port of each task.
        reserved: sockets that keep the ports of the addresses from other programs.
        reaper: kills the tasks if this process dies.
    """

    command: Sequence[str]
    addresses: Mapping[str, Sequence[str]]
    reserved: Sequence[socket.socket]
    reaper: Reaper


class Task:
    """A task that runs, and can be started again.

    Attributes:
        job: chief, worker, ps or evaluator.
        number: its index within the job.
        status: its exit status; None while it runs.
        num_starts: how often it was started.
    """

    def __init__(self, job: str, number: int, launch: Launch):
        """Takes what all tasks have in common; starts no process."""
        self.job = job
        self.number = number
        self.num_starts = 0
        self._launch = launch
        self._config = json.dumps({"cluster": launch.addresses,
                                   "task": {"type": job, "index": number}})
        self._process: ChildProcess | None = None
        self._reader: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The prefix of the task's lines: `worker 0`."""
        return f"{self.job} {self.number}"

    @property
    def status(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.status if self._process else None

    @property
    def pid(self) -> int:
        """The process."""
        assert self._process, "the task was not started"
        return self._process.pid

    def start(self) -> None:
        """Starts the process, after the end of an earlier one."""
        self.kill()
        self.num_starts += 1
        self._process = ChildProcess(self._launch.command, self._launch.reaper,
                                     output=subprocess.PIPE,
                                     environment={"TF_CONFIG": self._config})
        self._reader = threading.Thread(target=self._print_lines, args=[self._process.output],
                                        daemon=True)
        self._reader.start()

    def say(self, line: str) -> None:
        """Prints a line prefixed with the task's name."""
        with _printing:
            print(f"[{self.name}] {line.rstrip()}", flush=True)

    def interrupt(self) -> None:
        """Asks the task to end: a chief finishes its step and saves a checkpoint first.

        Others that are not in a step, such as a worker that was restarted, end without a traceback.
        """
        if self._process:
            self._process.send(signal.SIGINT if self.job == "chief" else signal.SIGTERM)

    def kill(self) -> None:
        """Ends the task, and what it has started, at once, and waits for it."""
        if self._process:
            self._process.kill()
            self.wait()

    def wait(self) -> None:
        """Waits until the process has ended and its last line is printed."""
        if self._process and self._reader:
            self._process.wait()
            self._reader.join(timeout=5)  # a child in another session may hold the pipe open

    def _print_lines(self, output: IO[bytes]) -> None:
        for line in io.TextIOWrapper(output, errors="replace"):
            self.say(line)


def new_tasks(command: Sequence[str], *, workers: int, servers: int,
              evaluator: bool) -> list[Task]:
    """Returns the tasks of a cluster on this machine, each with a free port; starts none.

    Args:
        command: what every task runs.
        workers: workers in addition to the chief, which trains too.
        servers: parameter servers.
        evaluator: whether a task evaluates every checkpoint.
    """
    sizes = {"chief": 1, "worker": workers, "ps": servers}
    ports, reserved = _reserve_ports(sum(sizes.values()))
    addresses = {job: [f"127.0.0.1:{ports.pop()}" for _ in range(size)]
                 for job, size in sizes.items() if size}
    launch = Launch(command, addresses, reserved, Reaper())
    tasks = [Task(job, number, launch)
             for job in ("ps", "chief", "worker") for number in range(sizes[job])]
    return [*tasks, Task("evaluator", 0, launch)] if evaluator else tasks


def run_command(arguments: Sequence[str]) -> list[str]:
    """Returns the command of a task: `run` with its options, the program and its arguments."""
    return [sys.executable, "-m", "tpu_estimator_embedding", "run", *arguments]


def _reserve_ports(count: int) -> tuple[list[int], list[socket.socket]]:
    """Returns free ports, and sockets that keep them.

    A task imports TensorFlow for seconds before it binds its port, and may be restarted later. As
    long as a socket is bound to the port, the kernel gives it to no program that asks for any port.
    The task's server can bind it, because it sets SO_REUSEADDR and this socket does not listen.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    if sys.platform != "linux":  # where a bound socket may get the connections of the server
        for each in sockets:
            each.close()
    return ports, sockets
