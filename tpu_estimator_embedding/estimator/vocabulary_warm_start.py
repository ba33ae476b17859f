# SPDX-License-Identifier: Apache-2.0
"""Warm start of a table whose vocabulary has changed: rows follow their words.

TensorFlow's own warm start reads the rows of a checkpoint in the order of ids, and knows no slots.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.variables import TableSlice
from tpu_estimator_embedding.plan.partition_strategy import saved_rows
from tpu_estimator_embedding.types import Initializer, Tensor


class VocabInfo(Protocol):
    """What this package uses of `tf.estimator.VocabInfo`."""

    new_vocab: str
    new_vocab_size: int
    num_oov_buckets: int
    old_vocab: str
    old_vocab_size: int  # below 1: all words of the file
    backup_initializer: Initializer | None
    axis: int


def check_vocabulary(info: VocabInfo, name: str, vocabulary_size: int) -> None:
    """Raises ValueError unless the words of a VocabInfo fill a table.

    Args:
        info: the vocabularies.
        name: name of the table.
        vocabulary_size: its rows.
    """
    argument = f"var_name_to_vocab_info[{name!r}]"
    checks.check(info.axis in (0, None), f"axis of {argument}", "0 for a table", info.axis)
    rows = info.new_vocab_size + info.num_oov_buckets
    checks.check(rows == vocabulary_size, argument,
                 f"have new_vocab_size + num_oov_buckets equal to the {vocabulary_size} rows of "
                 "the table", rows)


def former_ids(info: VocabInfo) -> np.ndarray:
    """Returns the former id of every row of the new table, -1 for rows of new words.

    Args:
        info: the vocabularies: files with a word in every line.
    """
    former = _words(info.old_vocab, info.old_vocab_size)
    position = {word: number for number, word in reversed(list(enumerate(former)))}
    words = _words(info.new_vocab, info.new_vocab_size)
    checks.check(len(words) == info.new_vocab_size, "new_vocab",
                 f"a file of at least new_vocab_size={info.new_vocab_size} lines", len(words))
    ids = [position.get(word, -1) for word in words]
    return np.array(ids + [-1] * info.num_oov_buckets, np.int64)


def start_from(parts: Sequence[tf.Variable], former: np.ndarray, read: Callable[[], Any],
               new_rows: Initializer | None) -> None:
    """Initializes the parts of a table, or of a slot, from the rows of a former one.

    Args:
        parts: the variables of all hosts.
        former: see `former_ids`.
        read: returns the former values, row i those of id i. It is called in the session.
        new_rows: initializer of the rows of new words; None for that of the parts.
    """
    for part in parts:
        place = part._get_save_slice_info()
        assert isinstance(place, TableSlice)
        in_order = np.argsort(saved_rows(len(former), place.num_hosts, place.partition_strategy))
        first = int(place.var_offset[0])
        ids = former[in_order[first:first + int(place.var_shape[0])]]
        shape = part.shape.as_list()
        initial = part.initial_value if new_rows is None else new_rows(shape, tf.float32)
        part._initializer_op = part.assign(_merged(ids, read, initial), read_value=False)


def _merged(ids: np.ndarray, read: Callable[[], Any], initial: Tensor) -> Tensor:
    def merge(values: np.ndarray) -> np.ndarray:
        known = ids >= 0
        values = values.copy()
        values[known] = read()[ids[known]]
        return values

    merged = tf.numpy_function(merge, [initial], tf.float32)
    merged.set_shape(initial.shape)
    return merged


def _words(path: str, size: int) -> list[str]:
    with tf.io.gfile.GFile(path) as file:
        words = [line.rstrip("\n") for line in file]
    return words[:size] if size > 0 else words
