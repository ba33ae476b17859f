# SPDX-License-Identifier: Apache-2.0
"""The variables of tables and slots: one set for all replicas, under any strategy."""

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.trackable import data_structures

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.partitioned_embedding import create_variables, default_names
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.mid_level.config.optimizers import SlotVariableCreationFn
from tpu_estimator_embedding.mid_level.step.servers import servers_of
from tpu_estimator_embedding.mid_level.step.sharded_table import ShardedTable
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Initializer


def create_tables(plan: EmbeddingPlan, slot_functions: Mapping[str, SlotVariableCreationFn],
                  strategy: tf.distribute.Strategy | None = None) -> dict[str, TableVariables]:
    """Creates the variables of a plan, once, outside of any strategy and any function.

    Keras 2 only compiles models whose variables belong to the current strategy, and its optimizers
    only create slots for such variables. So the variables report this strategy as theirs. In a
    cluster, part h of each table is on server h.

    Args:
        plan: the tables.
        slot_functions: table name -> its slot_variable_creation_fn.
        strategy: the strategy under which the tables are used; None for the default one.

    Returns:
        Table name -> variables.

    Raises:
        ValueError: if a slot_variable_creation_fn does not return the expected slots.
    """
    with outside_strategies():
        bare = dataclasses.replace(plan, tables=tuple(
            dataclasses.replace(table, optimizer=None) if table.name in slot_functions else table
            for table in plan.tables))
        variables = create_variables(bare, default_names(bare), servers=servers_of(strategy))
        if strategy is not None:
            for parts, slots in variables.values():
                for variable in (*parts, *itertools.chain(*slots.values())):
                    variable._distribute_strategy = strategy
        for table in plan.tables:
            if table.name in slot_functions and table.slot_initial_values:
                variables[table.name] = variables[table.name]._replace(
                    slots=_slots(table, variables[table.name].parts, slot_functions[table.name]))
    return variables


@contextlib.contextmanager
def outside_strategies() -> Iterator[None]:
    """Executes eagerly and outside of any strategy scope or replica.

    A strategy is active in one graph only, so a new graph has none.
    """
    with (tf.init_scope(), tf.Graph().as_default(), context.eager_mode(),
          tf.name_scope("")):  # otherwise the caller's scope would prefix every name
        yield


def children(variables: Mapping[str, TableVariables]) -> dict[str, tf.Variable | ShardedTable]:
    """Returns name in checkpoints -> variable: `words` for a table, `words/momenta` for a slot."""
    return {name: parts[0] if len(parts) == 1 else ShardedTable(parts, name)
            for table, (parts, slots) in variables.items()
            for name, parts in ((table, parts),
                                *((f"{table}/{slot}", slots[slot]) for slot in slots))}


def _slots(table: TablePlan, parts: list[tf.Variable],
           create: SlotVariableCreationFn) -> dict[str, list[tf.Variable]]:
    names = list(table.slot_initial_values)
    initializers: list[Initializer] = [
        tf.constant_initializer(value) for value in table.slot_initial_values.values()]
    slots: dict[str, list[tf.Variable]] = {name: [] for name in names}
    for part in parts:
        with beside(part):
            created = create(part, names, initializers)
        if isinstance(created, Mapping):
            created = {name: _unwrapped(slot) for name, slot in created.items()}
        checks.check(
            isinstance(created, Mapping) and set(created) == set(names) and
            all(created[name].shape == part.shape for name in names),
            f"slot_variable_creation_fn of table {table.name!r}",
            f"a function that returns a variable {part.shape} for each of {names}", created)
        for name in names:
            slots[name].append(created[name])
    return slots


def _unwrapped(slot: Any) -> Any:
    """Returns the variable of a slot; functions may return it as NoDependency."""
    return slot.value if isinstance(slot, data_structures.NoDependency) else slot
