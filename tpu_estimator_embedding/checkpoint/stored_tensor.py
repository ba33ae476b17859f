# SPDX-License-Identifier: Apache-2.0
"""A tensor in a file of any format, or in memory: reads rows, or all bytes."""

import abc
import math
from collections.abc import Iterator

import ml_dtypes
import numpy as np
from tensorboard.compat.proto import types_pb2

from tpu_estimator_embedding.checkpoint.bundle_format import encode_strings
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout, part_starts

STRING: int = types_pb2.DT_STRING
BLOCK_BYTES = 8 << 20  # read and written at once; small compared with the limit on memory

# Number of TensorFlow's DataType -> NumPy's dtype.
_DTYPES = {types_pb2.DataType.Value(f"DT_{name}"): np.dtype(dtype) for name, dtype in {
    "BFLOAT16": ml_dtypes.bfloat16, "HALF": np.float16, "FLOAT": np.float32, "DOUBLE": np.float64,
    "COMPLEX64": np.complex64, "COMPLEX128": np.complex128, "BOOL": np.bool_,
    "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32, "UINT64": np.uint64}.items()}


def numpy_dtype(number: int) -> np.dtype:
    """Returns NumPy's dtype for a number of TensorFlow's DataType.

    Raises:
        ValueError: if the values have no fixed size, or the number is unknown.
    """
    if number not in _DTYPES:
        raise ValueError(f"TensorFlow's DataType {number} is not supported: its values are not "
                         "numbers of a fixed size.")
    return _DTYPES[number]


def tensorflow_number(dtype: np.dtype) -> int:
    """Returns the number of TensorFlow's DataType.

    Raises:
        ValueError: if TensorFlow does not have the dtype.
    """
    for number, known in _DTYPES.items():
        if known == dtype:
            return number
    raise ValueError(f"TensorFlow has no data type for NumPy's dtype {dtype}.")


class StoredTensor(abc.ABC):
    """A tensor whose values are read on demand.

    Attributes:
        dtype: number of TensorFlow's DataType.
        shape: its shape.
        row_starts: first row of each slice in which it is saved.
    """

    def __init__(self, dtype: int, shape: tuple[int, ...]):
        self.dtype, self.shape = dtype, shape
        self.row_starts = [0]

    @abc.abstractmethod
    def read_rows(self, start: int, stop: int) -> np.ndarray:
        """Returns `[stop - start, *shape[1:]]`: rows in the order of this tensor.

        Raises:
            ValueError: if the file is damaged.
        """

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yields all bytes in order; for a string tensor, the bytes stored in the file."""
        for start, stop in self.row_blocks():
            yield bytes_of(self.read_rows(start, stop))

    def read(self) -> np.ndarray:
        """Returns the whole tensor."""
        content = b"".join(bytes(chunk) for chunk in self.chunks())
        return np.frombuffer(content, self.numpy_dtype).reshape(self.shape)

    def row_blocks(self) -> Iterator[tuple[int, int]]:
        """Yields (start, stop) of blocks of rows with about BLOCK_BYTES each."""
        return row_blocks(self.shape[0], self.row_bytes)

    @property
    def numpy_dtype(self) -> np.dtype:
        """NumPy's dtype of the values."""
        return numpy_dtype(self.dtype)

    @property
    def row_bytes(self) -> int:
        """Number of bytes of one row."""
        return math.prod(self.shape[1:]) * self.numpy_dtype.itemsize

    @property
    def size(self) -> int:
        """Number of bytes of all values."""
        return math.prod(self.shape) * self.numpy_dtype.itemsize


def bytes_of(values: np.ndarray) -> memoryview:
    """Returns the bytes of an array; writing to them writes to a contiguous one."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8).data


def row_blocks(rows: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    """Yields (start, stop) of blocks of rows.

    >>> list(row_blocks(5, BLOCK_BYTES // 2))
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, BLOCK_BYTES // max(1, row_bytes))
    for start in range(0, rows, step):
        yield start, min(start + step, rows)


class ArrayTensor(StoredTensor):
    """A tensor in memory, such as a step or a counter."""

    def __init__(self, values: np.ndarray):
        super().__init__(tensorflow_number(values.dtype), values.shape)
        self._values = values

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        return self._values[start:stop]

    def chunks(self) -> Iterator[bytes | memoryview]:
        content = bytes_of(self._values)
        for start in range(0, len(content), BLOCK_BYTES):
            yield content[start:start + BLOCK_BYTES]


class TextTensor(StoredTensor):
    """Strings in memory, such as a record or an object graph."""

    def __init__(self, *texts: bytes, shape: tuple[int, ...] = ()):
        super().__init__(STRING, shape)
        self._stored, _ = encode_strings(texts)

    @property
    def size(self) -> int:
        return len(self._stored)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        raise TypeError("`tensor` must have rows, got a string.")

    def chunks(self) -> Iterator[bytes | memoryview]:
        yield self._stored


class RowsById(StoredTensor):
    """A saved table whose rows are read by id."""

    def __init__(self, saved: StoredTensor, layout: TableLayout):
        super().__init__(saved.dtype, saved.shape)
        self._saved, self._starts = saved, part_starts(layout)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        parts = len(self._starts) - 1
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        for part in range(parts):
            first, last = _rows_below(start, part, parts), _rows_below(stop, part, parts)
            if first < last:
                begin = self._starts[part]
                rows[first * parts + part - start::parts] = self._saved.read_rows(
                    begin + first, begin + last)
        return rows


def rows_by_id(saved: StoredTensor, layout: TableLayout) -> StoredTensor:
    """Returns a view of a saved table whose row i is id i."""
    return saved if layout.is_by_id else RowsById(saved, layout)


def _rows_below(bound: int, part: int, parts: int) -> int:
    """Returns the number of rows of the part whose ids are below the bound."""
    return max(0, -((part - bound) // parts))
