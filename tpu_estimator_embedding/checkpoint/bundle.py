# SPDX-License-Identifier: Apache-2.0
"""Reads and writes TensorFlow's checkpoints without TensorFlow, a few rows at a time.

A checkpoint `model.ckpt-100` consists of the file `model.ckpt-100.index`, which holds the location
of each tensor, and data files such as `model.ckpt-100.data-00000-of-00001`. TensorFlow calls the
format a tensor bundle.

The checksum of a slice covers all its bytes. Reading the bytes in order computes it on the way;
reading in another order first checks the slice in a separate pass.

Every part of a written table has a region in the data file, whose offset is known before the first
byte is written. So one pass over the rows in the order of ids can write any layout.
"""

import bisect
import glob
import io
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import BinaryIO

import numpy as np

from tpu_estimator_embedding.checkpoint.bundle_format import (
    HEADER_KEY,
    Entry,
    crc32c,
    decode_strings,
    encode_header,
    format_index,
    is_sorted_table,
    masked,
    parse_entry,
    parse_header,
    parse_index,
    slice_key,
)
from tpu_estimator_embedding.checkpoint.files import data_file, index_file, new_files
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    BLOCK_BYTES,
    STRING,
    StoredTensor,
    bytes_of,
)
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout, part_starts, rows_by_part

Advance = Callable[[int], object]  # called with the number of bytes of every write


class Piece:
    """One slice of a tensor, a region of a data file.

    Attributes:
        entry: its entry in the index.
        extents: (start, length) on each axis of the whole tensor.
        path: the data file.
    """

    def __init__(self, path: pathlib.Path, entry: Entry, extents: tuple[tuple[int, int], ...]):
        self.entry, self.extents, self.path = entry, extents, path
        self._checked, self._crc = 0, 0  # number of bytes that _crc covers

    def read_into(self, buffer: memoryview, offset: int) -> None:
        """Fills the buffer with the bytes of this piece, starting at `offset`.

        Raises:
            ValueError: if the file is truncated, or the checksum does not match.
        """
        if self._checked != self.entry.size and offset != self._checked:
            self._check_all()
        with self.path.open("rb", buffering=0) as file:
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
        with self.path.open("rb", buffering=0) as file:
            self._fill(file, memoryview(stored), 0)
        _, crc = decode_strings(bytes(stored), int(np.prod(self.entry.shape, dtype=np.int64)))
        self._check(crc)
        return bytes(stored)

    def _fill(self, file: io.FileIO, buffer: memoryview, offset: int) -> None:
        file.seek(self.entry.offset + offset)
        while buffer:
            count = file.readinto(buffer)
            if not count:
                raise ValueError(f"`checkpoint` must be intact, got {self.path} truncated.")
            buffer = buffer[count:]

    def _extend(self, buffer: memoryview) -> None:
        self._crc = crc32c(buffer, self._crc)
        self._checked += len(buffer)
        if self._checked == self.entry.size:
            self._check(masked(self._crc))

    def _check(self, masked_crc: int) -> None:
        if masked_crc != self.entry.masked_crc:
            self._checked = self._crc = 0
            raise ValueError(f"`checkpoint` must not be corrupt, got {self.path}: the checksum of "
                             f"bytes {self.entry.offset} to {self.entry.offset + self.entry.size} "
                             "does not match.")

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
        return self.dtype == STRING

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


def read_bundle(prefix: pathlib.Path) -> dict[str, BundleTensor]:
    """Returns name -> tensor of a checkpoint, without reading values.

    Args:
        prefix: path of the checkpoint, without `.index`.

    Raises:
        FileNotFoundError: if the index or a data file is missing.
        ValueError: if the checkpoint is truncated, damaged or in another format, V1 among them.
    """
    index = index_file(prefix)
    if not index.exists():
        sharded = prefix.parent.glob(f"{glob.escape(prefix.name)}-?????-of-?????")
        if any(sharded) or (prefix.is_file() and is_sorted_table(prefix)):
            raise ValueError(f"`checkpoint` must have format V2, got {prefix} in the former format "
                             "V1. Restore it with a tf.compat.v1.train.Saver and save it with a "
                             "new one, which writes V2.")
        what = "which is a file of another kind" if prefix.is_file() else (
            f"where {index.name} is missing")
        raise FileNotFoundError(
            f"`checkpoint` must be the path of a checkpoint, got {prefix}, {what}.")
    try:
        items = parse_index(index.read_bytes())
        shards = parse_header(items.pop(HEADER_KEY, b""))
        entries = {key: parse_entry(value) for key, value in items.items()}
        _check_places(entries, shards)
    except ValueError as error:
        raise ValueError(f"`checkpoint` must be an intact TensorFlow checkpoint, got {index}: "
                         f"{error}.") from error
    files = [data_file(prefix, shard, shards) for shard in range(shards)]
    _check_files(files, entries)
    return {key.decode(): BundleTensor(key.decode(), entry, _pieces(key, entry, entries, files))
            for key, entry in entries.items() if not key.startswith(b"\0")}


def _check_places(entries: Mapping[bytes, Entry], shards: int) -> None:
    for key, entry in entries.items():
        if not 0 <= entry.shard < shards or entry.offset < 0 or entry.size < 0:
            raise ValueError(f"the entry {key!r} is at bytes {entry.offset} to "
                             f"{entry.offset + entry.size} of data file {entry.shard}, of {shards}")


def _check_files(files: list[pathlib.Path], entries: Mapping[bytes, Entry]) -> None:
    for shard, path in enumerate(files):
        if not path.exists():
            raise FileNotFoundError(f"`checkpoint` must have all its data files, got none at "
                                    f"{path}.")
        needed = max((entry.offset + entry.size for entry in entries.values()
                      if entry.shard == shard), default=0)
        found = path.stat().st_size
        if found < needed:
            raise ValueError(f"`checkpoint` must be intact, got {path} truncated: it has {found} "
                             f"bytes of {needed}.")


def _pieces(key: bytes, entry: Entry, entries: Mapping[bytes, Entry],
            files: list[pathlib.Path]) -> list[Piece]:
    if not entry.slices:
        return [Piece(files[entry.shard], entry, tuple((0, size) for size in entry.shape))]
    pieces = []
    for extents in entry.slices:
        stored = entries.get(slice_key(key.decode(), extents))
        if stored is None:
            raise ValueError(f"`checkpoint` must have all slices of {key.decode()!r}, got none "
                             f"for {extents}.")
        full = tuple((start, whole if length is None else length)
                     for (start, length), whole in zip(extents, entry.shape, strict=True))
        pieces.append(Piece(files[stored.shard], stored, full))
    return sorted(pieces, key=lambda piece: piece.extents)


class Region:
    """The region of one tensor, or one part of a table, in the data file."""

    def __init__(self, offset: int, size: int):
        self._offset, self._size = offset, size
        self._written, self._crc = 0, 0

    def write(self, file: BinaryIO, content: bytes | memoryview) -> None:
        file.seek(self._offset + self._written)
        rest = memoryview(content)
        while rest:  # a disk that becomes full takes a part, and refuses the rest
            rest = rest[file.write(rest):]
        self._crc = crc32c(content, self._crc)
        self._written += len(content)

    def entry(self, dtype: int, shape: tuple[int, ...], masked_crc: int | None = None) -> Entry:
        if self._written != self._size:
            raise ValueError(f"`tensor` must have {self._size} bytes, got {self._written}.")
        return Entry(dtype, shape, offset=self._offset, size=self._size,
                     masked_crc=masked(self._crc) if masked_crc is None else masked_crc)


def write_bundle(prefix: pathlib.Path, tensors: Mapping[str, StoredTensor],
                 layouts: Mapping[str, TableLayout], advance: Advance) -> None:
    """Writes a checkpoint; its files get their names when it is complete.

    Args:
        prefix: its path, without `.index`.
        tensors: key -> tensor; tables in the order of ids.
        layouts: key -> layout, for the tables and slots to write in parts.
        advance: called with the number of bytes of every write.

    Raises:
        FileExistsError: if the checkpoint exists.
        OSError: if it cannot be written.
        ValueError: if a source is damaged, or a key is one that the format reserves.
    """
    for key in tensors:  # b"" is the header, and keys that begin with NUL are slices
        if key[:1] in ("", "\0"):
            raise ValueError(f"`tensors` has the key {key!r}: TensorFlow's format reserves the "
                             "empty key, and keys that begin with NUL.")
    total = sum(tensor.size for tensor in tensors.values())
    with new_files([data_file(prefix, 0, 1), index_file(prefix)], total) as [data, index]:
        items, offset = {HEADER_KEY: encode_header(num_shards=1)}, 0
        with data.open("xb", buffering=0) as file:
            for key in sorted(tensors, key=str.encode):
                write = _write_table(key, tensors[key], layouts[key], offset, file, advance) if (
                    key in layouts) else _write_whole(key, tensors[key], offset, file, advance)
                items.update((name, entry.encode()) for name, entry in write)
                offset += tensors[key].size
        index.write_bytes(format_index(items))


def _write_whole(key: str, tensor: StoredTensor, offset: int, file: BinaryIO,
                 advance: Advance) -> Iterator[tuple[bytes, Entry]]:
    region, crc = Region(offset, tensor.size), None
    for chunk in tensor.chunks():
        region.write(file, chunk)
        advance(len(chunk))
        if tensor.dtype == STRING:  # yielded in one piece
            _, crc = decode_strings(bytes(chunk), int(np.prod(tensor.shape, dtype=np.int64)))
    yield key.encode(), region.entry(tensor.dtype, tensor.shape, crc)


def _write_table(key: str, tensor: StoredTensor, layout: TableLayout, offset: int,
                 file: BinaryIO, advance: Advance) -> Iterator[tuple[bytes, Entry]]:
    starts = part_starts(layout)
    sizes = [stop - start for start, stop in zip(starts, starts[1:], strict=False)]
    regions = [Region(offset + start * tensor.row_bytes, size * tensor.row_bytes)
               for start, size in zip(starts, sizes, strict=False)]
    for start, stop in tensor.row_blocks():
        for part, rows in rows_by_part(layout, start, tensor.read_rows(start, stop)):
            content = bytes_of(rows)
            regions[part].write(file, content)
            advance(len(content))
    others = tuple((0, size) for size in tensor.shape[1:])
    slices = tuple(((start, size), *others) for start, size in zip(starts, sizes, strict=False))
    yield key.encode(), Entry(tensor.dtype, tensor.shape, slices=slices)
    for extents, region, size in zip(slices, regions, sizes, strict=True):
        yield slice_key(key, extents), region.entry(tensor.dtype, (size, *tensor.shape[1:]))
