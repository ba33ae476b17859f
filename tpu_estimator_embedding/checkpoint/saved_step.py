# SPDX-License-Identifier: Apache-2.0
"""Writes the files that a Saver writes, from values that are read piece by piece.

Tensors are in the order in which TensorFlow writes them, so that data files have the same bytes.
If a process is killed while it replaces a checkpoint of the same step, the old index fits.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tpu_estimator_embedding.checkpoint.bundle import Region
from tpu_estimator_embedding.checkpoint.bundle_format import (
    HEADER_KEY,
    Entry,
    decode_strings,
    encode_header,
    format_index,
    slice_key,
)
from tpu_estimator_embedding.checkpoint.files import data_file, index_file, replaced_files
from tpu_estimator_embedding.checkpoint.stored_tensor import STRING, StoredTensor


class SavedTensor(NamedTuple):
    """What a Saver saves under a key.

    Attributes:
        key: its key.
        values: those of the tensor, or of a slice of it.
        whole: the shape of the whole tensor.
        extents: (start, length) of the slice on each axis; empty for the whole tensor.
    """

    key: str
    values: StoredTensor
    whole: tuple[int, ...]
    extents: tuple[tuple[int, int], ...] = ()


def parse_slice(text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Returns the shape of the whole tensor and the extents of a slice, as a Saver writes them.

    >>> parse_slice("13 4 7,6:0,4")
    ((13, 4), ((7, 6), (0, 4)))
    """
    *sizes, extents = text.split()
    whole = tuple(map(int, sizes))
    pairs = tuple((0, size) if extent == "-" else tuple(map(int, extent.split(",")))
                  for size, extent in zip(whole, extents.split(":"), strict=True))
    return whole, tuple((start, length) for start, length in pairs)


def write_step(prefix: pathlib.Path, shards: Sequence[Sequence[SavedTensor]]) -> None:
    """Writes a checkpoint, whose files get their names when it is complete.

    Args:
        prefix: its path, without `.index`.
        shards: what each data file holds, in order.

    Raises:
        OSError: if it cannot be written; there are then no new files.
    """
    paths = [data_file(prefix, shard, len(shards)) for shard in range(len(shards))]
    with replaced_files([*paths, index_file(prefix)]) as [*files, index]:
        items = {HEADER_KEY: encode_header(num_shards=len(shards))}
        slices: dict[str, list[tuple[SavedTensor, Entry]]] = {}
        for shard, (path, tensors) in enumerate(zip(files, shards, strict=True)):
            for tensor, entry in _write(path, shard, tensors):
                if tensor.extents:
                    items[slice_key(tensor.key, tensor.extents)] = entry.encode()
                    slices.setdefault(tensor.key, []).append((tensor, entry))
                else:
                    items[tensor.key.encode()] = entry.encode()
        for key, parts in slices.items():
            items[key.encode()] = Entry(parts[0][1].dtype, parts[0][0].whole, slices=tuple(
                tensor.extents for tensor, _ in parts)).encode()
        index.write_bytes(format_index(items))


def _write(path: pathlib.Path, shard: int,
           tensors: Sequence[SavedTensor]) -> Iterator[tuple[SavedTensor, Entry]]:
    offset = 0
    with path.open("wb", buffering=0) as file:
        for tensor in tensors:
            values = tensor.values
            region, crc = Region(offset, values.size), None
            for chunk in values.chunks():
                region.write(file, chunk)
                if values.dtype == STRING:  # yielded in one piece
                    _, crc = decode_strings(bytes(chunk), math.prod(values.shape))
            yield tensor, dataclasses.replace(
                region.entry(values.dtype, values.shape, crc), shard=shard)
            offset += values.size
