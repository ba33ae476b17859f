# SPDX-License-Identifier: Apache-2.0
"""Reads TensorFlow's checkpoints without TensorFlow, a few rows at a time.

A checkpoint `model.ckpt-100` consists of the file `model.ckpt-100.index`, which holds the location
of each tensor, and data files such as `model.ckpt-100.data-00000-of-00001`.
"""

import pathlib
from collections.abc import Mapping

from tpu_estimator_embedding.checkpoint.bundle.bundle_entries import (
    HEADER_KEY,
    Entry,
    parse_entry,
    parse_header,
    slice_key,
)
from tpu_estimator_embedding.checkpoint.bundle.bundle_tensor import BundleTensor, Piece
from tpu_estimator_embedding.checkpoint.bundle.index_table import parse_index
from tpu_estimator_embedding.checkpoint.paths import data_file, index_file

_INSPECT = "`tpu-estimator-embedding checkpoint inspect` lists what a checkpoint has."


def read_bundle(prefix: pathlib.Path) -> dict[str, BundleTensor]:
    """Returns name -> tensor of a checkpoint, without reading values.

    Args:
        prefix: path of the checkpoint, without `.index`.

    Raises:
        FileNotFoundError: if the index or a data file is missing.
        ValueError: if the checkpoint is truncated, damaged or in another format.
    """
    index = index_file(prefix)
    if not index.exists():
        raise FileNotFoundError(f"`checkpoint` must be the path of a checkpoint, got {prefix}, "
                                f"where {index.name} is missing.")
    try:
        items = parse_index(index.read_bytes())
        shards = parse_header(items.pop(HEADER_KEY, b""))
        entries = {key: parse_entry(value) for key, value in items.items()}
    except ValueError as error:
        raise ValueError(f"`checkpoint` must be a whole checkpoint of TensorFlow, got {index}: "
                         f"{error}.") from error
    files = [data_file(prefix, shard, shards) for shard in range(shards)]
    _check_files(files, entries)
    return {key.decode(): BundleTensor(key.decode(), entry, _pieces(key, entry, entries, files))
            for key, entry in entries.items() if not key.startswith(b"\0")}


def _check_files(files: list[pathlib.Path], entries: Mapping[bytes, Entry]) -> None:
    for shard, path in enumerate(files):
        if not path.exists():
            raise FileNotFoundError(f"`checkpoint` must have all its data files, got none at "
                                    f"{path}.")
        needed = max((entry.offset + entry.size for entry in entries.values()
                      if entry.shard == shard), default=0)
        found = path.stat().st_size
        if found < needed:
            raise ValueError(f"`checkpoint` must be whole, got {path} truncated: it has {found} "
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
