# SPDX-License-Identifier: Apache-2.0
"""A Saver that copies tables from a checkpoint to a SavedModel, and never holds one.

An export restores the variables of a graph and saves them again; nothing runs in between. So the
rows of a table can go from file to file, a few at a time and in the order that the graph has them.
The data files have the bytes that TensorFlow's Saver would write. The environment variable
TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE=off makes exports restore tables.
"""

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint import in_place_choice
from tpu_estimator_embedding.checkpoint.bundle import BundleTensor, read_bundle
from tpu_estimator_embedding.checkpoint.files import index_file
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.saved_step import SavedTensor, write_step
from tpu_estimator_embedding.checkpoint.savers import (
    ERRORS_OF_A_FULL_DISK,
    TableByTable,
    restore,
    restore_parts,
    stored_parts,
)
from tpu_estimator_embedding.checkpoint.step_snapshot import (
    in_memory,
    place_of,
    save_ops,
    saved_inputs,
    shard_of,
    variable_read,
)
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, rows_by_id
from tpu_estimator_embedding.checkpoint.table_layouts import ids_of_part, part_starts, same_order
from tpu_estimator_embedding.types import Tensor


class ExportSaver(tf.compat.v1.train.Saver):
    """Restores all but tables, and saves all: tables from the checkpoint that it restored."""

    def __init__(self) -> None:
        """Creates a Saver of all variables of the default graph."""
        super().__init__(sharded=True, builder=TableByTable())
        self._tables: dict[str, StoredTensor] = {}
        self._checkpoint = ""

    def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
        """Restores as Savers do, but for the tables that `save` can copy.

        Raises:
            RuntimeError, ValueError: see `savers.restore`.
        """
        parts = stored_parts(self, sess, save_path)
        tensors, _ = read_in_place(save_path)
        streamed = [part for part in parts if _can_stream(part, tensors)]
        if not streamed:
            restore(self, sess, save_path)
            return
        with not_replaced(save_path):
            restore_parts(self, sess, save_path, parts, without=streamed)
        self._checkpoint = save_path
        self._tables = {part.handle.op.name: PartOfTable(part, tensors[part.part.key])
                        for part in streamed}

    def save(self, sess: tf.compat.v1.Session, save_path: str, *args: object,
             **kwargs: object) -> str | None:
        """Saves as Savers do.

        Raises:
            OSError: if it cannot be written.
            RuntimeError: if the checkpoint of the tables was deleted or replaced.
            ValueError: if that checkpoint is damaged.
        """
        if self._tables and "://" in save_path:  # a storage service
            restore(self, sess, self._checkpoint)
            self._tables = {}
        if not self._tables:
            return super().save(sess, save_path, *args, **kwargs)
        try:
            with not_replaced(self._checkpoint):
                write_step(pathlib.Path(save_path), self._shards(sess))
        except FileNotFoundError as error:
            raise RuntimeError(f"`checkpoint` must exist until it is exported, got "
                               f"{self._checkpoint} deleted meanwhile. Export another.") from error
        except OSError as error:
            is_full = error.errno in ERRORS_OF_A_FULL_DISK
            way_out = "Free space, or export to another disk." if is_full else (
                "Export to a directory that can be written.")
            raise OSError(f"The variables {save_path} were not saved: "
                          f"{error.strerror or error}. {way_out}") from error
        return save_path

    def _shards(self, session: tf.compat.v1.Session) -> list[list[SavedTensor]]:
        shards = [list(saved_inputs(op))
                  for op in sorted(save_ops(session.graph, self), key=shard_of)]
        values = session.run({tensor.name: tensor for shard in shards for _, _, tensor in shard
                              if self._table(tensor) is None})
        return [[SavedTensor(key, self._table(tensor) or in_memory(tensor, values[tensor.name]),
                             *place_of(slice_spec)) for key, slice_spec, tensor in shard]
                for shard in shards]

    def _table(self, tensor: Tensor) -> StoredTensor | None:
        read = variable_read(tensor)
        return self._tables.get(read.name) if read else None


class PartOfTable(StoredTensor):
    """The rows of a part of a table in a checkpoint, in the order of the part."""

    def __init__(self, part: StoredPart, tensor: BundleTensor):
        """Takes a part whose rows `_can_stream`."""
        ids = ids_of_part(part.part.part, part.part.layout)
        super().__init__(tensor.dtype, (len(ids), *tensor.shape[1:]))
        is_in_order = same_order(part.part.layout, part.stored)
        self._rows: StoredTensor = tensor if is_in_order else rows_by_id(tensor, part.stored)
        self._first = part_starts(part.part.layout)[part.part.part] if is_in_order else ids.start

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        return self._rows.read_rows(self._first + start, self._first + stop)


def _can_stream(part: StoredPart, tensors: Mapping[str, BundleTensor]) -> bool:
    present = part.part.layout
    return is_table_in(tensors, part) and (present.is_by_id or same_order(present, part.stored))


def read_in_place(checkpoint: str) -> tuple[Mapping[str, BundleTensor], str]:
    """Returns the tensors of a checkpoint by their keys, or why they cannot be read in place.

    Raises:
        ValueError: if the value of the environment variable is not known.
    """
    if given := in_place_choice.choice():
        return {}, f"{in_place_choice.TABLES_IN_PLACE}={given}"
    if "://" in checkpoint:
        return {}, "the checkpoint is in a storage service"
    if sys.byteorder != "little":
        return {}, "this machine is big-endian"
    try:
        return read_bundle(pathlib.Path(checkpoint)), ""
    except (OSError, ValueError) as error:  # TensorFlow's restore raises its own
        return {}, str(error).rstrip(".")


def is_table_in(tensors: Mapping[str, BundleTensor], part: StoredPart) -> bool:
    """Whether a checkpoint has the rows of a table, of float32 and one after another."""
    tensor = tensors.get(part.part.key)
    return (tensor is not None and tensor.dtype == tf.float32.as_datatype_enum
            and tensor.is_in_rows
            and tensor.shape == (part.part.layout.vocabulary_size, part.part.dimension))


@contextlib.contextmanager
def not_replaced(checkpoint: str) -> Iterator[None]:
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
