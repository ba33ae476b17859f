# SPDX-License-Identifier: Apache-2.0
"""The tables of a graph as of one step, which are read while training continues.

Tables and slots are read in place, through the native kernels: an update that comes later first
copies the rows that it writes and that were not read yet. So the memory grows by the rows that are
trained meanwhile, at most by the size of tables and slots. If less than that is free, it grows by
half of what is free, and updates then wait for the file.
"""

import ctypes
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, bytes_of, row_blocks
from tpu_estimator_embedding.engine.placement import is_here
from tpu_estimator_embedding.engine.variables import TableSlice
from tpu_estimator_embedding.free_memory import free_memory
from tpu_estimator_embedding.kernels import load

_BYTES_OF_READ = 1 << 20  # an update waits while so much is copied


class StepSnapshot:
    """The tables of one step.

    Attributes:
        tables: name of a variable's handle -> its rows, which are read in order, once.
        bytes_kept: the bytes of rows that updates have copied; known when it has ended.
    """

    def __init__(self, number: int, tables: Mapping[str, StoredTensor]):
        """Takes a number of the kernels; without tables it is 0."""
        self._number, self.tables = number, tables
        self.bytes_kept = 0

    def end(self) -> None:
        """Frees what updates have copied; they copy no more."""
        kept = int(_functions().tpu_embedding_snapshot_end(self._number)) if self._number else 0
        self.bytes_kept = max(self.bytes_kept, kept)


class TableSnapshots:
    """Takes snapshots of the tables of a graph that the native kernels update in this process."""

    def __init__(self) -> None:
        """Adds the op to the default graph, which holds all tables and may be finalized then."""
        self._tables = [each for each in tf.compat.v1.global_variables() if _is_row_table(each)]
        if load.native_ops() is None:
            self._tables = []
        if self._tables:
            with tf.device("/device:CPU:0"):
                self._most_bytes = tf.compat.v1.placeholder(tf.int64, [])
                self._begin = load.native_ops().tpu_embedding_begin_snapshot(
                    [table.handle for table in self._tables], self._most_bytes)

    def take(self, session: tf.compat.v1.Session, handles: Collection[str]) -> StepSnapshot:
        """Returns the present rows of those tables whose handles have these names.

        Raises:
            tf.errors.FailedPreconditionError: if another snapshot of them has not ended.
        """
        parts = {part: table for part, table in enumerate(self._tables)
                 if table.handle.op.name in handles}
        if not parts:
            return StepSnapshot(0, {})
        size = sum(4 * table.shape.num_elements() for table in self._tables)
        free = free_memory()
        most = size if free is None or free > 1.25 * size else free // 2
        number = int(session.run(self._begin, {self._most_bytes: most}))
        return StepSnapshot(number, {
            table.handle.op.name: _RowsOfSnapshot(number, part, tuple(table.shape.as_list()))
            for part, table in parts.items()})


class _RowsOfSnapshot(StoredTensor):
    """A part of a snapshot, whose rows are read in order, once."""

    def __init__(self, number: int, part: int, shape: tuple[int, ...]):
        super().__init__(tf.float32.as_datatype_enum, shape)
        self._number, self._part = number, part
        self._rows: np.ndarray | None = None

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Returns rows, which the next call overwrites."""
        if self._rows is None:
            self._rows = np.empty((stop - start, *self.shape[1:]), np.float32)
        rows = self._rows[:stop - start]
        for first in range(start, stop, max(1, _BYTES_OF_READ // self.row_bytes)):
            count = min(stop - first, max(1, _BYTES_OF_READ // self.row_bytes))
            if not _functions().tpu_embedding_snapshot_read(
                    self._number, self._part, first, count,
                    rows[first - start:].ctypes.data_as(ctypes.c_void_p)):
                raise RuntimeError(f"Rows must be read in order, from a snapshot that has not "
                                   f"ended, got rows {first} to {first + count}.")
        return rows

    def chunks(self) -> Iterator[bytes | memoryview]:
        for start, stop in row_blocks(self.shape[0], self.row_bytes):
            yield bytes_of(self.read_rows(start, stop))
        _functions().tpu_embedding_snapshot_release(self._number, self._part)
        self._rows = None


def _functions() -> Any:
    functions: Any = load.kernels().functions
    functions.tpu_embedding_snapshot_read.restype = ctypes.c_bool
    functions.tpu_embedding_snapshot_read.argtypes = [ctypes.c_int64] * 4 + [ctypes.c_void_p]
    functions.tpu_embedding_snapshot_release.restype = None
    functions.tpu_embedding_snapshot_release.argtypes = [ctypes.c_int64] * 2
    functions.tpu_embedding_snapshot_end.restype = ctypes.c_int64
    functions.tpu_embedding_snapshot_end.argtypes = [ctypes.c_int64]
    return functions


def _is_row_table(variable: tf.Variable) -> bool:
    device = variable.device or ""
    return (isinstance(getattr(variable, "_save_slice_info", None), TableSlice)
            and is_here(device) and tf.DeviceSpec.from_string(device).device_type in (None, "CPU")
            and variable.dtype.base_dtype == tf.float32 and variable.shape.rank == 2)
