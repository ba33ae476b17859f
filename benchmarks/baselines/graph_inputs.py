# SPDX-License-Identifier: Apache-2.0
"""Batches in memory, as the tensors of a graph.

An iterator passes tensors without a copy. Feeding every step would copy them, and Grappler would
fold constants before the measurement.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.batches import Batch

Feeds = dict[tf.Tensor, np.ndarray]


def fed(array: np.ndarray, feeds: Feeds) -> tf.Tensor:
    """Returns a placeholder, and adds its array to `feeds` for the initializers.

    A constant would be part of the graph, of which TensorFlow makes several copies.
    """
    placeholder = tf.compat.v1.placeholder(array.dtype, array.shape)
    feeds[placeholder] = array
    return placeholder


def next_batch(batches: Sequence[Batch], convert: Callable[[Batch], Any], feeds: Feeds) -> Any:
    """Returns the tensors of `convert(batch)`, repeating the batches forever.

    Run `tf.compat.v1.tables_initializer()` with `feeds` first.
    """
    datasets = [tf.data.Dataset.from_tensors(convert(Batch(
        *([fed(array, feeds) for array in arrays] for arrays in batch)))) for batch in batches]
    dataset = functools.reduce(tf.data.Dataset.concatenate, datasets)
    iterator = tf.compat.v1.data.make_initializable_iterator(dataset.repeat())
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.TABLE_INITIALIZERS,
                                   iterator.initializer)
    return iterator.get_next()


def flat_dataset(batches: Sequence[Batch]) -> tf.data.Dataset:
    """Returns ids and row splits of every table, repeating the batches forever.

    It is for eager programs, in which arrays do not become constants of a graph.
    """
    datasets = [tf.data.Dataset.from_tensors(tuple(zip(batch.ids, batch.splits, strict=True)))
                for batch in batches]
    return functools.reduce(tf.data.Dataset.concatenate, datasets).repeat()


def initialize(session: tf.compat.v1.Session, feeds: Feeds) -> None:
    """Initializes variables and inputs."""
    session.run([tf.compat.v1.global_variables_initializer(),
                 tf.compat.v1.tables_initializer()], feeds)


def fill(value: float) -> Callable[..., tf.Tensor]:
    """Returns an initializer that does not create a constant of the size of a table.

    TensorFlow would fold a plain `tf.fill` into a constant and keep it.
    """
    def initializer(shape: Any, dtype: tf.DType = tf.float32, partition_info: Any = None):
        return tf.fill(shape, tf.random.uniform([], value, value, dtype, seed=0))

    return initializer


def to_sparse(ids: Any, splits: Any) -> tf.SparseTensor:
    """Returns ids as the SparseTensor that `tf.io.parse_example` would return."""
    return tf.RaggedTensor.from_row_splits(ids, splits, validate=False).to_sparse()


def feature(table: int) -> str:
    """Returns the name of the feature of a table; names sort like the numbers."""
    return f"feature_{table:03}"


def table_name(table: int) -> str:
    """Returns the name of a table; names sort like the numbers."""
    return f"table_{table:03}"


def limit_threads(threads: int) -> None:
    """Limits the threads of a process without sessions; 0 means TensorFlow's default."""
    if threads:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
