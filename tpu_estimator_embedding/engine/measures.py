# SPDX-License-Identifier: Apache-2.0
"""What an update says of itself where it is asked to, and the marks of rows that were updated.

Raw numbers, as both backends have them at hand; `statistics` makes something of them.
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

    A run is a row with its ids in the step; one row may have several, one after another.

    Attributes:
        sums: `[tables, 5]` float64, over all runs: of the squared gradients after the
            multiplier, of the same after clipping, of 1 for every run that was clipped; over
            all rows: of squared differences that the update made, of squares before it.
        covered: `[tables]` int64, rows that were ever updated.
        row_norms: `[runs]` float32, Euclidean norm of the row after the update.
        row_ids: `[runs]` integers, row of this host's part.
        run_ends: `[runs]` integers; ids of the run and those before it in its table.
        sizes: `[tables, 3]` int64: ids, runs, and gradients, of which each core has its own
            where cores do not accumulate them.
    """

    sums: Tensor
    covered: Tensor
    row_norms: Tensor
    row_ids: Tensor
    run_ends: Tensor
    sizes: Tensor


class StepMeasures(NamedTuple):
    """All tables in one step; what hosts have is empty or 0 where nothing was to be measured.

    Attributes:
        hosts: one for each host.
        given_counts: `[tables]` int64, ids before any were dropped.
        multipliers: `[tables]` float32.
        learning_rates: `[tables]` float32.
    """

    hosts: tuple[HostMeasures, ...]
    given_counts: Tensor
    multipliers: Tensor
    learning_rates: Tensor


def tables_of_host(plan: EmbeddingPlan, host: int) -> list[TablePlan]:
    """The tables that have a part on the host."""
    return [table for table in plan.tables if host < len(plan.rows_per_host(table))]


def stack_values(values: Mapping[str, Tensor | float], tables: list[TablePlan]) -> Tensor:
    """The value of each table, 1 where there is none, `[tables]` float32."""
    return tf.stack([tf.cast(values.get(table.name, 1.0), tf.float32) for table in tables])


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
    """Sets the marks of the rows whose slots are not as they were initially, unsets the others.

    Of a table without slots nothing is known; none of its marks is set.
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
