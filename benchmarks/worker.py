# SPDX-License-Identifier: Apache-2.0
"""Runs each baseline in its own process.

TensorFlow and PyTorch have thread pools, allocators and settings that last as long as the process,
and this package selects its kernels once per process. Baselines in one process would affect each
other. A worker that waits for its turn uses no CPU time.
"""

import gc
import importlib
import multiprocessing
import os
import pathlib
import sys
import time
import traceback
from typing import Any

from benchmarks import batches, memory
from benchmarks.baselines import Entry
from benchmarks.workloads import Workload

DISTINCT_BATCHES = 4
TIMEOUT = 600  # seconds for one answer
_LARGE = 2 ** 30  # bytes of tables and slots
_MOVING = 2 ** 23  # bytes in half a second; Linux alone moves fewer
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3"}


class WorkerError(Exception):
    """An error in a worker."""


class Worker:
    """A process in which one baseline runs one workload after another."""

    def __init__(self, entry: Entry, log: pathlib.Path):
        self.entry = entry
        self._log = log
        self._process: Any = None
        self._connection: Any = None
        self._workload: Workload | None = None

    def start(self) -> None:
        """Starts the process unless it is running; does not wait for its imports."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._connection, child_end = context.Pipe()
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._process = context.Process(
            target=_serve, args=(child_end, self.entry, str(self._log)), daemon=True)
        self._process.start()
        child_end.close()

    def open(self, workload: Workload, **options: Any) -> dict[str, Any]:
        """Creates the baseline; returns its description."""
        self.start()
        self._workload = workload
        if self.entry.module in ("estimator", "parsing"):
            options["directory"] = str(self._log.parent.parent / "records")
        return self._ask("open", workload, options)

    def run(self, first: int, count: int) -> float:
        """Runs steps; returns their duration in seconds."""
        return self._ask("run", first, count)

    def memory_over_tables(self) -> int:
        """Returns the peak memory use since before the tables were created, without the tables."""
        return self._ask("memory_over_tables")

    def close(self) -> None:
        """Frees the tables; ends the process if they were large, because it would keep memory."""
        assert self._workload is not None
        if self._workload.bytes > _LARGE:
            self.stop()
        else:
            self._ask("close")

    def stop(self) -> None:
        """Ends the process if it is running."""
        if self._process is None:
            return
        self._connection.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        self._process = None

    def _ask(self, *request: Any) -> Any:
        try:
            self._connection.send(request)
            if not self._connection.poll(TIMEOUT):
                self._process.kill()
                raise WorkerError(f"no answer in {TIMEOUT} seconds; see {self._log}")
            succeeded, answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise WorkerError(f"its process ended (exit status {self._process.exitcode}); see "
                              f"{self._log}") from error
        if not succeeded:
            raise WorkerError(f"{answer}; see {self._log}")
        return answer


def _serve(connection: Any, entry: Entry, log: str) -> None:
    os.environ.update(_QUIET | dict(entry.environment))
    with open(log, "a", buffering=1) as file:  # noqa: PTH123  (the descriptor is what counts)
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
        served = _Served(entry)  # an error ends the process, and is logged
        while True:
            try:
                name, *arguments = connection.recv()
            except EOFError:
                return
            try:
                connection.send((True, getattr(served, name)(*arguments)))
            except Exception as error:  # the other baselines continue
                traceback.print_exc()
                connection.send((False, f"{type(error).__name__}: {str(error)[:200]}"))


class _Served:
    """The baseline inside its process."""

    def __init__(self, entry: Entry):
        self._entry = entry
        self._baseline: Any = None
        self._workload: Workload | None = None
        self._before_tables = 0
        self._module = importlib.import_module(f"benchmarks.baselines.{entry.module}")

    def open(self, workload: Workload, options: dict[str, Any]) -> dict[str, Any]:
        made = batches.make_batches(workload, DISTINCT_BATCHES)
        memory.reset_peak()
        self._before_tables = memory.peak_bytes()
        self._workload = workload
        self._baseline = self._module.Baseline(
            workload, made, **dict(self._entry.options), **options)
        if self._entry.moves_tables:
            self._run_until_tables_lie_still()
        return {"description": getattr(self._baseline, "description", "")}

    def _run_until_tables_lie_still(self) -> None:
        before = -_MOVING
        while (now := _bytes_in_huge_pages()) - before >= _MOVING:
            before = now
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                self._baseline.run(0, DISTINCT_BATCHES)

    def run(self, first: int, count: int) -> float:
        return self._baseline.run(first, count)

    def memory_over_tables(self) -> int:
        assert self._workload is not None
        return memory.peak_bytes() - self._before_tables - self._workload.bytes

    def close(self) -> None:
        self._baseline.close()
        self._baseline = None
        gc.collect()


def _bytes_in_huge_pages() -> int:
    rollup = pathlib.Path("/proc/self/smaps_rollup")
    if not rollup.exists():
        return 0
    fields = dict(line.split()[:2] for line in rollup.read_text().splitlines()[1:])
    return int(fields["AnonHugePages:"]) * 1024
