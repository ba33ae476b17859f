# SPDX-License-Identifier: Apache-2.0
"""Which host holds which row: the `div` and `mod` partitions of a table.

Both strategies split a table of V rows into n = min(V, hosts) parts whose sizes differ by
at most one. `div` keeps consecutive ids together; `mod` assigns ids round-robin, so that part
p holds p, p + n, p + 2n, ... and the saved table is a permutation of the ids.

>>> part_sizes(13, 5)
[3, 3, 3, 2, 2]
>>> shard_of_id(11, 13, 5, "div"), shard_of_id(11, 13, 5, "mod")
((4, 0), (1, 2))
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from tpu_estimator_embedding.types import Tensor

PARTITION_STRATEGIES = ("div", "mod")


def part_sizes(vocabulary_size: int, num_hosts: int) -> list[int]:
    """Returns the rows of each part, the same under both strategies."""
    parts = min(vocabulary_size, num_hosts)
    quotient, remainder = divmod(vocabulary_size, parts)
    return [quotient + (part < remainder) for part in range(parts)]


def shard_of_id(ids: Any, vocabulary_size: int, num_hosts: int, strategy: str) -> tuple[Any, Any]:
    """Returns `(part, row in that part)` of every id.

    Args:
        ids: row ids in [0, vocabulary_size): an int, a NumPy array or an integer tensor.
        vocabulary_size: rows of the whole table.
        num_hosts: hosts that share the table.
        strategy: "div" or "mod".

    Returns:
        Two values of the shape and kind of `ids`.
    """
    parts = min(vocabulary_size, num_hosts)
    if strategy == "mod":
        return ids % parts, ids // parts
    quotient, remainder = divmod(vocabulary_size, parts)
    boundary = remainder * (quotient + 1)  # smaller ids are in the longer parts
    beyond = ids - boundary
    is_array = isinstance(ids, int | np.ndarray | np.integer)
    where = np.where if is_array else _tensor_where()
    is_in_longer_part = ids < boundary
    part = where(is_in_longer_part, ids // (quotient + 1), remainder + beyond // quotient)
    row = where(is_in_longer_part, ids % (quotient + 1), beyond % quotient)
    return (int(part), int(row)) if is_array and not np.ndim(ids) else (part, row)


def _tensor_where() -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    import tensorflow as tf  # imported here, because checkpoint tools run without TensorFlow
    return tf.where


def ids_of_rows(rows: Any, part: int, vocabulary_size: int, num_hosts: int, strategy: str) -> Any:
    """Returns the ids that the rows of one part hold: the inverse of `shard_of_id`.

    >>> ids_of_rows(2, 1, 13, 5, "mod"), ids_of_rows(2, 1, 13, 5, "div")
    (11, 5)
    """
    sizes = part_sizes(vocabulary_size, num_hosts)
    return rows * len(sizes) + part if strategy == "mod" else rows + sum(sizes[:part])


def saved_rows(vocabulary_size: int, num_hosts: int, strategy: str) -> np.ndarray:
    """Returns, for every id, its row in the saved table: `[vocabulary_size]` int64.

    The saved table is the concatenation of the parts, so `div` gives the identity.
    """
    ids = np.arange(vocabulary_size, dtype=np.int64)
    part, row = shard_of_id(ids, vocabulary_size, num_hosts, strategy)
    offsets = np.cumsum([0, *part_sizes(vocabulary_size, num_hosts)])
    return np.asarray(offsets[part] + row)
