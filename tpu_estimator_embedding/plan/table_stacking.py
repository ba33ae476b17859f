# SPDX-License-Identifier: Apache-2.0
"""The layout of tables on SparseCores: rows are sharded over cores, similar tables are stacked.

Row i of a table lives on core `(i + rotation) mod N` of N, as row `row_offset + i div N` of
that core's shard. Tables of the same padded width and group share a stack; each begins below
the tables before it, on another chip, so that the frequent low ids of different tables are on
different cores.

>>> cores = SparseCores(num_chips=2)
>>> [stack] = stack_tables([StackableTable("a", 100, 6, samples=16),
...                         StackableTable("b", 64, 8, samples=16)], cores)
>>> stack.name, stack.rows_per_shard, stack.shape
('a_b', 24, (192, 8))
>>> stack.table("b").place(5), stack.row("b", 5)  # core 1 holds it in row 16 + 0
((1, 16), 40)
"""

import dataclasses
from collections.abc import Hashable, Iterable
from typing import TypeVar

import numpy as np

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Tensor

Ids = TypeVar("Ids", int, np.ndarray, Tensor)

_LANES = 8  # rows of a shard and columns of a table are padded to a multiple of it
_BYTES_PER_VALUE = 4


@dataclasses.dataclass(frozen=True)
class SparseCores:
    """The SparseCores that tables are spread over: `num_chips` × `num_sc_per_chip`.

    Raises:
        ValueError: if a count is not an int of at least 1, or their product not a power of two.
    """

    num_chips: int = 1
    num_sc_per_chip: int = 4

    def __post_init__(self) -> None:
        checks.check_positive_int("num_chips", self.num_chips)
        checks.check_positive_int("num_sc_per_chip", self.num_sc_per_chip)
        checks.check(self.count & (self.count - 1) == 0, "num_chips * num_sc_per_chip",
                     "a power of two", self.count)

    @property
    def count(self) -> int:
        """N, the number of all cores, which is the number of shards of every table."""
        return self.num_chips * self.num_sc_per_chip


@dataclasses.dataclass(frozen=True)
class StackableTable:
    """The properties of a table that determine its stack.

    Attributes:
        name: unique among the tables.
        vocabulary_size: rows.
        dimension: columns.
        samples: rows of activations that one chip computes from the table in a step.
        group: tables share a stack only if their groups are equal.
    """

    name: str
    vocabulary_size: int
    dimension: int
    samples: int
    group: Hashable = None


@dataclasses.dataclass(frozen=True)
class StackLimits:
    """The limits of a stack; a table that exceeds them has its own stack.

    Attributes:
        activation_bytes: activations of a stack on one core, in one step.
        shard_bytes: rows of a stack on one chip.
        rows: rows of a stack in all.
    """

    activation_bytes: int = 2 * 1024 ** 2
    shard_bytes: int = 2 * 1024 ** 3
    rows: int = 2 ** 31 - 1


@dataclasses.dataclass(frozen=True)
class StackedTableLayout:
    """The layout of one table's rows in a stack.

    Attributes:
        name: the table.
        vocabulary_size: rows without padding.
        dimension: columns without padding.
        cores: the cores that the table is sharded over.
        row_offset: rows of every shard that belong to tables before this one.
        rotation: the core that holds row 0.
    """

    name: str
    vocabulary_size: int
    dimension: int
    cores: SparseCores
    row_offset: int = 0
    rotation: int = 0

    @property
    def padded_rows(self) -> int:
        """Rows with padding: the same number on every core, a multiple of 8."""
        return round_up(self.vocabulary_size, _LANES * self.cores.count)

    @property
    def padded_dimension(self) -> int:
        """Columns with padding, a multiple of 8."""
        return round_up(self.dimension, _LANES)

    def place(self, ids: Ids) -> tuple[Ids, Ids]:
        """Returns `(shard, row in that shard)` of ids: an int, an array or a tensor."""
        count = self.cores.count
        return (ids + self.rotation) % count, ids // count + self.row_offset

    def ids_of_shard(self, shard: int) -> range:
        """Returns the ids whose rows a core holds, in the order of the rows."""
        count = self.cores.count
        return range((shard - self.rotation) % count, self.vocabulary_size, count)


@dataclasses.dataclass(frozen=True)
class TableStack:
    """Tables that one variable holds, shard after shard.

    Attributes:
        name: the names of the tables, joined by `_`.
        tables: in stacking order.
    """

    name: str
    tables: tuple[StackedTableLayout, ...]

    @property
    def cores(self) -> SparseCores:
        """The cores that the stack is sharded over."""
        return self.tables[0].cores

    @property
    def rows_per_shard(self) -> int:
        """Rows of the stack that one core holds."""
        return self.shape[0] // self.cores.count

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the stack, padding included."""
        return sum(table.padded_rows for table in self.tables), self.tables[0].padded_dimension

    def table(self, name: str) -> StackedTableLayout:
        """Returns the layout of the table `name`."""
        return next(table for table in self.tables if table.name == name)

    def row(self, name: str, ids: Ids) -> Ids:
        """Returns the rows of the stack, its shards concatenated, that hold the ids."""
        shard, row = self.table(name).place(ids)
        return shard * self.rows_per_shard + row


def stack_tables(tables: Iterable[StackableTable], cores: SparseCores, *,
                 limits: StackLimits | None = None,
                 stacking: bool = True) -> tuple[TableStack, ...]:
    """Assigns every table, in the order of names, to the first stack with space for it.

    Args:
        tables: in any order.
        cores: the cores to shard them over.
        limits: the maximum size of a stack.
        stacking: whether to stack at all; otherwise every table is a separate stack.

    Returns:
        The stacks, in the order of their first tables.
    """
    limits = limits or StackLimits()
    stacks: list[list[StackableTable]] = []
    for table in sorted(tables, key=lambda table: table.name):
        fitting = [stack for stack in stacks if stacking and _is_like(stack[0], table)
                   and _fits([*stack, table], cores, limits)]
        if fitting:
            fitting[0].append(table)
        else:
            stacks.append([table])
    return tuple(_lay_out(stack, cores) for stack in stacks)


def _is_like(first: StackableTable, table: StackableTable) -> bool:
    return first.group == table.group and (
        round_up(first.dimension, _LANES) == round_up(table.dimension, _LANES))


def _fits(stack: list[StackableTable], cores: SparseCores, limits: StackLimits) -> bool:
    row_bytes = round_up(stack[0].dimension, _LANES) * _BYTES_PER_VALUE
    rows = sum(round_up(table.vocabulary_size, _LANES * cores.count) for table in stack)
    samples = sum(table.samples for table in stack)
    return (samples * row_bytes < limits.activation_bytes * cores.num_sc_per_chip
            and rows * row_bytes < limits.shard_bytes * cores.num_chips and rows <= limits.rows)


def _lay_out(stack: list[StackableTable], cores: SparseCores) -> TableStack:
    layouts, row_offset = [], 0
    for position, table in enumerate(stack):
        layouts.append(StackedTableLayout(
            table.name, table.vocabulary_size, table.dimension, cores, row_offset,
            rotation=position * cores.num_sc_per_chip % cores.count))
        row_offset += layouts[-1].padded_rows // cores.count
    return TableStack("_".join(table.name for table in stack), tuple(layouts))


def round_up(value: int, multiple: int) -> int:
    """Returns the least multiple that is at least a value."""
    return -(-value // multiple) * multiple
