# SPDX-License-Identifier: Apache-2.0
"""Converts tables to the rows of a stack, piece by piece, and back.

>>> from tpu_estimator_embedding.plan.table_stacking import (
...     SparseCores, StackableTable, stack_tables)
>>> [stack] = stack_tables([StackableTable("a", 5, 1, samples=4)], SparseCores(1, 2))
>>> table = tf.constant([[1.0], [2.0], [3.0], [4.0], [5.0]])
>>> found = list(pieces(stack, "a", lambda ids: tf.gather(table, ids)))
>>> [(piece.begin, piece.rows[:3, 0].numpy().tolist()) for piece in found]
[(0, [1.0, 3.0, 5.0]), (8, [2.0, 4.0, 0.0])]
>>> join_shards(stack.table("a"), [piece.rows for piece in found])[:, 0].numpy().tolist()
[1.0, 2.0, 3.0, 4.0, 5.0]
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.plan.table_stacking import StackedTableLayout, TableStack
from tpu_estimator_embedding.types import Tensor

_VALUES_OF_PIECE = 2 ** 18  # 1 MiB

RowsOf = Callable[[np.ndarray], Tensor]  # ids [n] -> rows [n, dimension] of a table


class Piece(NamedTuple):
    """Consecutive rows of one table on one core.

    Attributes:
        chip: the chip of the core.
        begin: first row, counted on that chip.
        rows: `[n, padded dimension]`, padding included.
    """

    chip: int
    begin: int
    rows: Tensor


def pieces(stack: TableStack, name: str, rows_of: RowsOf) -> Iterator[Piece]:
    """Lays out one table piece by piece, so that a copy of the whole never exists.

    Args:
        stack: the layout of the rows.
        name: name of the table.
        rows_of: ids `[n]` -> their rows `[n, dimension]`. Padding becomes 0.
    """
    layout, cores = stack.table(name), stack.cores
    count = layout.padded_rows // cores.count
    most = max(1, _VALUES_OF_PIECE // layout.padded_dimension)
    for shard, first in itertools.product(range(cores.count), range(0, count, most)):
        chip, core = divmod(shard, cores.num_sc_per_chip)
        last = min(first + most, count)
        ids = layout.ids_of_shard(shard)[first:last]
        rows = rows_of(np.arange(ids.start, ids.stop, ids.step))
        yield Piece(chip, core * stack.rows_per_shard + layout.row_offset + first,
                    _padded(layout, rows, last - first))


def join_shards(layout: StackedTableLayout, shards: Sequence[Tensor]) -> Tensor:
    """Returns the rows of one table by id, `[vocabulary_size, dimension]`.

    Args:
        layout: the layout of the table.
        shards: for each core, the rows of the table that it holds, with their padding.
    """
    count = layout.cores.count
    by_id = tf.stack([shards[(core + layout.rotation) % count] for core in range(count)], 1)
    padded = tf.reshape(by_id, [layout.padded_rows, layout.padded_dimension])
    return padded[:layout.vocabulary_size, :layout.dimension]


def _padded(layout: StackedTableLayout, rows: Tensor, count: int) -> Tensor:
    return tf.pad(rows, [[0, count - rows.shape[0]],
                         [0, layout.padded_dimension - layout.dimension]])
