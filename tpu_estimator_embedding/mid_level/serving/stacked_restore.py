# SPDX-License-Identifier: Apache-2.0
"""Restores plain tables from a checkpoint of TPUEmbeddingV2, which contains stacks of tables."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.mid_level.sparse_core.stack_checkpoint import (
    LAYOUTS,
    Restoration,
    SavedLayouts,
    SavedStack,
    parse_saved_name,
)
from tpu_estimator_embedding.plan.table_stacking import (
    SparseCores,
    TableLayout,
    TableStack,
    unstack_rows,
)
from tpu_estimator_embedding.types import Tensor


class WholeTable:
    """A variable `[vocabulary_size, dim]` with the interface of a stack of one table.

    Attributes:
        stack: layout of the table alone, on one core.
    """

    def __init__(self, name: str, variable: tf.Variable):
        rows, columns = variable.shape.as_list()
        self._name, self._variable = name, variable
        self.stack = TableStack(name, (TableLayout(name, rows, columns, SparseCores(1, 1)),))

    def assign(self, value: Tensor) -> None:
        """Sets the table from a stack of the same layout."""
        self.assign_tables(unstack_rows(self.stack, value))

    def assign_tables(self, tables: Mapping[str, Tensor]) -> None:
        """Sets the table from `[vocabulary_size, dim]`."""
        self._variable.assign(tables[self._name])


class StackedRestore:
    """The stacks of a TPUEmbeddingV2 checkpoint as children of plain tables.

    Such a checkpoint is recognized by its layouts, which TensorFlow and this package save before
    the stacks. A stack can have the name of a table, but its rows are in another order.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Any]] = {}
        self._restoration = Restoration(self._tables)
        self._children: dict[str, Any] = {}
        self._is_stacked = False

    def add_tables(self, variables: Mapping[str, Mapping[str, tf.Variable]]) -> None:
        """Sets the variables to restore: table name -> slot -> variable."""
        self._tables.update({
            name: {slot: WholeTable(name, variable) for slot, variable in slots.items()}
            for name, slots in variables.items()})

    def begin(self) -> None:
        """Starts to read another checkpoint."""
        self._is_stacked = False

    def child(self, name: str) -> Any:
        """Returns the object that restores a child of the checkpoint; None without stacks."""
        if name == LAYOUTS:
            self._is_stacked = True
            return self._children.setdefault(name, SavedLayouts((), self._restoration))
        place = parse_saved_name(name, self._tables) if self._is_stacked else None
        if place is None or not any(f"_{table}_" in f"_{place[0]}_" for table in self._tables):
            return None
        return self._children.setdefault(name, SavedStack(*place, self._restoration, None))
