# SPDX-License-Identifier: Apache-2.0
"""The measures of an update, and the marks of rows that were updated.

These are raw numbers that both backends have available; `statistics` computes statistics from them.
"""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor

Marks = Mapping[str, list[tf.Variable]]  # table name -> `[rows of part]` bool of each part


class HostMeasures(NamedTuple):
    """The tables of one host in one step, in the order of the plan.

    A run is a row with its ids in the step; a row may have several consecutive runs.

    Attributes:
        sums: `[tables, 5]` float64. Over all runs: the sum of squared gradients after the
            multiplier, the same after clipping, and the number of clipped runs. Over all rows:
            the sum of squared changes by the update, and of squares before it.
        covered: `[tables]` int64, number of rows that were ever updated.
        row_norms: `[runs]` float32, Euclidean norm of the row after the update.
        row_ids: `[runs]` integers, row of this host's part.
        run_ends: `[runs]` integers, number of ids in the run and the runs before it in its table.
        sizes: `[tables, 3]` int64: number of ids, runs and gradients; without gradient
            accumulation, each core has its own gradients.
    """

    sums: Tensor
    covered: Tensor
    row_norms: Tensor
    row_ids: Tensor
    run_ends: Tensor
    sizes: Tensor


class StepMeasures(NamedTuple):
    """The measures of all tables in one step; those of hosts are empty or 0 if not measured.

    Attributes:
        hosts: the measures of each host.
        given_counts: `[tables]` int64, number of ids before any were dropped.
        multipliers: `[tables]` float32.
        learning_rates: `[tables]` float32.
    """

    hosts: tuple[HostMeasures, ...]
    given_counts: Tensor
    multipliers: Tensor
    learning_rates: Tensor


def stack_values(values: Mapping[str, Tensor | float], tables: list[TablePlan]) -> Tensor:
    """Returns the value of each table, 1 by default: `[tables]` float32."""
    found = [values.get(table.name, 1.0) for table in tables]
    if not any(tf.is_tensor(value) for value in found):
        return tf.constant(found, tf.float32, [len(found)])
    return tf.stack([tf.cast(value, tf.float32) for value in found])


def create_marks(variables: Mapping[str, TableVariables]) -> dict[str, list[tf.Variable]]:
    """Creates a mark for every row, all unset; in a graph, as local variables.

    They are not saved: `find_trained_rows` sets those of a restored table.
    """
    def create(name: str, part: tf.Variable) -> tf.Variable:
        rows = part.shape[0]
        with tf.device(part.device):
            if tf.executing_eagerly():
                return tf.Variable(tf.zeros([rows], tf.bool), trainable=False)
            return tf.compat.v1.get_variable(
                f"embedding_marks/{name}", [rows], tf.bool,
                initializer=tf.compat.v1.zeros_initializer(), trainable=False, use_resource=True,
                collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES])

    return {name: [create(f"{name}/part_{number}", part)
                   for number, part in enumerate(table.parts)]
            for name, table in variables.items()}


def find_trained_rows(plan: EmbeddingPlan, variables: Mapping[str, TableVariables],
                      marks: Marks) -> list[tf.Operation]:
    """Sets the marks of rows whose slots differ from their initial values, and clears the others.

    For tables without slots, no marks are set.
    """
    writes = []
    for name, of_table in marks.items():
        initial = plan.table_by_name[name].slot_initial_values
        for host, mark in enumerate(of_table):
            trained = tf.zeros(mark.shape, tf.bool)
            for slot, parts in variables[name].slots.items():
                changed = tf.not_equal(parts[host], tf.cast(initial[slot], tf.float32))
                trained = tf.logical_or(trained, tf.reduce_any(changed, 1))
            writes.append(mark.assign(trained, read_value=False))
    return writes


_HOST_SPECS = HostMeasures(*(tf.TensorSpec(shape, dtype) for shape, dtype in (
    ([None, 5], tf.float64), ([None], tf.int64), ([None], tf.float32), ([None], tf.int64),
    ([None], tf.int64), ([None, 3], tf.int64))))


class MeasureRecorder:
    """Enables measuring of updates while `is_due` is set, and stores the last measures.

    Create it in eager execution, outside of strategies.

    Attributes:
        plan: the tables.
        marks: the marks of their rows.
        is_due: whether to measure the next update.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables]):
        self.plan, self._variables = plan, variables
        self.marks = create_marks(variables)
        self.is_due = tf.Variable(False, trainable=False)
        num_hosts = max(len(table.parts) for table in variables.values())
        of_tables = [tf.TensorSpec([None], dtype) for dtype in (
            tf.int64, tf.float32, tf.float32)]
        self._values = tf.nest.map_structure(_variable_like, StepMeasures(
            tuple(_HOST_SPECS for _ in range(num_hosts)), *of_tables))
        self._count = tf.Variable(0, trainable=False, dtype=tf.int64)

    @property
    def handles(self) -> list[Tensor]:
        """The handles of all variables that an update uses."""
        return [variable.handle for variable in self.children.values()]

    @property
    def children(self) -> dict[str, tf.Variable]:
        """Name -> variable, for an object whose exported functions may record measures."""
        marks = [mark for parts in self.marks.values() for mark in parts]
        return {f"measures_{number}": variable for number, variable in enumerate((
            *marks, self.is_due, self._count, *tf.nest.flatten(self._values)))}

    def find_trained_rows(self) -> None:
        """Sets the marks of rows according to their slots."""
        find_trained_rows(self.plan, self._variables, self.marks)

    def record(self, measures: StepMeasures) -> tf.Operation | None:
        """Stores measures if they are due; returns the op to wait for, in a graph."""
        def keep() -> Tensor:
            writes = [variable.assign(tf.cast(value, variable.dtype), read_value=False)
                      for variable, value in zip(tf.nest.flatten(self._values),
                                                 tf.nest.flatten(measures), strict=True)]
            writes.append(self._count.assign_add(1, read_value=False))
            with tf.control_dependencies([] if tf.executing_eagerly() else writes):
                return tf.constant(True)

        with tf.control_dependencies(tf.nest.flatten(measures)):
            kept = tf.cond(self.is_due, keep, lambda: tf.constant(False))
        return None if tf.executing_eagerly() else kept.op

    def take(self) -> StepMeasures | None:
        """Returns the measures as arrays; None if nothing was measured since the last call."""
        if not self._count.numpy():
            return None
        self._count.assign(0)
        return tf.nest.map_structure(lambda variable: variable.numpy(), self._values)


def _variable_like(spec: tf.TensorSpec) -> tf.Variable:
    return tf.Variable(tf.zeros([size or 0 for size in spec.shape], spec.dtype), trainable=False,
                       shape=spec.shape)
