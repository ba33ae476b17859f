# SPDX-License-Identifier: Apache-2.0
"""Saves stacks of tables and restores them into any layout.

A checkpoint contains each stack and slot as one tensor, and the layout of the tables in it. When
a table is restored to another layout, its rows are gathered from the saved tensor piece by piece
and written to the variable that holds the table now.
"""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.checkpoint import tensor_callable
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.sparse_core.stack_variable import (
    PARAMETERS,
    StackVariable,
)
from tpu_estimator_embedding.plan.layout_proto import from_bytes, to_bytes
from tpu_estimator_embedding.plan.table_stacking import StackedTableLayout, TableStack
from tpu_estimator_embedding.types import Tensor

LAYOUTS = "_sparse_core_table_layouts"  # the name that TensorFlow saves layouts under
_VALUE = "VARIABLE_VALUE"

Variables = Mapping[str, Mapping[str, StackVariable]]  # stack name -> slot -> variable


@dataclasses.dataclass
class _Reading:
    """The tensors read so far from one checkpoint, in any order.

    Attributes:
        layouts: stack name -> layout of its tables; empty until the layouts were read.
        received: stacks and slots that were read.
        waiting: tensors that were read before the layouts.
    """

    layouts: dict[str, TableStack] = dataclasses.field(default_factory=dict)
    received: set[tuple[str, str]] = dataclasses.field(default_factory=set)
    waiting: dict[tuple[str, str], Tensor] = dataclasses.field(default_factory=dict)


class Restoration:
    """Assigns saved tensors to variables as soon as their layout is known.

    Tables that the checkpoint does not contain stay unchanged.

    Attributes:
        restored: names of the tables that were restored; slots are not counted.
    """

    def __init__(self, variables: Variables):
        self._variables = variables
        self._reading = _Reading()
        self.restored: set[str] = set()

    def receive_layouts(self, stacks: tuple[TableStack, ...]) -> None:
        """Sets the layouts of a checkpoint; they apply to the tensors restored with it."""
        waiting = {} if self._reading.layouts else self._reading.waiting
        self._reading = _Reading({stack.name: stack for stack in stacks})
        for (stack, slot), value in waiting.items():
            self.receive(stack, slot, value)

    def receive(self, stack: str, slot: str, value: Tensor) -> None:
        """Adds the saved tensor of a stack or slot.

        Raises:
            ValueError: if a table was saved with another vocabulary size or dimension.
        """
        if (stack, slot) in self._reading.received:  # this is another checkpoint
            self._reading = _Reading()
        if not self._reading.layouts:
            self._reading.waiting[stack, slot] = value
            return
        self._reading.received.add((stack, slot))
        layout = self._reading.layouts[stack]
        mine = self._variables.get(stack, {}).get(slot)
        if mine is not None and mine.stack == layout:
            mine.assign(value)
            self._count(slot, (table.name for table in layout.tables))
            return
        saved = {table.name: table for table in layout.tables}
        for variable in (slots[slot] for slots in self._variables.values() if slot in slots):
            tables = [table for table in variable.stack.tables if table.name in saved]
            for table in tables:
                _check_shape(table, saved[table.name])
            for table in tables:
                variable.write_table(table.name, functools.partial(
                    _saved_rows, layout, value, table.name))
            self._count(slot, (table.name for table in tables))

    def _count(self, slot: str, tables: Iterable[str]) -> None:
        if slot == PARAMETERS:
            self.restored.update(tables)


def _check_shape(table: StackedTableLayout, saved: StackedTableLayout) -> None:
    expected, found = ([layout.vocabulary_size, layout.dimension] for layout in (table, saved))
    checks.check(found == expected, f"saved table {table.name!r}",
                 f"of the configured shape {expected}", found)


def _saved_rows(stack: TableStack, value: Tensor, table: str, ids: np.ndarray) -> Tensor:
    """Returns rows `[n, dim]` of a table from the tensor of a saved stack."""
    return tf.gather(value, stack.row(table, ids))[:, :stack.table(table).dimension]


class SavedStack(Trackable):
    """A stack or slot as one tensor in a checkpoint, in this or in another layout."""

    def __init__(self, stack: str, slot: str, restoration: Restoration,
                 variable: StackVariable | None):
        self._stack, self._slot = stack, slot
        self._restoration, self._variable = restoration, variable

    def _serialize_to_tensors(self) -> dict[str, Tensor]:
        variable = self._variable  # None for a stack of another layout, which is only read
        # A restore asks for the dtype only, and need not read the chips.
        return {_VALUE: tf.zeros([0, 0]) if variable is None else tensor_callable.Callable(
            variable.read_value, variable.dtype, variable.variables[0].device)}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Tensor]) -> None:
        self._restoration.receive(self._stack, self._slot, restored_tensors[_VALUE])


class SavedLayouts(Trackable):
    """The layouts of all stacks as a string in a checkpoint."""

    def __init__(self, stacks: Iterable[TableStack], restoration: Restoration):
        self._value, self._restoration = to_bytes(stacks), restoration

    def _serialize_to_tensors(self) -> dict[str, Tensor]:
        return {_VALUE: tf.constant(self._value)}

    def _restore_from_tensors(self, restored_tensors: Mapping[str, Tensor]) -> None:
        self._restoration.receive_layouts(from_bytes(restored_tensors[_VALUE].numpy()))


def saved_name(stack: str, slot: str) -> str:
    """Returns the name of a stack or slot in a checkpoint."""
    return stack if slot == PARAMETERS else f"{stack}/{slot}"


def parse_saved_name(name: str, variables: Variables) -> tuple[str, str] | None:
    """Returns (stack name, slot name); None for an unknown slot."""
    stack, _, slot = name.rpartition("/")
    if not stack:
        return name, PARAMETERS
    return (stack, slot) if any(slot in slots for slots in variables.values()) else None
