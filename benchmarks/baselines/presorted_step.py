# SPDX-License-Identifier: Apache-2.0
"""The limit of the kernels: lookup and Adagrad of a step whose ids are sorted before it."""

import ctypes
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from benchmarks.baselines.memory_bound import aligned, compiled
from benchmarks.batches import Batch, make_gradients
from benchmarks.workloads import INITIAL_ACCUMULATOR, INITIAL_VALUE, Workload

_POINTER = ctypes.c_void_p


class _Step(ctypes.Structure):
    _fields_ = [*((name, _POINTER) for name in ("ids", "ends", "runs", "run_ends", "activations")),
                *((name, ctypes.c_int64) for name in ("num_ids", "num_activations", "num_runs"))]


class Baseline:
    """Rows and slots of all tables in two arrays, and a program that trains them."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0):
        self._threads = threads or len(os.sched_getaffinity(0))
        self._dim = workload.dim
        size = workload.num_tables * workload.rows * workload.dim
        self._rows = aligned(size, INITIAL_VALUE)
        self._slots = aligned(size, INITIAL_ACCUMULATOR)
        values = workload.num_tables * workload.batch_size * workload.dim
        self._activations, self._gradients = aligned(values, 0.0), aligned(values, 0.0)
        self._gradients[:] = np.concatenate(make_gradients(workload)).ravel()
        self._arrays = [_arrays(workload, batch) for batch in batches]  # which the steps point to
        steps = [_Step(*(array.ctypes.data for array in arrays), arrays[0].size, arrays[1].size,
                       arrays[2].size) for arrays in self._arrays]
        self._steps = (_Step * len(steps))(*steps)
        self._run_steps = compiled(pathlib.Path(__file__).with_suffix(".cc")).RunSteps
        self._run_steps.restype = ctypes.c_double

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        seconds = self._run_steps(
            self._steps, *map(ctypes.c_int64, (len(self._steps), first, count)),
            *(_POINTER(array.ctypes.data) for array in (
                self._rows, self._slots, self._activations, self._gradients)),
            *map(ctypes.c_int64, (self._dim, self._threads)))
        if seconds < 0:
            raise ValueError(f"`dim` must be 8, 32 or 64 here, got {self._dim}.")
        return seconds

    def rows(self) -> np.ndarray:
        """Returns the rows of all tables, concatenated along axis 0, `[rows, dim]`."""
        return self._rows.reshape(-1, self._dim)

    def activations(self) -> np.ndarray:
        """Returns what the last step looked up, of one table after another, `[rows, dim]`."""
        return self._activations.reshape(-1, self._dim)

    def close(self) -> None:
        """Frees the arrays."""
        self._rows = self._slots = np.zeros(0, np.float32)


def _arrays(workload: Workload, batch: Batch) -> tuple[np.ndarray, ...]:
    """Returns the ids of a step in both orders, as `Step` of the program names them."""
    ids = np.concatenate([ids + table * workload.rows for table, ids in enumerate(batch.ids)])
    counts = np.concatenate([np.diff(splits) for splits in batch.splits])
    order = np.argsort(ids, kind="stable")
    runs, run_counts = np.unique(ids, return_counts=True)
    activations = np.repeat(np.arange(counts.size), counts)[order]
    return ids, np.cumsum(counts), runs, np.cumsum(run_counts), activations
