# SPDX-License-Identifier: Apache-2.0
"""A Saver that leaves large tables in the checkpoint, where lookups read single rows.

`kernels/src/stored_table.h` says how they are read and kept.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.saver_patches import stored_parts, table_parts
from tpu_estimator_embedding.checkpoint.table_saver import (
    TableSaver,
    is_table_in,
    not_replaced,
    tensors_in_place,
)
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.format_bytes import format_bytes
from tpu_estimator_embedding.types import Tensor

KEPT_BYTES = 256 << 20  # of rows that were looked up, of all tables of a session together

_LOOKUPS = ("TpuEmbeddingLookUp", "TpuEmbeddingJoinedLookUp")
_FEEDS = {"files": (tf.string, [None]), "pieces": (tf.int64, [None, 4]), "order": (tf.int64, [5]),
          "kept_bytes": (tf.int64, [])}


class InPlaceSaver(TableSaver):
    """A Saver for evaluation and prediction, which do not change tables.

    `restore` leaves large ones in the checkpoint, where lookups read single rows, in any layout.
    Only the compiled lookups can do so: a table that another op reads or changes is loaded.

    Args:
        loaded_bytes: the size of all tables together that are not read in place, the smallest
            ones.
    """

    def __init__(self, loaded_bytes: int):
        super().__init__(defer_build=True)
        self._loaded_bytes = loaded_bytes
        self._opening: dict[str, tf.Operation] = {}  # by the name of a handle's op
        self._feeds: dict[str, Tensor] = {}

    def build(self) -> None:
        """Adds the ops of the Saver to the default graph, and one that opens each large table."""
        self._saver.build()
        if self._feeds or self._saver.saver_def is None:
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
        if not self._opening:
            self._saver.restore(sess, save_path)
            return
        parts = stored_parts(self._saver, sess, save_path)
        with not_replaced(save_path):
            tensors, reason = tensors_in_place(save_path)
            left, reason = self._open(sess, parts, tensors, reason)
            self._restore_without(left, sess, save_path)
        if left:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: %s of tables are read in place from %s",
                format_bytes(sum(map(_bytes_of, left))), save_path)
        if reason:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: tables are loaded, not read in place: %s", reason)

    def _open(self, session: tf.compat.v1.Session, parts: Sequence[StoredPart],
              tensors: Mapping[str, BundleTensor], reason: str) -> tuple[list[StoredPart], str]:
        """Returns the parts that lookups read from now on, and why not all large ones."""
        large = _without_smallest(parts, self._loaded_bytes)
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
        if not is_table_in(tensors, part):
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
