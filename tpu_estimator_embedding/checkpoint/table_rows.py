# SPDX-License-Identifier: Apache-2.0
"""Reads the rows of saved tables in the order of ids, for any layout.

With `mod`, the ids start ... stop - 1 are one run of rows in each part. So a single pass, one block
of ids at a time, converts a table from one layout to another.
"""

import itertools
from collections.abc import Iterator

import numpy as np

from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import StoredTensor
from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.plan.partition_strategy import part_sizes


def part_starts(layout: TableLayout) -> list[int]:
    """Returns the first saved row of each part, and the number of rows.

    >>> part_starts(TableLayout("mod", 3, 13))
    [0, 5, 9, 13]
    """
    return [0, *itertools.accumulate(part_sizes(layout.vocabulary_size, layout.num_hosts))]


class RowsById(StoredTensor):
    """A saved table whose rows are read by id."""

    def __init__(self, saved: StoredTensor, layout: TableLayout):
        super().__init__(saved.dtype, saved.shape)
        self._saved, self._starts = saved, part_starts(layout)

    def read_rows(self, start: int, stop: int) -> np.ndarray:
        parts = len(self._starts) - 1
        rows = np.empty((stop - start, *self.shape[1:]), self.numpy_dtype)
        for part in range(parts):
            first, last = _rows_below(start, part, parts), _rows_below(stop, part, parts)
            if first < last:
                begin = self._starts[part]
                rows[first * parts + part - start::parts] = self._saved.read_rows(
                    begin + first, begin + last)
        return rows


def rows_by_id(saved: StoredTensor, layout: TableLayout) -> StoredTensor:
    """Returns a view of a saved table whose row i is id i."""
    return saved if layout.is_by_id else RowsById(saved, layout)


def rows_by_part(layout: TableLayout, start: int,
                 rows: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yields (part, rows) for the parts that contain some of the ids from `start` on.

    >>> for part, rows in rows_by_part(TableLayout("mod", 3, 13), 4, np.array([4, 5, 6, 7])):
    ...     print(part, rows)
    0 [6]
    1 [4 7]
    2 [5]
    """
    starts = part_starts(layout)
    parts = len(starts) - 1
    for part in range(parts):
        if layout.partition_strategy == "mod":
            found = rows[(part - start) % parts::parts]
        else:
            found = rows[max(0, starts[part] - start):max(0, starts[part + 1] - start)]
        if len(found):
            yield part, found


def _rows_below(bound: int, part: int, parts: int) -> int:
    """Returns the number of rows of the part whose ids are below the bound."""
    return max(0, -((part - bound) // parts))
