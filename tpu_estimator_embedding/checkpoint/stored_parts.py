# SPDX-License-Identifier: Apache-2.0
"""Parts of tables whose rows can be read where they are in the files of a checkpoint.

TensorFlow stores the values of a row one after another. The environment variable
TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE=off says that they are not.
"""

import contextlib
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle import BundleTensor, read_bundle
from tpu_estimator_embedding.checkpoint.files import index_file
from tpu_estimator_embedding.checkpoint.moved_rows import TablePart
from tpu_estimator_embedding.checkpoint.table_layouts import TableLayout
from tpu_estimator_embedding.types import Tensor

TABLES_IN_PLACE = "TPU_ESTIMATOR_EMBEDDING_TABLES_IN_PLACE"


class StoredPart(NamedTuple):
    """A part of a table, and where its rows are.

    Attributes:
        handle: the handle of the variable.
        part: the part.
        stored: the layout of the table in the checkpoint.
    """

    handle: Tensor
    part: TablePart
    stored: TableLayout


def read_in_place(checkpoint: str) -> Mapping[str, BundleTensor]:
    """Returns the tensors of a checkpoint by their keys; none if they cannot be read in place.

    Raises:
        ValueError: if the value of the environment variable is not known.
    """
    choice = os.environ.get(TABLES_IN_PLACE, "")
    if choice:
        checks.check_one_of(TABLES_IN_PLACE, ("off",), choice, "Unset it to read them in place.")
    if choice or "://" in checkpoint or sys.byteorder != "little":
        return {}
    try:
        return read_bundle(pathlib.Path(checkpoint))
    except (OSError, ValueError):  # TensorFlow's restore raises its own
        return {}


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
