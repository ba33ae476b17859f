# SPDX-License-Identifier: Apache-2.0
"""Measures parameter-server clusters whose tasks are all on this machine.

While they share its cores, steps per second say little about separate machines. The CPU
seconds of each task for an example carry over.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence

from benchmarks.workloads import Workload
from tpu_estimator_embedding.cluster.task import TRAINERS, Task, new_tasks

CPU_LIMIT = 0.5  # of the stock estimator's, for an example
GROWTH_LIMIT = 1.3  # of CPU for an example, from one server to two

_KINDS = ("ours", "stock")
_WARM_UP_STEPS = 8  # of each trainer, two rounds of its batches
_START_SECONDS = 300.0
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclasses.dataclass(frozen=True)
class Figures:
    """What one cluster did while it was measured.

    Attributes:
        kind: "ours", or "stock" for `use_tpu=False`.
        servers: parameter servers.
        workers: workers beside the chief.
        steps_per_second: of all trainers together.
        trainer_cpu: CPU seconds of all trainers for an example.
        server_cpu: CPU seconds of each server for an example.
        server_bytes: resident memory of the largest server.
    """

    kind: str
    servers: int
    workers: int
    steps_per_second: float
    trainer_cpu: float
    server_cpu: tuple[float, ...]
    server_bytes: int

    @property
    def cpu(self) -> float:
        """CPU seconds of all tasks for an example."""
        return self.trainer_cpu + sum(self.server_cpu)


def measure(workload: Workload, kind: str, *, servers: int, workers: int, seconds: float,
            log: pathlib.Path) -> Figures:
    """Starts a cluster, measures it for a while after its first steps, and ends it.

    Raises:
        RuntimeError: if a task ends, or the steps do not come.
    """
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        tasks = new_tasks([sys.executable, "-m", "benchmarks.cluster_task", directory,
                           workload.name, kind], workers=workers, servers=servers,
                          evaluator=False)
        trainers = [task for task in tasks if task.job in TRAINERS]
        with _running(tasks, log):
            _wait_for_steps(tasks, trainers, folder, log)
            start, before = time.perf_counter(), _read(tasks, trainers, folder)
            time.sleep(seconds)
            elapsed, after = time.perf_counter() - start, _read(tasks, trainers, folder)
            memory = max(_resident_bytes(task) for task in tasks if task.job == "ps")
    steps = sum(after[0].values()) - sum(before[0].values())
    if not steps:
        raise RuntimeError(f"no step in {seconds} seconds, see {log}")
    cpu = {task: (after[1][task] - before[1][task]) / steps / workload.batch_size
           for task in tasks}
    return Figures(kind, servers, workers, steps / elapsed, sum(cpu[task] for task in trainers),
                   tuple(cpu[task] for task in tasks if task.job == "ps"), memory)


def configurations(is_quick: bool) -> list[tuple[str, int, int]]:
    """Returns kind, servers and workers of what is measured, ours and stock side by side."""
    return [(kind, servers, workers) for workers in ((0, 1) if is_quick else (0, 1, 2, 3))
            for servers in (1, 2) for kind in _KINDS]


def text(workload: Workload, figures: Sequence[Figures]) -> str:
    """Returns the table, and whether the targets were reached."""
    lines = [f"{workload.name} on a cluster, all tasks on this machine; CPU µs per example",
             f"{'':<8}{'servers':>8}{'workers':>8}{'steps/s':>9}{'trainers':>10}"
             f"{'each server':>13}{'all tasks':>11}{'server GB':>11}"]
    for each in figures:
        mean = sum(each.server_cpu) / len(each.server_cpu)
        lines.append(f"{each.kind:<8}{each.servers:>8}{each.workers:>8}"
                     f"{each.steps_per_second:>9.2f}{1e6 * each.trainer_cpu:>10.1f}"
                     f"{1e6 * mean:>13.1f}{1e6 * each.cpu:>11.1f}{each.server_bytes / 1e9:>11.2f}")
    return "\n".join([*lines, *_target_lines(figures)])


def _target_lines(figures: Sequence[Figures]) -> Iterator[str]:
    cpu = {(each.kind, each.servers, each.workers): each.cpu for each in figures}
    for (kind, servers, workers), ours in cpu.items():
        if kind == "ours" and ("stock", servers, workers) in cpu:
            yield _verdict(f"CPU against stock, {servers} servers, {workers} workers",
                           ours / cpu["stock", servers, workers], CPU_LIMIT)
    for (kind, servers, workers), ours in cpu.items():
        if (kind, servers) == ("ours", 1) and ("ours", 2, workers) in cpu:
            yield _verdict(f"CPU with 2 servers against 1, {workers} workers",
                           cpu["ours", 2, workers] / ours, GROWTH_LIMIT)


def _verdict(what: str, measured: float, limit: float) -> str:
    reached = "reached" if measured <= limit else "NOT REACHED"
    return f"  {what:<44} at most {limit:.1f}x: {measured:5.2f}x  {reached}"


@contextlib.contextmanager
def _running(tasks: Sequence[Task], log: pathlib.Path) -> Iterator[None]:
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as lines, contextlib.redirect_stdout(lines):  # of the tasks
        try:
            for task in tasks:
                task.start()
            yield
        finally:
            for task in tasks:
                task.kill()


def _wait_for_steps(tasks: Sequence[Task], trainers: Sequence[Task], folder: pathlib.Path,
                    log: pathlib.Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while min(_steps(task, folder) for task in trainers) < _WARM_UP_STEPS:
        ended = [task.name for task in tasks if task.status is not None]
        if ended or time.monotonic() > deadline:
            raise RuntimeError(f"{', '.join(ended) or 'no task'} ended before "
                               f"{_WARM_UP_STEPS} steps were made, see {log}")
        time.sleep(0.1)


def _read(tasks: Sequence[Task], trainers: Sequence[Task], folder: pathlib.Path
          ) -> tuple[dict[Task, int], dict[Task, float]]:
    """Returns the steps of each trainer and the CPU seconds of each task, so far."""
    return ({task: _steps(task, folder) for task in trainers},
            {task: _cpu_seconds(task) for task in tasks})


def _steps(task: Task, folder: pathlib.Path) -> int:
    try:
        return int((folder / f"{task.job}-{task.number}.steps").read_text())
    except FileNotFoundError:
        return 0


def _cpu_seconds(task: Task) -> float:
    fields = pathlib.Path(f"/proc/{task.pid}/stat").read_text().rpartition(")")[2].split()
    user, system = fields[11:13]
    return (int(user) + int(system)) / _TICKS


def _resident_bytes(task: Task) -> int:
    pages = pathlib.Path(f"/proc/{task.pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
