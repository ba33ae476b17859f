# SPDX-License-Identifier: Apache-2.0
"""Maps the rows of a saved table to the parts of another layout.

The ids of a part are an arithmetic progression, with step 1 for `div`, and the number of parts as
its step for `mod`. The intersection of two progressions is a progression, so one strided slice
copies the rows from a part of the saved table to a part of the present layout. No ids are listed,
and memory holds one stored part at a time.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from tpu_estimator_embedding.checkpoint.layouts.table_layouts import TableLayout
from tpu_estimator_embedding.plan.partition_strategy import part_sizes


class RowMove(NamedTuple):
    """The rows that one stored part contributes to one part of the present layout.

    Attributes:
        offset: first row of the stored part in the saved table.
        size: number of rows of the stored part.
        source: rows to copy, within the stored part.
        target: their rows in the present part.
    """

    offset: int
    size: int
    source: range
    target: range


def moves(part: int, present: TableLayout, stored: TableLayout) -> Iterator[RowMove]:
    """Yields the moves for one part of the present layout, in the order of the stored parts.

    Args:
        part: index of the part in the present layout.
        present: the layout of the table in this program.
        stored: its layout in the checkpoint, with as many rows.

    >>> for move in moves(0, TableLayout("div", 2, 7), TableLayout("mod", 3, 7)): print(move)
    RowMove(offset=0, size=3, source=range(0, 2), target=range(0, 4, 3))
    RowMove(offset=3, size=2, source=range(0, 1), target=range(1, 2, 3))
    RowMove(offset=5, size=2, source=range(0, 1), target=range(2, 3, 3))
    """
    wanted = _ids(part, present)
    offset = 0
    for stored_part, size in enumerate(part_sizes(stored.vocabulary_size, stored.num_hosts)):
        ids = _ids(stored_part, stored)
        common = _common(wanted, ids)
        if common:
            yield RowMove(offset, size, _rows(common, ids), _rows(common, wanted))
        offset += size


def _ids(part: int, layout: TableLayout) -> range:
    sizes = part_sizes(layout.vocabulary_size, layout.num_hosts)
    if layout.partition_strategy == "mod":
        return range(part, layout.vocabulary_size, len(sizes))
    first = sum(sizes[:part])
    return range(first, first + sizes[part])


def _common(a: range, b: range) -> range:
    not_before = max(0, -((a.start - b.start) // a.step))
    start = next((number for number in a[not_before:not_before + b.step] if number in b), None)
    if start is None:
        return range(0)
    return range(start, min(a.stop, b.stop), math.lcm(a.step, b.step))


def _rows(ids: range, part: range) -> range:
    """Returns the rows of `ids` in the part with the ids `part`."""
    first, last = part.index(ids[0]), part.index(ids[-1])
    return range(first, last + 1, ids.step // part.step)
