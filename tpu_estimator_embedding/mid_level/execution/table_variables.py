# SPDX-License-Identifier: Apache-2.0
"""The variables of tables and slots: one set for all replicas, under any strategy."""

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute.sharded_variable import ShardedVariable
from tensorflow.python.eager import context
from tensorflow.python.trackable import data_structures
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.placement import THIS_PROCESS, beside
from tpu_estimator_embedding.engine.variables import TableVariables, create_variables, default_names
from tpu_estimator_embedding.mid_level.config.optimizer import TableOptimizer
from tpu_estimator_embedding.mid_level.config.optimizers import SlotVariableCreationFn
from tpu_estimator_embedding.mid_level.config.table_config import TableConfig
from tpu_estimator_embedding.mid_level.config.to_plan import slot_functions
from tpu_estimator_embedding.mid_level.execution.servers import servers_of
from tpu_estimator_embedding.multipliers.schedule import Constant
from tpu_estimator_embedding.ops.autograph import not_converted
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Initializer, Tensor


class ShardedTable(ShardedVariable):
    """Parts of consecutive rows as one variable `[vocabulary_size, dim]`.

    Reading all of it sends it to the reader; `variables` has the parts. A checkpoint holds it
    as one tensor, which each server writes its own rows of and any number of servers, or one
    process, restores.

    >>> table = ShardedTable([tf.Variable([[1.0], [2.0]]), tf.Variable([[3.0]])], "words")
    >>> table.shape.as_list(), table[2].numpy().tolist()
    ([3, 1], [3.0])
    """

    def __init__(self, parts: Sequence[tf.Variable], name: str):
        super().__init__(list(parts), name)

    def __getitem__(self, key: Any) -> Tensor:
        # TensorFlow 2.15 reads the first row of a part from another part.
        row, *rest = key if isinstance(key, tuple) and key else (key,)
        size = self.shape[0]
        if isinstance(row, int) and not isinstance(row, bool) and -size <= row < size:
            return super().__getitem__((slice(row % size, row % size + 1), *rest))[0]
        return super().__getitem__(key)


def create_tables(plan: EmbeddingPlan, slot_functions: Mapping[str, SlotVariableCreationFn],
                  strategy: tf.distribute.Strategy | None = None,
                  creator: Callable[..., tf.Variable] | None = None) -> dict[str, TableVariables]:
    """Creates the variables of a plan, once, outside of any strategy and any function.

    Keras 2 only compiles models whose variables belong to the current strategy, and its optimizers
    only create slots for such variables. So the variables report this strategy as theirs. In a
    cluster, part h of each table is on server h.

    Args:
        plan: the tables.
        slot_functions: table name -> its slot_variable_creation_fn.
        strategy: the strategy under which the tables are used; None for the default one.
        creator: for `tf.variable_creator_scope`; None creates a tf.Variable.

    Returns:
        Table name -> variables.

    Raises:
        ValueError: if a slot_variable_creation_fn does not return the expected slots.
    """
    with outside_strategies(), (
            tf.variable_creator_scope(creator) if creator else contextlib.nullcontext()):
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


def _unwrapped(slot: tf.Variable | data_structures.NoDependency) -> tf.Variable:
    """Returns the variable of a slot; functions may return it as NoDependency."""
    return slot.value if isinstance(slot, data_structures.NoDependency) else slot


class UpdateCount:
    """Counts updates, if a multiplier depends on the step.

    Attributes:
        children: name in checkpoints -> scalar int64 variable; empty if nothing is counted.
    """

    def __init__(self, plan: EmbeddingPlan, device: str = THIS_PROCESS):
        """Creates the counter for a plan, outside of strategies and functions.

        Args:
            plan: the tables.
            device: device of the counter; in a cluster, a server.
        """
        self.children: dict[str, tf.Variable] = {}
        if any(table.multiplier and not isinstance(table.multiplier, Constant)
               for table in plan.tables):
            with outside_strategies(), tf.device(device):
                self.children["multiplier_step"] = tf.Variable(
                    0, trainable=False, dtype=tf.int64, name="multiplier_step")

    def next(self) -> Tensor:
        """Increments the counter; returns its previous value, scalar int64."""
        count = self.children.get("multiplier_step")
        if count is None:
            return tf.constant(0, tf.int64)
        before = tf.identity(count.read_value())
        with tf.control_dependencies([before]):
            count.assign_add(1, read_value=False)
        return before


class TrackedTables(tf.__internal__.tracking.Trackable):
    """Tables and slots; delayed updates are applied before tables are read or saved.

    For subclasses:

    * `_plan`, `_tables` (name -> TableConfig), `_strategy` and `_update_count` are what the
      constructor got or made of it.
    * `_build_tables` returns the variables and creates them first if need be. `_variables` and
      `_saved`, their names in checkpoints, are empty until then. `_building` is the lock to hold
      while anything else is created.
    * Override `_complete` and `_forget` if updates are delayed.
    """

    def __init__(self, plan: EmbeddingPlan, tables: Mapping[str, TableConfig],
                 optimizer: TableOptimizer | None, strategy: tf.distribute.Strategy | None):
        """Stores the configuration; does not create variables.

        Args:
            plan: the tables.
            tables: table name -> its TableConfig.
            optimizer: the optimizer of the tables that do not set their own, or None.
            strategy: the strategy under which the tables are used; None for the default one.
        """
        self._tables, self._strategy = dict(tables), strategy
        self._plan = plan
        self._update_count = UpdateCount(plan, *servers_of(strategy)[:1])
        self._slot_functions = slot_functions(self._tables, optimizer)
        self._variables: dict[str, TableVariables] | None = None
        self._saved: dict[str, tf.Variable | ShardedTable] = {}
        self._building = threading.RLock()  # threads may make the first calls at the same time
        for child, variable in self._update_count.children.items():
            self._track_trackable(variable, child)

    @property
    @not_converted
    def embedding_tables(self) -> dict[TableConfig, tf.Variable | ShardedTable]:
        """The variable of each table, `[vocabulary_size, dim]`, by its TableConfig.

        On several parameter servers it is a `tf.distribute` ShardedVariable of their parts.
        """
        self._build_tables()
        self._complete_eagerly()
        return {config: self._saved[name] for name, config in self._tables.items()}

    def _complete(self) -> None:
        """Applies delayed updates, before tables are read."""

    def _forget(self) -> None:
        """Drops delayed updates, before tables are restored."""

    def _build_tables(self) -> dict[str, TableVariables]:
        """Returns the variables by table name; creates them if they do not exist."""
        with self._building:
            if self._variables is None:
                self._variables = create_tables(
                    self._plan, self._slot_functions, self._strategy)
                self._saved = children(self._variables)
                for name, variable in self._saved.items():
                    self._track_trackable(variable, name)
            return self._variables

    def _complete_eagerly(self) -> None:
        with tf.init_scope():
            self._complete()

    # TensorFlow reads the children whenever it saves a checkpoint. Asynchronous checkpoints trace
    # a function that copies them.

    def _trackable_children(self, save_type: str = "checkpoint",
                            **options: Any) -> dict[str, Trackable]:
        self._complete_eagerly()
        return super()._trackable_children(save_type, **options)

    def _copy_trackable_to_cpu(self, object_map: Mapping[Trackable, Trackable]) -> None:
        self._complete()

    # TensorFlow's saver calls these two methods of every `tpu_embedding_v2.TPUEmbedding`, which is
    # this class after install(). There is no TPU to copy tables from or to.

    def _retrieve_variables(self) -> None:
        self._complete_eagerly()

    def _load_variables(self) -> None:
        """Does nothing, because tables are trained in the restored variables."""

    def _lookup_dependency(self, *args: Any, **kwargs: Any) -> Trackable | None:
        self._forget()
        return super()._lookup_dependency(*args, **kwargs)
