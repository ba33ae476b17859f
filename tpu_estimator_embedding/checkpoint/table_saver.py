# SPDX-License-Identifier: Apache-2.0
"""Savers that never hold a table twice: what those of exports and of tables in place share.

What such a Saver does not do in pieces, the file `checkpoint`, the graph, and which checkpoints are
deleted, is the work of TensorFlow's. That one gets a stand-in for the session, which leaves tables
out where it runs its op that restores.
"""

import contextlib
import itertools
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.training import saver as saver_module
from tensorflow.python.training.saving import saveable_object

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor, read_bundle
from tpu_estimator_embedding.checkpoint.files import index_file
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.table_saveable import TableSaveable
from tpu_estimator_embedding.types import Tensor


class TableSaver:
    """A Saver of all variables of the default graph, which may leave out tables as it restores.

    Everything else is as of TensorFlow's Saver. For subclasses: `_saver` and `_restore_without`.
    """

    def __init__(self, *, defer_build: bool):
        self._saver = tf.compat.v1.train.Saver(
            sharded=True, allow_empty=True, defer_build=defer_build, builder=_TableByTable())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._saver, name)

    def _restore_without(self, parts: Sequence[StoredPart], sess: tf.compat.v1.Session,
                         save_path: str) -> None:
        """Restores as the Saver does, but for some parts of tables, which stay as they are."""
        self._saver.restore(_WithoutTables(sess, parts) if parts else sess, save_path)


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


def tensors_in_place(checkpoint: str) -> tuple[Mapping[str, BundleTensor], str]:
    """Returns the tensors of a checkpoint by their keys, or why they cannot be read in place."""
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
    tensor = tensors.get(part.table_part.key)
    return (tensor is not None and tensor.dtype == tf.float32.as_datatype_enum
            and tensor.is_in_rows
            and tensor.shape == (part.table_part.layout.vocabulary_size, part.table_part.dimension))


@contextlib.contextmanager
def not_replaced(checkpoint: str) -> Iterator[None]:
    """Raises RuntimeError if the files of a checkpoint were replaced within the context.

    It may be deleted: what was opened keeps its content.
    """
    before = _identity(checkpoint)
    yield
    after = _identity(checkpoint)
    if after not in (None, before):
        raise RuntimeError(f"`checkpoint` must not change while it is restored, got {checkpoint}, "
                           "which was replaced. Restore it again.")


def _identity(checkpoint: str) -> tuple[int, ...] | None:
    try:
        found = index_file(pathlib.Path(checkpoint)).stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
