# SPDX-License-Identifier: Apache-2.0
"""The row layouts of saved tables: their record in a checkpoint, and the way from one to another.

A table that several hosts share is saved as one tensor, the concatenation of its parts. With `mod`
the rows of this tensor are a permutation of the ids, which TensorFlow's format does not record;
reading it with another number of hosts would return wrong rows. Therefore checkpoints of this
package contain one more tensor, a scalar string under the key `TABLE_LAYOUTS_KEY`, with this JSON:

    {"version": 1, "tables": {"<key of a table or slot>": {
        "partition_strategy": "mod", "num_hosts": 4, "vocabulary_size": 1000}}}

>>> layout = TableLayout("mod", num_hosts=4, vocabulary_size=1000)
>>> parse_table_layouts(format_table_layouts({"words": layout})) == {"words": layout}
True

The tools read rows in the order of ids (`stored_tensor.RowsById`) and write them to parts
(`rows_by_part`). With `mod`, the ids start ... stop - 1 are one run of rows in each part, so that a
single pass, one block of ids at a time, converts a table. A program that restores a table copies
the rows between stored and present parts (`moves`).
"""

import dataclasses
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.plan.partition_strategy import part_sizes

TABLE_LAYOUTS_KEY = "tpu_estimator_embedding/table_layouts"

_VERSION = 1
_FORMAT = '{"version": 1, "tables": {key: {"partition_strategy", "num_hosts", "vocabulary_size"}}}'


@dataclasses.dataclass(frozen=True)
class TableLayout:
    """The order of the rows of one saved table or slot.

    Raises:
        ValueError: if a field has an invalid value.
    """

    # "div": row i of the saved tensor is id i. "mod": first the ids 0, n, 2n, ..., then
    # 1, n + 1, 2n + 1, ..., with n = min(num_hosts, vocabulary_size).
    partition_strategy: str
    num_hosts: int
    vocabulary_size: int  # rows of the whole tensor

    def __post_init__(self) -> None:
        checks.check_one_of("partition_strategy", ("div", "mod"), self.partition_strategy)
        checks.check_positive_int("num_hosts", self.num_hosts)
        checks.check_positive_int("vocabulary_size", self.vocabulary_size)

    @property
    def is_by_id(self) -> bool:
        """Whether row i of the saved tensor is id i."""
        return self.partition_strategy == "div" or min(self.num_hosts, self.vocabulary_size) == 1


def format_table_layouts(layouts: Mapping[str, TableLayout]) -> str:
    """Returns the JSON for a checkpoint, with keys in alphabetical order."""
    tables = {key: dataclasses.asdict(layouts[key]) for key in sorted(layouts)}
    return json.dumps({"version": _VERSION, "tables": tables})


def parse_table_layouts(text: str | bytes) -> dict[str, TableLayout]:
    """Returns key of a table or slot -> its layout.

    Args:
        text: the value of the tensor `TABLE_LAYOUTS_KEY`.

    Raises:
        ValueError: if `text` is not this JSON, or was written by a newer version.
    """
    try:
        content = json.loads(text)
    except ValueError:  # invalid JSON or UTF-8
        content = None
    checks.check(isinstance(content, dict) and isinstance(content.get("tables"), dict),
                 TABLE_LAYOUTS_KEY, f"JSON of the format {_FORMAT}", text)
    checks.check(content.get("version") == _VERSION, f"version of {TABLE_LAYOUTS_KEY}",
                 f"{_VERSION}", content.get("version"),
                 "A newer tpu_estimator_embedding wrote this checkpoint: update to read it.")
    return {key: _layout(key, entry) for key, entry in content["tables"].items()}


def _layout(key: str, entry: Any) -> TableLayout:
    fields = {field.name for field in dataclasses.fields(TableLayout)}
    checks.check(isinstance(entry, dict) and entry.keys() == fields,
                 f"layout of {key!r} in {TABLE_LAYOUTS_KEY}",
                 f"an object with {', '.join(sorted(fields))}", entry)
    return TableLayout(**entry)


def part_starts(layout: TableLayout) -> list[int]:
    """Returns the first saved row of each part, and the number of rows.

    >>> part_starts(TableLayout("mod", 3, 13))
    [0, 5, 9, 13]
    """
    return [0, *itertools.accumulate(part_sizes(layout.vocabulary_size, layout.num_hosts))]


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


def same_order(one: TableLayout, other: TableLayout) -> bool:
    """Whether two layouts save the rows of a table in the same order.

    >>> same_order(TableLayout("mod", 4, 3), TableLayout("mod", 5, 3))
    True
    """
    if one.is_by_id or other.is_by_id:
        return one.is_by_id and other.is_by_id
    rows = one.vocabulary_size
    return min(one.num_hosts, rows) == min(other.num_hosts, rows)


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

    The ids of a part are an arithmetic progression, with step 1 for `div`, and the number of parts
    as its step for `mod`. The intersection of two progressions is a progression, so one strided
    slice copies the rows from a stored part to a present one. No ids are listed, and memory holds
    one stored part at a time.

    Args:
        part: index of the part in the present layout.
        present: the layout of the table in this program.
        stored: its layout in the checkpoint, with as many rows.

    >>> for move in moves(0, TableLayout("div", 2, 7), TableLayout("mod", 3, 7)): print(move)
    RowMove(offset=0, size=3, source=range(0, 2), target=range(0, 4, 3))
    RowMove(offset=3, size=2, source=range(0, 1), target=range(1, 2, 3))
    RowMove(offset=5, size=2, source=range(0, 1), target=range(2, 3, 3))
    """
    wanted = ids_of_part(part, present)
    offset = 0
    for stored_part, size in enumerate(part_sizes(stored.vocabulary_size, stored.num_hosts)):
        ids = ids_of_part(stored_part, stored)
        common = _common_ids(wanted, ids)
        if common:
            yield RowMove(offset, size, _rows_of(common, ids), _rows_of(common, wanted))
        offset += size


def ids_of_part(part: int, layout: TableLayout) -> range:
    """Returns the ids of the rows of one part, in the order of its rows.

    >>> ids_of_part(1, TableLayout("mod", 3, 13)), ids_of_part(1, TableLayout("div", 3, 13))
    (range(1, 13, 3), range(5, 9))
    """
    sizes = part_sizes(layout.vocabulary_size, layout.num_hosts)
    if layout.partition_strategy == "mod":
        return range(part, layout.vocabulary_size, len(sizes))
    first = sum(sizes[:part])
    return range(first, first + sizes[part])


def _common_ids(a: range, b: range) -> range:
    not_before = max(0, -((a.start - b.start) // a.step))
    start = next((number for number in a[not_before:not_before + b.step] if number in b), None)
    if start is None:
        return range(0)
    return range(start, min(a.stop, b.stop), math.lcm(a.step, b.step))


def _rows_of(ids: range, part: range) -> range:
    """Returns the rows of `ids` in the part with the ids `part`."""
    first, last = part.index(ids[0]), part.index(ids[-1])
    return range(first, last + 1, ids.step // part.step)
