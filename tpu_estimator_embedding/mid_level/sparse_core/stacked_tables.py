# SPDX-License-Identifier: Apache-2.0
"""Stacks of tables that a program can read, save and restore."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.execution.table_variables import UpdateCount
from tpu_estimator_embedding.mid_level.sparse_core.stack_checkpoint import (
    LAYOUTS,
    Restoration,
    SavedLayouts,
    SavedStack,
    parse_saved_name,
    saved_name,
)
from tpu_estimator_embedding.mid_level.sparse_core.stack_variable import (
    PARAMETERS,
    StackVariable,
    create_slots,
    create_tables,
    initialize_tables,
)
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import Stacks


class TableViews(Mapping[str | TableConfig, Any]):
    """A mapping with stack names and TableConfigs as keys.

    Iteration and length are over stacks. `views[config]` is computed from the table's stack.
    """

    def __init__(self, stacks: Mapping[str, object], tables: Mapping[str, TableConfig],
                 view: Callable[[str], object]):
        """Args:
            stacks: stack name -> value.
            tables: table name -> its TableConfig.
            view: function from the name of a table to its value.
        """
        self._stacks, self._tables, self._view = stacks, tables, view

    def __getitem__(self, key: str | TableConfig) -> Any:
        if isinstance(key, str):
            return self._stacks[key]
        for name, table in self._tables.items():
            if table is key:
                return self._view(name)
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stacks)

    def __len__(self) -> int:
        return len(self._stacks)


class StackedTables(Trackable):
    """Stacks, their variables, and their checkpoints.

    A checkpoint may be restored before the variables are created, and may have another layout.
    """

    def __init__(self, tables: Mapping[str, TableConfig], stacks: Stacks):
        self._tables, self._stacks = tables, stacks
        self._variables: dict[str, dict[str, StackVariable]] = {}
        self._restoration = Restoration(self._variables)
        self._is_built = False
        self._foreign: dict[str, SavedStack] = {}  # stacks of other layouts, by saved name
        self._update_count = UpdateCount(stacks.plan)

    def build(self) -> None:
        """Creates tables and slots; does nothing if they exist.

        Initializers are not called for tables that were restored before. Tables are initialized
        before slots exist, because the initial values of a table are drawn at once.
        """
        if self._is_built:
            return
        if not self._variables:
            # Layouts come first, because reading the rest needs them.
            self._track_trackable(SavedLayouts(self._stacks.stacks.values(), self._restoration),
                                  LAYOUTS)
            self._add({stack: {PARAMETERS: table}
                       for stack, table in create_tables(self._stacks).items()})
        initialize_tables(self._stacks, {stack: slots[PARAMETERS] for stack, slots
                                         in self._variables.items()}, self._restoration.restored)
        self._add(create_slots(self._stacks))
        for child, count in self._update_count.children.items():
            self._track_trackable(count, child)
        self._is_built = True

    def _add(self, created: Mapping[str, Mapping[str, StackVariable]]) -> None:
        """Adds variables, and restores those that a checkpoint was read for before."""
        for stack, slots in created.items():
            self._variables.setdefault(stack, {}).update(slots)
        for stack, slots in created.items():
            for slot, variable in slots.items():
                self._track_trackable(SavedStack(stack, slot, self._restoration, variable),
                                      saved_name(stack, slot))
        for name in list(self._deferred_dependencies):
            foreign = self._lookup_dependency(name)
            if foreign is not None:
                self._handle_deferred_dependencies(name, foreign)

    @property
    def embedding_tables(self) -> TableViews:
        """Stack name -> StackVariable; TableConfig -> `[vocabulary_size, dim]` by id."""
        self._read()
        return self._views(
            {stack: slots[PARAMETERS] for stack, slots in self._variables.items()},
            lambda table, slots: slots[PARAMETERS].read_table(table))

    @property
    def embedding_table_shards(self) -> TableViews:
        """(device, rows) of each chip: of a whole stack, or of a TableConfig's table."""
        self._read()
        return self._views(
            {stack: [(part.device, part.read_value()) for part in slots[PARAMETERS].variables]
             for stack, slots in self._variables.items()},
            lambda table, slots: slots[PARAMETERS].table_shards(table))

    @property
    def variables(self) -> TableViews:
        """"parameters" or slot name -> value as in `embedding_tables`, for each stack or table."""
        self._read()
        return self._views(self._variables, lambda table, slots: {
            slot: variable.read_table(table) for slot, variable in slots.items()})

    def _complete(self) -> None:
        """Applies delayed updates, before tables are read."""

    def _forget(self) -> None:
        """Drops delayed updates, before tables are restored."""

    def _children_of_export(self) -> dict[str, Trackable]:
        """Name -> further variables that exported functions may use."""
        return {}

    def _read(self) -> None:
        self.build()
        self._complete()

    def _views(self, stacks: Mapping[str, object],
               view: Callable[[str, Mapping[str, StackVariable]], object]) -> TableViews:
        return TableViews(stacks, self._tables, lambda table: view(
            table, self._variables[self._stacks.stack_of(table).name]))

    def _trackable_children(self, save_type: str = "checkpoint",
                            **kwargs: Any) -> dict[str, Trackable]:
        self._complete()
        if save_type == "savedmodel":  # programs without this package load it
            return {f"{saved_name(stack, slot)}/part_{part}": variable
                    for stack, slots in self._variables.items() for slot, value in slots.items()
                    for part, variable in enumerate(value.variables)
                    } | self._update_count.children | self._children_of_export()
        return super()._trackable_children(save_type, **kwargs)

    def _lookup_dependency(self, name: str, *args: Any) -> Trackable | None:
        self._forget()
        known = super()._lookup_dependency(name, *args)
        if known is not None or not self._variables:
            return known
        place = parse_saved_name(name, self._variables)
        if place is None or not self._is_foreign(*place):
            return None
        if name not in self._foreign:
            self._foreign[name] = SavedStack(*place, self._restoration, None)
        return self._foreign[name]

    def _is_foreign(self, stack: str, slot: str) -> bool:
        """Whether a saved stack has another layout and the name of a table of this object.

        A checkpoint of `tf.train.Checkpoint(embedding, step=step)` has children that do not.
        """
        return slot not in self._variables.get(stack, {}) and any(
            f"_{table}_" in f"_{stack}_" for table in self._tables)
