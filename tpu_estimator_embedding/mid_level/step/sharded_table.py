# SPDX-License-Identifier: Apache-2.0
"""A table, or a slot, whose parts lie on several parameter servers."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable


class ShardedTable(ShardedVariable):
    """Parts of consecutive rows as one variable `[vocabulary_size, dim]`.

    Reading all of it sends it to the reader; `variables` has the parts. A checkpoint holds it
    as one tensor, which each server writes its own rows of and any number of servers, or one
    process, restores.

    >>> table = ShardedTable([tf.Variable([[1.0], [2.0]]), tf.Variable([[3.0]])], "words")
    >>> table.shape.as_list(), table[2].numpy().tolist()
    ([3, 1], [3.0])
    """

    def __init__(self, parts: Sequence[tf.Variable], name: str):
        super().__init__(list(parts), name)

    def __getitem__(self, key: Any) -> Any:
        # TensorFlow 2.15 reads the first row of a part from another part.
        row, *rest = key if isinstance(key, tuple) and key else (key,)
        size = self.shape[0]
        if isinstance(row, int) and not isinstance(row, bool) and -size <= row < size:
            return super().__getitem__((slice(row % size, row % size + 1), *rest))[0]
        return super().__getitem__(key)
