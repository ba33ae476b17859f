# SPDX-License-Identifier: Apache-2.0
"""Writes TensorFlow's checkpoints without TensorFlow, a few rows at a time.

Every part of a table has a region in the data file, whose offset is known before the first byte is
written. So one pass over the rows in the order of ids can write any layout.
"""

import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle import dtypes
from tpu_estimator_embedding.checkpoint.bundle.bundle_entries import (
    HEADER_KEY,
    Entry,
    encode_header,
    slice_key,
)
from tpu_estimator_embedding.checkpoint.bundle.checksums import crc32c, masked
from tpu_estimator_embedding.checkpoint.bundle.index_table import format_index
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor, bytes_of
from tpu_estimator_embedding.checkpoint.bundle.string_tensor import decode_strings
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.checkpoint.output_files import new_files
from tpu_estimator_embedding.checkpoint.paths import data_file, index_file
from tpu_estimator_embedding.checkpoint.table_rows import part_starts, rows_by_part

Advance = Callable[[int], object]  # called with the number of bytes of every write


class _Region:
    """The region of one tensor, or one part of a table, in the data file."""

    def __init__(self, offset: int, size: int):
        self._offset, self._size = offset, size
        self._written, self._crc = 0, 0

    def write(self, file: BinaryIO, content: bytes | memoryview) -> None:
        file.seek(self._offset + self._written)
        file.write(content)
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
        checks.check(key[:1] not in ("", "\0"), "tensors", "under keys with a first character "
                     "other than NUL", key)
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
    region, crc = _Region(offset, tensor.size), None
    for chunk in tensor.chunks():
        region.write(file, chunk)
        advance(len(chunk))
        if tensor.dtype == dtypes.STRING:  # yielded in one piece
            _, crc = decode_strings(bytes(chunk), int(np.prod(tensor.shape, dtype=np.int64)))
    yield key.encode(), region.entry(tensor.dtype, tensor.shape, crc)


def _write_table(key: str, tensor: StoredTensor, layout: TableLayout, offset: int,
                 file: BinaryIO, advance: Advance) -> Iterator[tuple[bytes, Entry]]:
    starts = part_starts(layout)
    sizes = [stop - start for start, stop in zip(starts, starts[1:], strict=False)]
    regions = [_Region(offset + start * tensor.row_bytes, size * tensor.row_bytes)
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
