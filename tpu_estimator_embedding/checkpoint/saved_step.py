# SPDX-License-Identifier: Apache-2.0
"""What a Saver saves, and its files, which are written from values that are read piece by piece.

Tensors are in the order in which TensorFlow writes them, so that data files have the same bytes.
If a process is killed while it replaces a checkpoint of the same step, the old index fits.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.bundle import Region
from tpu_estimator_embedding.checkpoint.bundle_format import (
    HEADER_KEY,
    Entry,
    decode_strings,
    encode_header,
    format_index,
    slice_key,
)
from tpu_estimator_embedding.checkpoint.files import data_file, index_file, replace_files
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    STRING,
    ArrayTensor,
    StoredTensor,
    TextTensor,
)
from tpu_estimator_embedding.types import Tensor

_AROUND_SAVES = ("Identity", "MergeV2Checkpoints", "NoOp")


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


def saved_shards(saver: tf.compat.v1.train.Saver, session: tf.compat.v1.Session,
                 tables: Mapping[str, StoredTensor]) -> list[list[SavedTensor]]:
    """Returns what a Saver saves now in each data file.

    Args:
        saver: the Saver, which was built.
        session: the session, of which one run reads all values but those of `tables`. They may
            share buffers with variables, whose next update copies them.
        tables: name of a variable's handle -> its values.
    """
    shards = [list(saved_inputs(op))
              for op in sorted(save_ops(session.graph, saver), key=_shard_of)]
    values = session.run({tensor.name: tensor for shard in shards for _, _, tensor in shard
                          if handle_of(tensor) not in tables})
    return [[SavedTensor(key, tables[handle_of(tensor)] if handle_of(tensor) in tables
                         else _in_memory(tensor, values[tensor.name]),
                         *(parse_slice(slice_spec) if slice_spec else ((), ())))
             for key, slice_spec, tensor in shard] for shard in shards]


def save_ops(graph: tf.Graph, saver: tf.compat.v1.train.Saver) -> list[tf.Operation]:
    """Returns the ops that write a checkpoint, and those that are none of TensorFlow's Saver's."""
    found: dict[str, tf.Operation] = {}
    waiting = [graph.as_graph_element(saver.saver_def.save_tensor_name).op]
    while waiting:
        op = waiting.pop()
        if op.type in _AROUND_SAVES:
            waiting += op.control_inputs
        else:
            found[op.name] = op
    return list(found.values())


def _shard_of(save: tf.Operation) -> int:
    """Returns the number of the data file that an op writes."""
    name = save.inputs[0].op
    return int(tf.get_static_value(name.inputs[1])) if name.type == "ShardedFilename" else 0


def saved_inputs(save: tf.Operation) -> Iterator[tuple[str, str, Tensor]]:
    """Yields the key, slice and tensor of all that an op writes, in order."""
    keys, slices = (tf.get_static_value(tensor) for tensor in save.inputs[1:3])
    for key, slice_spec, tensor in zip(keys, slices, save.inputs[3:], strict=True):
        yield key.decode(), slice_spec.decode(), tensor


def handle_of(tensor: Tensor) -> str:
    """Returns the name of the handle of the variable that a tensor is read from, or ""."""
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return op.inputs[0].op.name if op.type == "ReadVariableOp" else ""


def _in_memory(tensor: Tensor, value: object) -> StoredTensor:
    if tensor.dtype.base_dtype == tf.string:
        texts = np.asarray(value, object)  # as bytes, zeros would end them
        return TextTensor(*texts.reshape(-1).tolist(), shape=texts.shape)
    value = np.asarray(value)
    if not handle_of(tensor):
        value = value.copy()  # the buffer of a reference variable, which changes in place
    return ArrayTensor(value)


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
    with replace_files([*paths, index_file(prefix)]) as [*files, index]:
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
