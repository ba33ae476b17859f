# SPDX-License-Identifier: Apache-2.0
"""A Saver that copies the rows of tables from the checkpoint that it restored.

An export restores the variables of a graph and saves them again; nothing runs in between. So the
rows of tables go from file to file, in the order that the graph has them. The data files have the
bytes that TensorFlow's Saver would write.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.bundle import BundleTensor
from tpu_estimator_embedding.checkpoint.failed_saves import is_full, op_error
from tpu_estimator_embedding.checkpoint.moved_rows import StoredPart
from tpu_estimator_embedding.checkpoint.saved_step import saved_shards, write_step
from tpu_estimator_embedding.checkpoint.saver_patches import stored_parts
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor, rows_by_id
from tpu_estimator_embedding.checkpoint.table_layouts import part_starts, same_order
from tpu_estimator_embedding.checkpoint.table_saver import (
    TableSaver,
    is_table_in,
    not_replaced,
    tensors_in_place,
)


class ExportSaver(TableSaver):
    """A Saver that restores a checkpoint without its tables, and saves them out of it."""

    def __init__(self) -> None:
        super().__init__(defer_build=False)
        self._checkpoint = ""  # that was restored
        self._copied: Mapping[str, StoredTensor] = {}  # its tables, by the name of a handle's op

    def restore(self, sess: tf.compat.v1.Session, save_path: str) -> None:
        """Restores as the Saver does, but for the tables that `save` will copy.

        Raises:
            RuntimeError: if the checkpoint is replaced meanwhile.
            ValueError: see `saver_patches.restoring`.
        """
        parts = stored_parts(self._saver, sess, save_path)
        with not_replaced(save_path):
            tensors, _ = tensors_in_place(save_path)
            left = [part for part in parts if _can_copy(part, tensors)]
            self._restore_without(left, sess, save_path)
        self._checkpoint = save_path
        self._copied = {part.handle.op.name: CopiedRows(part, tensors[part.table_part.key])
                        for part in left}

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
            with not_replaced(self._checkpoint):
                write_step(pathlib.Path(save_path), saved_shards(self._saver, sess, self._copied))
        except FileNotFoundError as error:
            raise RuntimeError("`checkpoint` must exist until the export ends, got "
                               f"{self._checkpoint}, which was deleted. Export another "
                               "checkpoint.") from error
        except OSError as error:
            advice = ("Free space, or export to another disk." if is_full(error)
                      else "Export to a directory that can be written.")
            raise op_error(error, f"The variables {save_path} were not saved: "
                                  f"{error.strerror or error}. {advice}") from error
        return save_path


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


def _can_copy(part: StoredPart, tensors: Mapping[str, BundleTensor]) -> bool:
    present = part.table_part.layout
    return is_table_in(tensors, part) and (
        present.is_by_id or same_order(present, part.stored))
