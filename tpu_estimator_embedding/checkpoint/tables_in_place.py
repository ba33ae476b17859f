# SPDX-License-Identifier: Apache-2.0
"""A Saver that leaves large tables in the checkpoint, where lookups read single rows of them.

Evaluation and prediction do not change tables. So a session can start without loading them, and
hold the rows that it has looked up instead. `kernels/src/stored_table.h` says how these are read
and kept. Rows are found in any layout of the checkpoint: `div` and `mod`, with any number of hosts.

Only the compiled lookups can read such a table. If a graph has another op that reads or changes it,
it is loaded. The environment variable TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE=off loads all.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.savers import (
    TableByTable,
    restore,
    restore_parts,
    stored_parts,
    table_parts,
)
from tpu_estimator_embedding.checkpoint.streamed_export import (
    is_table_in,
    not_replaced,
    read_in_place,
)
from tpu_estimator_embedding.checkpoint.table_layouts import ids_of_part
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.format_bytes import format_bytes
from tpu_estimator_embedding.types import Tensor

KEPT_BYTES = 256 << 20  # of rows that were looked up, of all tables of a session together

_LOOKUPS = ("TpuEmbeddingLookUp", "TpuEmbeddingJoinedLookUp")
_FEEDS = {"files": (tf.string, [None]), "pieces": (tf.int64, [None, 4]), "order": (tf.int64, [5]),
          "kept_bytes": (tf.int64, [])}


class InPlaceSaver(tf.compat.v1.train.Saver):
    """Restores small tables and all else, and lets lookups read large tables in the checkpoint.

    Args:
        loaded_bytes: the size of all small tables together, at most.
    """

    def __init__(self, loaded_bytes: int) -> None:
        """Creates what is to become a Saver of all variables of a graph, as Scaffolds do."""
        super().__init__(sharded=True, allow_empty=True, defer_build=True, builder=TableByTable())
        self._loaded_bytes = loaded_bytes
        self._opening: dict[str, tf.Operation] = {}  # by the name of a handle's op
        self._feeds: dict[str, Tensor] = {}

    def build(self) -> None:
        """Adds the ops of a Saver to the default graph, and one that opens each part of a table."""
        is_built = bool(self._feeds)
        super().build()
        if is_built or self.saver_def is None:
            return
        with tf.name_scope("open_tables"), tf.device("/device:CPU:0"):
            self._feeds = {name: tf.compat.v1.placeholder(dtype, shape, name=name)
                           for name, (dtype, shape) in _FEEDS.items()}
            for handle, part in table_parts(self, tf.compat.v1.get_default_graph()):
                self._opening[handle.op.name] = load.native_ops().tpu_embedding_open_stored_table(
                    table=handle, **self._feeds, dim=part.dimension)

    def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
        """Restores as Savers do, but for large tables, whose files it opens.

        Raises:
            RuntimeError: if the checkpoint is replaced meanwhile.
            ValueError: see `savers.restore`.
        """
        if not self._opening:
            restore(self, sess, save_path)
            return
        parts = stored_parts(self, sess, save_path)
        with not_replaced(save_path):
            opened, reason = self._open(sess, save_path, parts)
            restore_parts(self, sess, save_path, parts, without=opened)
        if opened:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: %s of tables are read in place from %s",
                format_bytes(sum(map(_bytes_of, opened))), save_path)
        if reason:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: tables are loaded, not read in place: %s", reason)

    def _open(self, session: tf.compat.v1.Session, checkpoint: str, parts: Sequence[StoredPart]
              ) -> tuple[list[StoredPart], str]:
        """Returns the parts that lookups read from now on, and why not all large ones."""
        tensors, reason = read_in_place(checkpoint)
        large = _without_smallest(parts, self._loaded_bytes)
        opened: list[StoredPart] = []
        for part in large if tensors else ():
            why_not = self._why_not(session, part, tensors)
            if not why_not:
                fields = _fields(part, tensors[part.part.key])
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

    def _why_not(self, session: tf.compat.v1.Session, part: StoredPart,
                 tensors: Mapping[str, BundleTensor]) -> str:
        if not is_table_in(tensors, part):
            return f"{part.part.key} is not stored in rows of float32"
        if getattr(session, "sess_str", b""):
            return "the session runs in another process"
        user = self._other_user(part.handle)
        return f"{user} reads or changes {part.part.key}" if user else ""

    def _other_user(self, handle: Tensor) -> str:
        """Returns the name of an op of the program that uses a table, empty if there is none."""
        own = (self.saver_def.restore_op_name.rpartition("/")[0] + "/", f"{handle.op.name}/")
        waiting = [handle]
        while waiting:
            for op in waiting.pop().consumers():
                is_own = op.name.startswith(own) or op is self._opening[handle.op.name]
                if op.type in ("ReadVariableOp", "Identity"):
                    waiting += op.outputs  # an op of the variable, which does nothing by itself
                elif not is_own and op.type not in (*_LOOKUPS, "VarIsInitializedOp"):
                    return str(op.name)
        return ""


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
    ids = ids_of_part(part.part.part, part.part.layout)
    stored = part.stored
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
    return 4 * len(ids_of_part(part.part.part, part.part.layout)) * part.part.dimension
