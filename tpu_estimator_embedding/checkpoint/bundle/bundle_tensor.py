# SPDX-License-Identifier: Apache-2.0
"""A tensor in a checkpoint, whose rows are read from the slices in its files.

The checksum of a slice covers all its bytes. Reading the bytes in order computes it on the way;
reading in another order first checks the slice in a separate pass.
"""

import bisect
import io
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from tpu_estimator_embedding.checkpoint.bundle import dtypes
from tpu_estimator_embedding.checkpoint.bundle.bundle_entries import Entry
from tpu_estimator_embedding.checkpoint.bundle.checksums import crc32c, masked
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import (
    BLOCK_BYTES,
    StoredTensor,
    bytes_of,
)
from tpu_estimator_embedding.checkpoint.bundle.string_tensor import decode_strings


class Piece:
    """One slice of a tensor, a region of a data file.

    Attributes:
        entry: its entry in the index.
        extents: (start, length) on each axis of the whole tensor.
    """

    def __init__(self, path: pathlib.Path, entry: Entry, extents: tuple[tuple[int, int], ...]):
        self.entry, self.extents = entry, extents
        self._path = path
        self._checked, self._crc = 0, 0  # number of bytes that _crc covers

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fills the buffer with the bytes of this piece, starting at `offset`.

        Raises:
            ValueError: if the file is truncated, or the checksum does not match.
        """
        if self._checked != self.entry.size and offset != self._checked:
            self._check_all()
        with self._path.open("rb", buffering=0) as file:
            self._fill(file, buffer, offset)
        if offset == self._checked:
            self._extend(buffer)

    def chunks(self) -> Iterator[memoryview]:
        """Yields all bytes in order."""
        for start in range(0, self.entry.size, BLOCK_BYTES):
            buffer = memoryview(bytearray(min(BLOCK_BYTES, self.entry.size - start)))
            self.read_into(buffer, start)
            yield buffer

    def read_strings(self) -> list[bytes]:
        """Returns the strings of a string tensor.

        Raises:
            ValueError: if the file is damaged.
        """
        stored = self.stored_strings()
        return decode_strings(stored, int(np.prod(self.entry.shape, dtype=np.int64)))[0]

    def stored_strings(self) -> bytes:
        """Returns the stored bytes of a string tensor, after checking them."""
        stored = bytearray(self.entry.size)
        with self._path.open("rb", buffering=0) as file:
            self._fill(file, memoryview(stored), 0)
        _, crc = decode_strings(bytes(stored), int(np.prod(self.entry.shape, dtype=np.int64)))
        self._check(crc)
        return bytes(stored)

    def _fill(self, file: io.FileIO, buffer: memoryview, offset: int) -> None:
        file.seek(self.entry.offset + offset)
        while buffer:
            count = file.readinto(buffer)
            if not count:
                raise ValueError(f"`checkpoint` must be whole, got {self._path} truncated.")
            buffer = buffer[count:]

    def _extend(self, buffer: memoryview) -> None:
        self._crc = crc32c(buffer, self._crc)
        self._checked += len(buffer)
        if self._checked == self.entry.size:
            self._check(masked(self._crc))

    def _check(self, masked_crc: int) -> None:
        if masked_crc != self.entry.masked_crc:
            self._checked = self._crc = 0
            raise ValueError(f"`checkpoint` must be as it was written, got {self._path} with a "
                             f"changed byte: the checksum of bytes {self.entry.offset} to "
                             f"{self.entry.offset + self.entry.size} does not match.")

    def _check_all(self) -> None:
        self._checked = self._crc = 0
        for _ in self.chunks():
            pass


class BundleTensor(StoredTensor):
    """A tensor of a checkpoint.

    Attributes:
        name: its key.
        pieces: its slices, sorted by start; one slice if the tensor was saved as a whole.
    """

    def __init__(self, name: str, entry: Entry, pieces: Sequence[Piece]):
        super().__init__(entry.dtype, entry.shape)
        self.name, self.pieces = name, pieces
        self.row_starts = [piece.extents[0][0] if piece.extents else 0 for piece in pieces]

    @property
    def size(self) -> int:
        return sum(piece.entry.size for piece in self.pieces)

    @property
    def is_text(self) -> bool:
        """Whether the values are strings."""
        return self.dtype == dtypes.STRING

    @property
    def is_in_rows(self) -> bool:
        """Whether the slices are consecutive runs of whole rows."""
        ends = [start + length for start, length in (
            piece.extents[0] for piece in self.pieces if piece.extents)]
        return not self.shape or len(self.pieces) == 1 or (
            self.row_starts == [0, *ends[:-1]] and ends[-1] == self.shape[0]
            and all(tuple(length for _, length in piece.extents[1:]) == self.shape[1:]
                    for piece in self.pieces))

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        if not self.is_in_rows:
            return self._assemble()[start:stop]
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        buffer = bytes_of(rows)
        position, index = start, bisect.bisect_right(self.row_starts, start) - 1
        while position < stop:
            first, length = self.pieces[index].extents[0]
            end = min(stop, first + length)
            part = buffer[(position - start) * self.row_bytes:(end - start) * self.row_bytes]
            self.pieces[index].read_into(part, (position - first) * self.row_bytes)
            position, index = end, index + 1
        return rows

    def chunks(self) -> Iterator[bytes | memoryview]:
        if not self.is_in_rows:
            yield self._assemble().tobytes()
            return
        for piece in self.pieces:
            yield from [piece.stored_strings()] if self.is_text else piece.chunks()

    def text(self) -> bytes:
        """Returns the content of a scalar string.

        Raises:
            ValueError: if the tensor is not a scalar string.
        """
        if not self.is_text or self.shape != ():
            raise ValueError(f"`{self.name}` must be a scalar string, got shape {self.shape}.")
        return self.pieces[0].read_strings()[0]

    def _assemble(self) -> np.ndarray:
        """Returns the whole tensor, for dense variables that were not split along axis 0."""
        whole = np.empty(self.shape, self.numpy_dtype)
        for piece in self.pieces:
            content = b"".join(bytes(chunk) for chunk in piece.chunks())
            where = tuple(slice(start, start + length) for start, length in piece.extents)
            whole[where] = np.frombuffer(content, whole.dtype).reshape(piece.entry.shape)
        return whole
