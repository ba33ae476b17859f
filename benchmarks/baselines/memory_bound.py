# SPDX-License-Identifier: Apache-2.0
"""The memory-bound lower limit: reads and writes the rows of a step without computing."""

import ctypes
import os
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from benchmarks.batches import Batch, unique_rows
from benchmarks.workloads import Workload
from tpu_estimator_embedding.kernels import compiler
from tpu_estimator_embedding.kernels.units import ARITHMETIC_FLAGS

_POINTER = ctypes.c_void_p
_LINE = 64  # bytes


class Baseline:
    """Rows and slots of all tables in two arrays, and a program that accesses them."""

    def __init__(self, workload: Workload, batches: Sequence[Batch], threads: int = 0,
                 is_first_level: bool = False):
        self._threads = threads or len(os.sched_getaffinity(0))
        self._dim = workload.dim
        self._is_first_level = is_first_level
        size = workload.num_tables * workload.rows * workload.dim
        self._rows, self._slots = aligned(size, 1.0), aligned(size, 1.0)
        self._met = [_rows_of_all_tables(workload, batch) for batch in batches]
        self._sorted = [np.sort(rows) for rows in self._met]
        values = workload.batch_size * workload.num_tables * workload.dim
        ids = sum(ids.size for ids in batches[0].ids)
        self._written = aligned(values, 0.0)
        self._read = aligned(values + 2 * ids, 0.0)  # an id is as large as two floats
        self._run_steps = compiled(pathlib.Path(__file__).with_suffix(".cc")).RunSteps
        self._run_steps.restype = ctypes.c_double

    def run(self, first: int, count: int) -> float:
        """Runs `count` steps; returns their duration in seconds."""
        counts = np.array([rows.size for rows in self._met], np.int64)
        return self._run_steps(
            _pointers(self._met), _pointers(self._sorted), _pointer(counts),
            *map(ctypes.c_int64, (len(self._met), first, count)), _pointer(self._rows),
            _pointer(self._slots), ctypes.c_int64(self._dim), _pointer(self._written),
            ctypes.c_int64(self._written.size), _pointer(self._read),
            ctypes.c_int64(self._read.size), ctypes.c_int64(self._threads),
            ctypes.c_int64(self._is_first_level))

    def slots(self) -> np.ndarray:
        """Returns the slots, whose values are 1 plus the number of updates of the row."""
        return self._slots.reshape(-1, self._dim)

    def close(self) -> None:
        """Frees the arrays."""
        self._rows = self._slots = np.zeros(0, np.float32)


def aligned(size: int, value: float) -> np.ndarray:
    """Returns an array `[size]` that is aligned to a cache line, like TensorFlow's tensors."""
    room = np.full(size + _LINE // 4, value, np.float32)
    first = -room.ctypes.data % _LINE // 4
    return room[first:first + size]


def _rows_of_all_tables(workload: Workload, batch: Batch) -> np.ndarray:
    return np.concatenate([rows + table * workload.rows
                           for table, rows in enumerate(unique_rows(workload, batch))])


def compiled(source: pathlib.Path) -> ctypes.CDLL:
    """Compiles a source for this machine; returns its library."""
    command = compiler.find()
    if command is None:
        raise RuntimeError("the bounds need a C++17 compiler, and none was found: "
                           "apt-get install g++")
    with tempfile.TemporaryDirectory() as directory:
        library = pathlib.Path(directory, f"{source.stem}.so")
        compiler.run([*command, *ARITHMETIC_FLAGS, "-O3", "-march=native", "-shared", str(source),
                      "-o", str(library)])
        return ctypes.CDLL(str(library))


def _pointer(array: np.ndarray) -> ctypes.c_void_p:
    return _POINTER(array.ctypes.data)


def _pointers(arrays: Sequence[np.ndarray]) -> ctypes.Array:
    return (_POINTER * len(arrays))(*(array.ctypes.data for array in arrays))
