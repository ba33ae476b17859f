# SPDX-License-Identifier: Apache-2.0
"""Batches that wait in memory, as the tensors of a graph.

An iterator hands tensors over without a copy. Feeding would copy, and constants would let
Grappler work ahead of the clock.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from benchmarks.batches import Batch


def next_batch(batches: Sequence[Batch], convert: Callable[[Batch], Any]) -> Any:
    """Returns the tensors of `convert(batch)`, batch after batch, again and again.

    `tf.compat.v1.tables_initializer()` has to be run first.
    """
    dataset = tf.data.Dataset.from_tensors(convert(batches[0]))
    for batch in batches[1:]:
        dataset = dataset.concatenate(tf.data.Dataset.from_tensors(convert(batch)))
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset.repeat())
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS,
                                   iterator.initializer)
    return iterator.get_next()


def to_sparse(ids: Any, splits: Any) -> tf.SparseTensor:
    """Returns ids as the SparseTensor that `tf.io.parse_example` would make of them."""
    return tf.RaggedTensor.from_row_splits(ids, splits, validate=False).to_sparse()


def feature(table: int) -> str:
    """Returns the name of the feature of a table; they sort as their numbers do."""
    return f"feature_{table:03}"
