# SPDX-License-Identifier: Apache-2.0
"""Vectors that hold the values of all tables of a host, table after table."""

from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def concat_by_table(values: Sequence[Tensor | None], sizes: Sequence[Tensor],
                    num_tables: int) -> Tensor | None:
    """Concatenates such vectors of several tasks to one, in the order of the tasks in each table.

    Args:
        values: the vector of each task; a task without values has None.
        sizes: of each task, the number of its values of each table, `[tables]`.
        num_tables: number of tables.

    Returns:
        A vector; None if no task has values.

    >>> tasks = [tf.constant([1, 2, 3]), tf.constant([4, 5])]
    >>> sizes = [tf.constant([2, 1]), tf.constant([1, 1])]
    >>> concat_by_table(tasks, sizes, num_tables=2).numpy().tolist()
    [1, 2, 4, 3, 5]
    """
    parts = [tf.split(value, of_task, num=num_tables)
             for value, of_task in zip(values, sizes, strict=True) if value is not None]
    return tf.concat([of_task[table] for table in range(num_tables) for of_task in parts],
                     0) if parts else None
