# SPDX-License-Identifier: Apache-2.0
"""Converts tables to the rows of a stack and back.

>>> from tpu_estimator_embedding.plan.table_stacking import (
...     SparseCores, StackableTable, stack_tables)
>>> [stack] = stack_tables([StackableTable("a", 5, 1, samples=4)], SparseCores(1, 2))
>>> rows = stack_rows(stack, {"a": tf.constant([[1.0], [2.0], [3.0], [4.0], [5.0]])})
>>> rows.shape, rows[:3, 0].numpy().tolist(), rows[8:11, 0].numpy().tolist()
(TensorShape([16, 8]), [1.0, 3.0, 5.0], [2.0, 4.0, 0.0])
>>> unstack_rows(stack, rows)["a"][:, 0].numpy().tolist()
[1.0, 2.0, 3.0, 4.0, 5.0]
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.plan.table_stacking import StackedTableLayout, TableStack
from tpu_estimator_embedding.types import Tensor


def stack_rows(stack: TableStack, tables: Mapping[str, Tensor]) -> Tensor:
    """Returns the rows of a stack, shard after shard: `stack.shape`.

    Args:
        stack: the layout of the rows.
        tables: table name -> `[vocabulary_size, dimension]`. Padding is 0.
    """
    return tf.concat([rows_of_shard(layout, tables[layout.name], shard)
                      for shard in range(stack.cores.count) for layout in stack.tables], 0)


def rows_of_shard(layout: StackedTableLayout, values: Tensor, shard: int) -> Tensor:
    """Returns the rows of one table that one core holds: `[rows in shard, padded dimension]`.

    Args:
        layout: where the rows go.
        values: `[vocabulary_size, dimension]`. Padding becomes 0.
        shard: number of the core.
    """
    count = layout.cores.count
    rows = values[(shard - layout.rotation) % count::count]
    return tf.pad(rows, [[0, layout.padded_rows // count - rows.shape[0]],
                         [0, layout.padded_dimension - layout.dimension]])


def unstack_rows(stack: TableStack, rows: Tensor) -> dict[str, Tensor]:
    """Returns table name -> `[vocabulary_size, dimension]`, without the padding."""
    count = stack.cores.count
    shards = tf.split(
        tf.reshape(rows, [count, stack.rows_per_shard, stack.shape[1]]),
        [layout.padded_rows // count for layout in stack.tables], axis=1)
    return {layout.name: _from_shards(layout, part)
            for layout, part in zip(stack.tables, shards, strict=True)}


def _from_shards(layout: StackedTableLayout, shards: Tensor) -> Tensor:
    by_id = tf.transpose(tf.roll(shards, -layout.rotation, axis=0), [1, 0, 2])
    padded = tf.reshape(by_id, [layout.padded_rows, layout.padded_dimension])
    return padded[:layout.vocabulary_size, :layout.dimension]
