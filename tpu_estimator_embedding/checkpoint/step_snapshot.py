# SPDX-License-Identifier: Apache-2.0
"""All values of a checkpoint as of one step, which are written while training goes on.

Tables and slots are read in place, through the native kernels: an update that comes later first
copies the rows that it writes and that were not read yet. So the memory grows by the rows that are
trained meanwhile, at most by the size of tables and slots. If less than that is free, it grows by
half of what is free, and updates then wait for the file. Other variables, and tables that
TensorFlow's ops train, share their buffers with the values, and their next update copies them.
"""

import ctypes
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.saved_step import SavedTensor, parse_slice, write_step
from tpu_estimator_embedding.checkpoint.stored_tensor import (
    ArrayTensor,
    StoredTensor,
    TextTensor,
    bytes_of,
    numpy_dtype,
    row_blocks,
)
from tpu_estimator_embedding.engine.variables import TableSlice
from tpu_estimator_embedding.free_memory import free_memory
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import Tensor

_AROUND_SAVES = ("Identity", "MergeV2Checkpoints", "NoOp")
_BYTES_OF_READ = 1 << 20  # an update waits while so much is copied


class _Saved(NamedTuple):
    """A tensor that a Saver saves: its key, slice and, for a part of a snapshot, its number."""

    key: str
    slice_spec: str
    tensor: Tensor
    part: int | None


class StepSnapshot:
    """The values of one step.

    Attributes:
        bytes_kept: the bytes of rows that updates have copied; known when it has ended.
    """

    def __init__(self, shards: Sequence[Sequence[SavedTensor]], end: Callable[[], int]):
        """Takes the tensors of each file of a checkpoint, and what frees them."""
        self._shards, self._end = shards, end
        self.bytes_kept = 0

    def write(self, prefix: str) -> None:
        """Writes the files of a checkpoint; see `write_step`."""
        write_step(pathlib.Path(prefix), self._shards)

    def end(self) -> None:
        """Frees what updates have copied; they copy no more."""
        self._shards = ()
        self.bytes_kept = max(self.bytes_kept, self._end())


class SnapshotOps:
    """Takes snapshots of the variables of a graph."""

    def __init__(self) -> None:
        """Adds the op to the default graph, which holds all tables and may be finalized then."""
        variables = [each for each in tf.compat.v1.global_variables() if _is_row_table(each)]
        self._parts = {variable.handle.op.name: part for part, variable in enumerate(variables)}
        self._bytes = sum(4 * variable.shape.num_elements() for variable in variables)
        self._begin = None
        if variables and load.native_ops() is not None:
            with tf.device("/device:CPU:0"):
                self._most_bytes = tf.compat.v1.placeholder(tf.int64, [])
                self._begin = load.native_ops().tpu_embedding_begin_snapshot(
                    [variable.handle for variable in variables], self._most_bytes)

    def why_not(self, graph: tf.Graph, saver: tf.compat.v1.train.Saver, path: str) -> str:
        """Returns why a snapshot cannot replace what a Saver does; empty if it can."""
        if type(saver).save is not tf.compat.v1.train.Saver.save:
            return f"{type(saver).__name__} has a `save` of its own"
        if "://" in path:
            return "they are not on a disk of this machine"
        if saver is None or saver.saver_def is None:
            return "there is no Saver of variables"
        saves = save_ops(graph, saver)
        if not saves or any(op.type != "SaveV2" or not _is_here(op.device) for op in saves):
            return "their Saver writes on servers, in the format V1 or in a way of its own"
        dtypes = {tensor.dtype.base_dtype for op in saves for tensor in op.inputs[3:]}
        for dtype in dtypes - {tf.string}:
            try:
                numpy_dtype(dtype.as_datatype_enum)
            except ValueError:
                return f"they hold values of dtype {dtype.name}"
        return ""

    def take(self, session: tf.compat.v1.Session, saver: tf.compat.v1.train.Saver) -> StepSnapshot:
        """Returns the values that a Saver would save now; no step runs meanwhile."""
        shards = [[self._described(*each) for each in saved_inputs(save)]
                  for save in sorted(save_ops(session.graph, saver), key=shard_of)]
        read = {each.tensor.name: each.tensor for shard in shards for each in shard
                if each.part is None}
        values = session.run(read)
        number = self._number(session) if any(
            each.part is not None for shard in shards for each in shard) else 0
        return StepSnapshot([
            [SavedTensor(each.key, _values(each, number, values), *place_of(each.slice_spec))
             for each in shard]
            for shard in shards], lambda: _end(number) if number else 0)

    def _described(self, key: str, slice_spec: str, tensor: Tensor) -> _Saved:
        variable = variable_read(tensor)
        part = self._parts.get(variable.name) if variable and self._begin is not None else None
        return _Saved(key, slice_spec, tensor, part)

    def _number(self, session: tf.compat.v1.Session) -> int:
        free = free_memory()
        most = self._bytes if free is None or free > 1.25 * self._bytes else free // 2
        return int(session.run(self._begin, {self._most_bytes: most}))


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


def _end(number: int) -> int:
    return int(_functions().tpu_embedding_snapshot_end(number))


def _is_row_table(variable: tf.Variable) -> bool:
    device = tf.DeviceSpec.from_string(variable.device or "")
    return (isinstance(getattr(variable, "_save_slice_info", None), TableSlice)
            and _is_here(variable.device) and device.device_type in (None, "CPU")
            and variable.dtype.base_dtype == tf.float32 and variable.shape.rank == 2)


def _is_here(device: str) -> bool:
    return tf.DeviceSpec.from_string(device or "").job in (None, "localhost")


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


def shard_of(save: tf.Operation) -> int:
    """Returns the number of the data file that an op writes."""
    name = save.inputs[0].op
    return int(tf.get_static_value(name.inputs[1])) if name.type == "ShardedFilename" else 0


def saved_inputs(save: tf.Operation) -> Iterator[tuple[str, str, Tensor]]:
    """Yields the key, slice and tensor of all that an op writes, in order."""
    keys, slices = (tf.get_static_value(tensor) for tensor in save.inputs[1:3])
    for key, slice_spec, tensor in zip(keys, slices, save.inputs[3:], strict=True):
        yield key.decode(), slice_spec.decode(), tensor


def variable_read(tensor: Tensor) -> tf.Operation | None:
    """Returns the op of the variable's handle that a tensor is read from, if it is so."""
    op = tensor.op
    while op.type == "Identity":
        op = op.inputs[0].op
    return op.inputs[0].op if op.type == "ReadVariableOp" else None


def _values(saved: _Saved, number: int, values: Mapping[str, object]) -> StoredTensor:
    if saved.part is not None:
        return _RowsOfSnapshot(number, saved.part, tuple(saved.tensor.shape.as_list()))
    return in_memory(saved.tensor, values[saved.tensor.name])


def in_memory(tensor: Tensor, value: object) -> StoredTensor:
    """Returns the value of a tensor that a Saver saves."""
    if tensor.dtype.base_dtype == tf.string:
        texts = np.asarray(value, object)  # as bytes, zeros would end them
        return TextTensor(*texts.reshape(-1).tolist(), shape=texts.shape)
    value = np.asarray(value)
    if variable_read(tensor) is None:
        value = value.copy()  # the buffer of a reference variable, which changes in place
    return ArrayTensor(value)


def place_of(slice_spec: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
    """Returns what `SavedTensor` says about a slice; empty for a whole tensor."""
    return parse_slice(slice_spec) if slice_spec else ((), ())
