# SPDX-License-Identifier: Apache-2.0
"""Tables in a stack of SparseCores, read by id, and stacks made of tables.

Consecutive ids are far apart in a stack. So that files are read and written in one pass, and memory
holds no table, the rows of a stack pass through a temporary file without a name.
"""

import os
import pathlib
import shutil
import tempfile
import weakref
from collections.abc import Sequence

import numpy as np

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.checkpoint.sparse_core_layout import Placement
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, bytes_of, row_blocks

_LARGE = pathlib.Path("/var/tmp")  # on a disk, where /tmp is often in memory


class StackOnDisk:
    """The rows of a stack in the order of the checkpoint, which any of them can be read from."""

    def __init__(self, saved: StoredTensor):
        self._saved = saved
        self._rows: RowsOnDisk | None = None

    @property
    def dtype(self) -> int:
        """Number of TensorFlow's DataType."""
        return self._saved.dtype

    def read(self, row: int, count: int) -> np.ndarray:
        """Returns consecutive rows."""
        if self._rows is None:
            self._rows = RowsOnDisk(self._saved)
            for start, stop in self._saved.row_blocks():
                self._rows.write(start, self._saved.read_rows(start, stop))
        return self._rows.read(row, count)


class UnstackedTensor(StoredTensor):
    """A table of a stack, whose rows are read by id."""

    def __init__(self, stack: StackOnDisk, placement: Placement):
        super().__init__(stack.dtype, (placement.rows, placement.dimension))
        self._stack, self._placement = stack, placement

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        for first, row, count in self._placement.runs(start, stop):
            found = self._stack.read(row, count)
            rows[first - start::self._placement.cores] = found[:, :self._placement.dimension]
        return rows


class StackedTensor(StoredTensor):
    """A stack made of tables. Its padding, and tables that are not given, are those of a template.

    It is meant to be read once from its start to its end, after which the temporary file is gone.
    """

    def __init__(self, template: StoredTensor,
                 tables: Sequence[tuple[Placement, StoredTensor]]):
        super().__init__(template.dtype, template.shape)
        self._template, self._tables = template, tables
        self._rows: RowsOnDisk | None = None

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        self._rows = self._rows or self._stacked()
        rows = self._template.read_rows(start, stop).copy()
        for placement, _ in self._tables:
            for _, row, count in placement.runs(0, placement.rows):
                first, last = max(start, row), min(stop, row + count)
                if first < last:
                    rows[first - start:last - start, :placement.dimension] = self._rows.read(
                        first, last - first)[:, :placement.dimension]
        if stop == self.shape[0]:
            self._rows = None
        return rows

    def _stacked(self) -> "RowsOnDisk":
        stacked = RowsOnDisk(self)
        for placement, tensor in self._tables:
            # Blocks of rows that are as wide as in the stack.
            for start, stop in row_blocks(placement.rows, self.row_bytes):
                rows = np.zeros((stop - start, self.shape[1]), self.numpy_dtype)
                rows[:, :placement.dimension] = tensor.read_rows(start, stop)
                for first, row, count in placement.runs(start, stop):
                    stacked.write(row, rows[first - start::placement.cores][:count])
        return stacked


class RowsOnDisk:
    """The rows of a tensor in a temporary file, which is deleted with this object.

    Raises:
        OSError: if the disk is full.
    """

    def __init__(self, tensor: StoredTensor):
        self._row_shape, self._dtype = tensor.shape[1:], tensor.numpy_dtype
        self._row_bytes = tensor.row_bytes
        given = settings.TMPDIR.read()
        self._directory = given or (str(_LARGE) if _LARGE.is_dir() else tempfile.gettempdir())
        free = shutil.disk_usage(self._directory).free
        if free < tensor.size:
            raise self._no_space(tensor.size, free)
        self._file = tempfile.TemporaryFile(dir=self._directory)  # noqa: SIM115 (kept open)
        weakref.finalize(self, self._file.close)
        self._size = tensor.size

    def write(self, row: int, rows: np.ndarray) -> None:
        """Writes rows from `row` on."""
        content, place = bytes_of(rows), row * self._row_bytes
        try:
            while content:
                written = os.pwrite(self._file.fileno(), content, place)
                content, place = content[written:], place + written
        except OSError as error:
            free = shutil.disk_usage(self._directory).free
            raise self._no_space(self._size, free) from error

    def read(self, row: int, count: int) -> np.ndarray:
        """Returns consecutive rows that were written."""
        rows = np.empty((count, *self._row_shape), self._dtype)
        content, place = bytes_of(rows), row * self._row_bytes
        while content:
            size = os.preadv(self._file.fileno(), [content], place)
            if not size:
                raise ValueError(f"Row {row} of a temporary file was not written.")
            content, place = content[size:], place + size
        return rows

    def _no_space(self, size: int, free: int) -> OSError:
        return OSError(f"The rows of a stack need {size:,} bytes in a temporary file, and "
                       f"{self._directory} has {free:,} left. Set TMPDIR to another directory.")
