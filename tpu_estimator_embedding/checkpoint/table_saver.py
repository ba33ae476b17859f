# SPDX-License-Identifier: Apache-2.0
"""A Saver that reads and writes tables piece by piece, and never holds one twice.

What a Saver does not do in pieces, the file `checkpoint`, the graph, and which checkpoints are
deleted, is its own work: it gets a stand-in for the session, which leaves tables out where the
Saver runs its op that restores, and writes the pieces where it runs its op that saves.
"""

import contextlib
import itertools
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.client import session as session_module
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor, read_bundle
from tpu_estimator_embedding.checkpoint.failed_saves import is_full, op_error
from tpu_estimator_embedding.checkpoint.files import index_file
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.saved_step import (
    SavedTensor,
    handle_of,
    save_ops,
    saved_inputs,
    saved_shards,
    write_step,
)
from tpu_estimator_embedding.checkpoint.saver_patches import (
    stored_parts,
    table_parts,
)
from tpu_estimator_embedding.checkpoint.step_snapshot import StepSnapshot, TableSnapshots
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, numpy_dtype, rows_by_id
from tpu_estimator_embedding.checkpoint.table_layouts import part_starts, same_order
from tpu_estimator_embedding.checkpoint.table_saveable import TableSaveable
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.format_bytes import format_bytes
from tpu_estimator_embedding.types import Tensor

KEPT_BYTES = 256 << 20  # of rows that were looked up, of all tables of a session together

_LOOKUPS = ("TpuEmbeddingLookUp", "TpuEmbeddingJoinedLookUp")
_FEEDS = {"files": (tf.string, [None]), "pieces": (tf.int64, [None, 4]), "order": (tf.int64, [5]),
          "kept_bytes": (tf.int64, [])}


class TableSaver:
    """A Saver whose tables go piece by piece between a checkpoint and where they are used.

    *In place*: evaluation and prediction do not change tables. So `restore` leaves large ones in
    the checkpoint, where lookups read single rows, in any layout. `kernels/src/stored_table.h` says
    how they are read and kept. Only the compiled lookups can do so: a table that another op reads
    or changes is loaded.

    *Export*: an export restores the variables of a graph and saves them again; nothing runs in
    between. So the rows of tables go from file to file, in the order that the graph has them. The
    data files have the bytes that TensorFlow's Saver would write.

    *While training goes on*: `start_saving` takes the values of a step, and writes them while later
    steps run.

    Everything else is as of the Saver.

    Args:
        saver: the Saver; None for one of all variables of the default graph.
        loaded_bytes: the size of all tables together that are not read in place, the smallest
            ones; None to read none in place.
        is_export: whether `save` copies tables from the checkpoint that was restored.
        while_training: takes the tables of a step for `start_saving`.
    """

    def __init__(self, saver: tf.compat.v1.train.Saver | None = None, *,
                 loaded_bytes: int | None = None, is_export: bool = False,
                 while_training: TableSnapshots | None = None):
        self._saver = saver or tf.compat.v1.train.Saver(
            sharded=True, allow_empty=True, defer_build=not is_export, builder=_TableByTable())
        self._loaded_bytes = loaded_bytes
        self._is_export = is_export
        self._snapshots = while_training
        self._opening: dict[str, tf.Operation] = {}  # by the name of a handle's op
        self._feeds: dict[str, Tensor] = {}
        self._checkpoint = ""  # that was restored for an export
        self._copied: Mapping[str, StoredTensor] = {}  # its tables, by the name of a handle's op

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, name)

    def build(self) -> None:
        """Adds the ops of the Saver to the default graph, and one that opens each large table."""
        self._saver.build()
        if self._loaded_bytes is None or self._feeds or self._saver.saver_def is None:
            return
        with tf.name_scope("open_tables"), tf.device("/device:CPU:0"):
            self._feeds = {name: tf.compat.v1.placeholder(dtype, shape, name=name)
                           for name, (dtype, shape) in _FEEDS.items()}
            for handle, part in table_parts(self._saver, tf.compat.v1.get_default_graph()):
                self._opening[handle.op.name] = load.native_ops().tpu_embedding_open_stored_table(
                    table=handle, **self._feeds, dim=part.dimension)

    def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
        """Restores as the Saver does, but for the tables that stay in the checkpoint.

        Raises:
            RuntimeError: if the checkpoint is replaced meanwhile.
            ValueError: see `saver_patches.restoring`.
        """
        if not (self._is_export or self._opening):
            self._saver.restore(sess, save_path)
            return
        parts = stored_parts(self._saver, sess, save_path)
        with _not_replaced(save_path):
            tensors, reason = _tensors_in_place(save_path)
            if self._is_export:
                left = [part for part in parts if _can_copy(part, tensors)]
            else:
                left, reason = self._open(sess, parts, tensors, reason)
            self._saver.restore(_WithoutTables(sess, left) if left else sess, save_path)
        if self._is_export:
            self._checkpoint = save_path
            self._copied = {part.handle.op.name: CopiedRows(part, tensors[part.table_part.key])
                            for part in left}
            return
        if left:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: %s of tables are read in place from %s",
                format_bytes(sum(map(_bytes_of, left))), save_path)
        if reason:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: tables are loaded, not read in place: %s", reason)

    def save(self, sess: tf.compat.v1.Session, save_path: str, *args: Any,
             **kwargs: Any) -> str | None:
        """Saves as the Saver does, tables from the checkpoint that was restored for an export.

        Raises:
            RuntimeError: if the checkpoint of the tables was deleted or replaced.
            tf.errors.OpError: if it cannot be written.
            ValueError: if that checkpoint is damaged.
        """
        if self._copied and "://" in save_path:  # a storage service
            self._saver.restore(sess, self._checkpoint)
            self._copied = {}
        if not self._copied:
            return self._saver.save(sess, save_path, *args, **kwargs)
        try:
            with _not_replaced(self._checkpoint):
                write_step(pathlib.Path(save_path), saved_shards(self._saver, sess, self._copied))
        except FileNotFoundError as error:
            raise RuntimeError(f"`checkpoint` must exist until it is exported, got "
                               f"{self._checkpoint} deleted meanwhile. Export another.") from error
        except OSError as error:
            advice = ("Free space, or export to another disk." if is_full(error)
                      else "Export to a directory that can be written.")
            raise op_error(error, f"The variables {save_path} were not saved: "
                                   f"{error.strerror or error}. {advice}") from error
        return save_path

    def why_not_while_training(self, graph: tf.Graph, path: str) -> str:
        """Returns why `start_saving` cannot do what the Saver does; empty if it can."""
        if type(self._saver).save is not tf.compat.v1.train.Saver.save:
            return f"{type(self._saver).__name__} has a `save` of its own"
        if "://" in path:
            return "they are not on a disk of this machine"
        if self._saver.saver_def is None:
            return "there is no Saver of variables"
        saves = save_ops(graph, self._saver)
        if not saves or any(op.type != "SaveV2" or not _is_here(op.device) for op in saves):
            return "their Saver writes on servers, in the format V1 or in a way of its own"
        dtypes = {tensor.dtype.base_dtype for op in saves for tensor in op.inputs[3:]}
        for dtype in dtypes - {tf.string}:
            try:
                numpy_dtype(dtype.as_datatype_enum)
            except ValueError:
                return f"they hold values of dtype {dtype.name}"
        return ""

    def start_saving(self, session: tf.compat.v1.Session, path: str, step: int,
                     thread: Executor, *, write_meta_graph: bool) -> "Future[None]":
        """Takes the values that the Saver would save now, and lets a thread write them.

        Args:
            session: the session, in which no step runs until this returns.
            path: path of checkpoints, to which the step is added.
            step: the global step.
            thread: runs one task after another, as snapshots of a table exclude each other.
            write_meta_graph: whether to write the graph, too.

        Returns:
            What waits for the checkpoint, and raises the error if it could not be written.
        """
        thread.submit(bool).result()  # after another hook's checkpoint is written
        handles = {handle_of(tensor) for op in save_ops(session.graph, self._saver)
                   for _, _, tensor in saved_inputs(op)}
        assert self._snapshots is not None, "not a Saver of `while_training`"
        snapshot = self._snapshots.take(session, handles)
        try:
            shards = saved_shards(self._saver, session, snapshot.tables)
        except BaseException:
            snapshot.end()
            raise
        return thread.submit(self._write, _WritesPieces(session.graph, shards, snapshot), path,
                             step, write_meta_graph)

    def _write(self, pieces: "_WritesPieces", path: str, step: int,
               write_meta_graph: bool) -> None:
        try:
            with pieces.graph.as_default():  # which a thread does not inherit
                self._saver.save(pieces, path, global_step=step,
                                 write_meta_graph=write_meta_graph)
        except Exception as error:
            tf.compat.v1.logging.error("tpu_estimator_embedding: %s", error)
            raise
        finally:
            pieces.close()
        tf.compat.v1.logging.info("Saved the checkpoint of step %d. Updates copied %.0f MiB.",
                                  step, pieces.snapshot.bytes_kept / 2**20)

    def _open(self, session: tf.compat.v1.Session, parts: Sequence[StoredPart],
              tensors: Mapping[str, BundleTensor], reason: str) -> tuple[list[StoredPart], str]:
        """Returns the parts that lookups read from now on, and why not all large ones."""
        large = _without_smallest(parts, self._loaded_bytes or 0)
        opened: list[StoredPart] = []
        for part in large if tensors else ():
            why_not = self._why_not_in_place(session, part, tensors)
            if not why_not:
                fields = _fields(part, tensors[part.table_part.key])
                kept_bytes = KEPT_BYTES * _bytes_of(part) // sum(map(_bytes_of, large))
                try:
                    session.run(self._opening[part.handle.op.name], {
                        self._feeds[name]: value
                        for name, value in {**fields, "kept_bytes": kept_bytes}.items()})
                    opened.append(part)
                except tf.errors.OpError as error:  # too many open files, for example
                    why_not = str(error.message).splitlines()[0]
            reason = reason or why_not
        return opened, reason

    def _why_not_in_place(self, session: tf.compat.v1.Session, part: StoredPart,
                          tensors: Mapping[str, BundleTensor]) -> str:
        if not _is_table_in(tensors, part):
            return f"{part.table_part.key} is not stored in rows of float32"
        if getattr(session, "sess_str", b""):
            return "the session runs in another process"
        user = self._other_user(part.handle)
        return f"{user} reads or changes {part.table_part.key}" if user else ""

    def _other_user(self, handle: Tensor) -> str:
        """Returns the name of an op of the program that uses a table, empty if there is none."""
        scope = self._saver.saver_def.restore_op_name.rpartition("/")[0]
        waiting = [handle]
        while waiting:
            for op in waiting.pop().consumers():
                is_own = (op.name.startswith((f"{scope}/", f"{handle.op.name}/"))
                          or op is self._opening[handle.op.name])
                if op.type in ("ReadVariableOp", "Identity"):
                    waiting += op.outputs  # an op of the variable, which does nothing by itself
                elif not is_own and op.type not in (*_LOOKUPS, "VarIsInitializedOp"):
                    return str(op.name)
        return ""


class CopiedRows(StoredTensor):
    """The rows of a part of a table in a checkpoint, in the order of the part."""

    def __init__(self, part: StoredPart, tensor: BundleTensor):
        """Takes a part whose rows `_can_copy`."""
        super().__init__(tensor.dtype, (len(part.ids), *tensor.shape[1:]))
        present = part.table_part.layout
        is_in_order = same_order(present, part.stored)
        self._rows: StoredTensor = tensor if is_in_order else rows_by_id(tensor, part.stored)
        self._first = (part_starts(present)[part.table_part.index] if is_in_order
                       else part.ids.start)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        return self._rows.read_rows(self._first + start, self._first + stop)


class _TableByTable(saver_module.BulkSaverBuilder):
    """Builds Savers with an op for each part of a table, which a restore may leave out."""

    def bulk_restore(self, filename_tensor: Tensor,
                     saveables: Sequence[saveable_object.SaveableObject],
                     *args: object) -> list[Tensor]:
        others = [each for each in saveables if not isinstance(each, TableSaveable)]
        together = iter(super().bulk_restore(filename_tensor, others, *args) if others else ())
        return [tensor for each in saveables for tensor in (
            super(_TableByTable, self).bulk_restore(filename_tensor, [each], *args)
            if isinstance(each, TableSaveable) else itertools.islice(together, len(each.specs)))]


class _WithoutTables:
    """A session for a Saver that restores, which leaves some parts of tables as they are."""

    def __init__(self, session: tf.compat.v1.Session, parts: Sequence[StoredPart]):
        self.graph = session.graph
        self._session = session
        self._handles = {part.handle.ref() for part in parts}

    def run(self, fetches: str | tf.Operation,
            feed_dict: Mapping[str | Tensor, Any]) -> object:
        op = self.graph.as_graph_element(fetches)
        return self._session.run([each for each in _assignments(op) if not (
            each.inputs and each.inputs[0].ref() in self._handles)], feed_dict)


def _assignments(op: tf.Operation) -> Iterator[tf.Operation]:
    """Yields the ops that a group of groups runs."""
    if op.type != "NoOp":
        yield op
    for each in op.control_inputs if op.type == "NoOp" else ():
        yield from _assignments(each)


class _WritesPieces(session_module.SessionInterface):
    """A session for a Saver that saves, which writes what was taken before."""

    def __init__(self, graph: tf.Graph, shards: list[list[SavedTensor]], snapshot: StepSnapshot):
        self.snapshot = snapshot
        self._graph, self._shards = graph, shards

    @property
    def graph(self) -> tf.Graph:
        """The graph of the training."""
        return self._graph

    def run(self, fetches: object, feed_dict: Any = None, options: object = None,
            run_metadata: object = None) -> str:
        """Writes the checkpoint that is fed; returns its path.

        Raises:
            tf.errors.OpError: if it cannot be written.
        """
        del fetches, options, run_metadata
        [path] = feed_dict.values()
        try:
            write_step(pathlib.Path(path), self._shards)
        except OSError as error:
            raise op_error(error, f"{path}: {error.strerror or error}.") from error
        self.close()
        return str(path)

    def close(self) -> None:
        """Frees the values."""
        self._shards = []
        self.snapshot.end()


class _Piece(NamedTuple):
    """Consecutive saved rows in a file: a row of the op's input."""

    first_row: int
    num_rows: int
    file: int
    offset: int


def _fields(part: StoredPart,
            tensor: BundleTensor) -> dict[str, list[str] | list[int] | np.ndarray]:
    """Returns what the op needs to find the rows of a part."""
    files: dict[pathlib.Path, int] = {}
    pieces = [_Piece(*piece.extents[0], files.setdefault(piece.path, len(files)),
                     piece.entry.offset) for piece in tensor.pieces]
    ids, stored = part.ids, part.stored
    saved_parts = 1 if stored.is_by_id else min(stored.num_hosts, stored.vocabulary_size)
    return {"files": [str(path) for path in files], "pieces": np.array(pieces, np.int64),
            "order": [len(ids), ids.start, ids.step, stored.vocabulary_size, saved_parts]}


def _without_smallest(parts: Sequence[StoredPart], loaded_bytes: int) -> list[StoredPart]:
    """Returns all parts but the smallest ones, which have so many bytes together at most."""
    large, left = [], loaded_bytes
    for part in sorted(parts, key=_bytes_of):
        left -= _bytes_of(part)
        if left < 0:
            large.append(part)
    return large


def _bytes_of(part: StoredPart) -> int:
    return 4 * len(part.ids) * part.table_part.dimension


def _tensors_in_place(checkpoint: str) -> tuple[Mapping[str, BundleTensor], str]:
    """Returns the tensors of a checkpoint by their keys, or why they cannot be read in place."""
    if "://" in checkpoint:
        return {}, "the checkpoint is in a storage service"
    if sys.byteorder != "little":
        return {}, "this machine is big-endian"
    try:
        return read_bundle(pathlib.Path(checkpoint)), ""
    except (OSError, ValueError) as error:  # TensorFlow's restore raises its own
        return {}, str(error).rstrip(".")


def _is_table_in(tensors: Mapping[str, BundleTensor], part: StoredPart) -> bool:
    """Whether a checkpoint has the rows of a table, of float32 and one after another."""
    tensor = tensors.get(part.table_part.key)
    return (tensor is not None and tensor.dtype == tf.float32.as_datatype_enum
            and tensor.is_in_rows
            and tensor.shape == (part.table_part.layout.vocabulary_size, part.table_part.dimension))


def _can_copy(part: StoredPart, tensors: Mapping[str, BundleTensor]) -> bool:
    present = part.table_part.layout
    return _is_table_in(tensors, part) and (
        present.is_by_id or same_order(present, part.stored))


@contextlib.contextmanager
def _not_replaced(checkpoint: str) -> Iterator[None]:
    """Raises RuntimeError if the files of a checkpoint were replaced within the context.

    It may be deleted: what was opened keeps its content.
    """
    before = _identity(checkpoint)
    yield
    after = _identity(checkpoint)
    if after not in (None, before):
        raise RuntimeError("`checkpoint` must stay as it is while it is restored, got "
                           f"{checkpoint} replaced meanwhile. Restore it again.")


def _identity(checkpoint: str) -> tuple[int, ...] | None:
    try:
        found = index_file(pathlib.Path(checkpoint)).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _is_here(device: str) -> bool:
    return tf.DeviceSpec.from_string(device or "").job in (None, "localhost")
