# SPDX-License-Identifier: Apache-2.0
"""Tables as ordinary trainable variables, without the engine: for serving, and for V0."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.structure import named_tables, own_configs
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.config.to_plan import slot_functions, to_plan
from tpu_estimator_embedding.mid_level.execution.deep_copies import deep_copy
from tpu_estimator_embedding.mid_level.sparse_core.stack_checkpoint import (
    LAYOUTS,
    Restoration,
    SavedLayouts,
    SavedStack,
    parse_saved_name,
)
from tpu_estimator_embedding.plan.embedding_plan import TablePlan
from tpu_estimator_embedding.plan.stacked_rows import RowsOf
from tpu_estimator_embedding.plan.table_stacking import SparseCores, StackedTableLayout, TableStack
from tpu_estimator_embedding.types import Structure, Tensor


class PlainTables(tf.__internal__.tracking.Trackable):
    """Variables of tables and slots, created under the current strategy.

    They can be restored from a checkpoint of TPUEmbedding, TPUEmbeddingV2 or another PlainTables.

    Args:
        feature_config: a nested structure of FeatureConfigs.
        optimizer: the optimizer whose slots to create and restore; None means no slots.

    Raises:
        ValueError: if a config or optimizer is of the wrong class, or two tables have the same
            name.
    """

    def __init__(self, feature_config: Structure, optimizer: TableOptimizer | None) -> None:
        # The program may change its own configs, which TensorFlow's functions read here.
        self._feature_config = feature_config
        self._own_config = own_configs(feature_config)
        self._tables = named_tables(feature_config)
        self._plan = to_plan(feature_config, optimizer)
        self._slot_functions = slot_functions(self._tables, optimizer)
        self._variables: dict[str, dict[str, tf.Variable]] = {}
        self._stacked = StackedRestore()

    @property
    def embedding_tables(self) -> dict[TableConfig, tf.Variable]:
        """The variable of each table, `[vocabulary_size, dim]`, by its TableConfig."""
        return {config: self.variables[name]["parameters"]
                for name, config in self._tables.items()}

    def _own_tables(self) -> dict[TableConfig, tf.Variable]:
        """Returns the variable of each table by the TableConfig in this object's copy."""
        return {config: self.variables[name]["parameters"]
                for name, config in named_tables(self._own_config).items()}

    @property
    def variables(self) -> dict[str, dict[str, tf.Variable]]:
        """Table name -> `parameters` or slot name -> variable."""
        self.build()
        return self._variables

    def build(self) -> None:
        """Creates tables and slots; does nothing if they exist."""
        if self._variables:
            return
        with tf.init_scope():
            self._variables = {table.name: self._create(table) for table in self._plan.tables}
        self._stacked.add_tables(self._variables)
        self._restore_stacks()
        for name, variables in self._variables.items():
            for slot, variable in variables.items():
                self._track_trackable(
                    variable, name if slot == "parameters" else f"{name}/{slot}")

    def __deepcopy__(self, memo: dict[int, Any]) -> "PlainTables":
        """Returns an object with its own tables and slots, and the same configs."""
        self.build()
        return deep_copy(
            self, memo, [variable for slots in self._variables.values()
                         for variable in slots.values()],
            shared=(self._plan, self._own_config, *named_tables(self._own_config).values(),
                    *self._tables.values()),
            replaced=((self._deferred_dependencies, {}),))

    def _restore_stacks(self) -> None:
        """Restores values of a TPUEmbeddingV2 checkpoint that was read before `build`."""
        self._maybe_initialize_trackable()
        waiting = list(self._deferred_dependencies)
        if LAYOUTS not in waiting:
            return
        for name in [LAYOUTS, *waiting]:
            if child := self._stacked.child(name):
                self._handle_deferred_dependencies(name, child)

    def _trackable_children(self, *args: Any, **kwargs: Any) -> dict[str, Trackable]:
        self._stacked.begin()  # a restore reads the children first
        return super()._trackable_children(*args, **kwargs)

    def _lookup_dependency(self, name: str, *args: Any) -> Trackable | None:
        # Before build(), restored values are deferred until the variables exist.
        is_restore = bool(args) and bool(self._variables)
        child = self._stacked.child(name) if is_restore else None
        return child or super()._lookup_dependency(name, *args)

    def _create(self, table: TablePlan) -> dict[str, tf.Variable]:
        shape = [table.vocabulary_size, table.dimension]
        parameters = tf.Variable(table.initializer(shape, tf.float32), name=table.name)
        initializers = {slot: tf.constant_initializer(value)
                        for slot, value in table.slot_initial_values.items()}
        if table.name in self._slot_functions:
            slots = self._slot_functions[table.name](parameters, list(initializers),
                                                     list(initializers.values()))
        else:
            slots = {slot: tf.Variable(initializer(shape), trainable=False,
                                       name=f"{table.name}/{slot}")
                     for slot, initializer in initializers.items()}
        return {**slots, "parameters": parameters}


class WholeTable:
    """A variable `[vocabulary_size, dim]` with the interface of a stack of one table.

    Attributes:
        stack: layout of the table alone, on one core.
    """

    def __init__(self, name: str, variable: tf.Variable):
        rows, columns = variable.shape.as_list()
        self._variable = variable
        self.stack = TableStack(name, (StackedTableLayout(name, rows, columns, SparseCores(1, 1)),))

    def assign(self, value: Tensor) -> None:
        """Sets the table from a stack of the same layout."""
        rows, columns = self._variable.shape.as_list()
        self._variable.assign(value[:rows, :columns])

    def write_table(self, name: str, rows_of: RowsOf) -> None:
        """Sets the table from a function of ids; see `StackVariable.write_table`."""
        del name  # there is one table
        self._variable.assign(rows_of(np.arange(self._variable.shape[0])))


class StackedRestore:
    """The stacks of a TPUEmbeddingV2 checkpoint as children of plain tables.

    Such a checkpoint is recognized by its layouts, which TensorFlow and this package save before
    the stacks. A stack can have the name of a table, but its rows are in another order.
    """

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, Any]] = {}
        self._restoration = Restoration(self._tables)
        self._children: dict[str, Trackable] = {}
        self._is_stacked = False

    def add_tables(self, variables: Mapping[str, Mapping[str, tf.Variable]]) -> None:
        """Sets the variables to restore: table name -> slot -> variable."""
        self._tables.update({
            name: {slot: WholeTable(name, variable) for slot, variable in slots.items()}
            for name, slots in variables.items()})

    def begin(self) -> None:
        """Starts to read another checkpoint."""
        self._is_stacked = False

    def child(self, name: str) -> Trackable | None:
        """Returns the object that restores a child of the checkpoint; None without stacks."""
        if name == LAYOUTS:
            self._is_stacked = True
            return self._children.setdefault(name, SavedLayouts((), self._restoration))
        place = parse_saved_name(name, self._tables) if self._is_stacked else None
        if place is None or not any(f"_{table}_" in f"_{place[0]}_" for table in self._tables):
            return None
        return self._children.setdefault(name, SavedStack(*place, self._restoration, None))
