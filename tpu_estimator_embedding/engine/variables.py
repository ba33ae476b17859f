# SPDX-License-Identifier: Apache-2.0
"""The variables of tables and their slots, one part for each host."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.constant_initializers import computed_in_session
from tpu_estimator_embedding.engine.part_values import part_value
from tpu_estimator_embedding.engine.placement import THIS_PROCESS, by_part, placed_initializer
from tpu_estimator_embedding.engine.table_slice import TableSlice
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Initializer


class TableNames(NamedTuple):
    """The names of a table and its slots in graphs and checkpoints."""

    table: str
    slots: Mapping[str, str]


class TableVariables(NamedTuple):
    """The variables of one table.

    Attributes:
        parts: resource variables `[rows of host, dim]` float32, one for each host.
        slots: slot name -> variables of the same shapes.
    """

    parts: list[tf.Variable]
    slots: dict[str, list[tf.Variable]]


def create_variables(plan: EmbeddingPlan, names: Mapping[str, TableNames],
                     checkpoint_num_hosts: int | None = None,
                     servers: Sequence[str] = ()) -> dict[str, TableVariables]:
    """Creates every table of the plan, and its slots if it has an optimizer.

    In a graph, `tf.compat.v1.get_variable` creates the parts with a partitioner, so that all parts
    of a table are saved as one tensor, regardless of the number of hosts. In eager execution they
    are plain variables named `{name}/part_{host}`. They are not trainable, because the engine
    updates them, not the model's optimizer.

    The initializer is called for each part with the shape of the part; in eager execution, see
    `part_value`. Constant initializers create the same table for any number of hosts, random
    initializers do not.

    Args:
        plan: the tables.
        names: table name -> names of its variables.
        checkpoint_num_hosts: see `TableSlice`.
        servers: devices of the hosts in a cluster; otherwise all parts are in this process.

    Returns:
        Table name -> variables.
    """
    devices = servers or [THIS_PROCESS] * plan.num_hosts
    variables = {table.name: _create_table(plan, table, names[table.name], devices)
                 for table in plan.tables}
    if not tf.executing_eagerly():
        for table in variables.values():
            for parts in (table.parts, *table.slots.values()):
                _say_how_rows_lie(plan, parts, checkpoint_num_hosts)
    return variables


def default_names(plan: EmbeddingPlan) -> dict[str, TableNames]:
    """Returns names made of table and slot names: `{table}` and `{table}/{slot}`."""
    return {table.name: TableNames(
        table.name, {slot: f"{table.name}/{slot}" for slot in table.slot_initial_values})
        for table in plan.tables}


def _create_table(plan: EmbeddingPlan, table: TablePlan, names: TableNames,
                  devices: Sequence[str]) -> TableVariables:
    sizes = plan.rows_per_host(table)
    slots = {slot: _create_parts(names.slots[slot], table, sizes, tf.constant_initializer(value),
                                 devices)
             for slot, value in table.slot_initial_values.items()}
    return TableVariables(
        _create_parts(names.table, table, sizes, table.initializer, devices), slots)


def _create_parts(name: str, table: TablePlan, sizes: list[int], initializer: Initializer,
                  devices: Sequence[str]) -> list[tf.Variable]:
    if tf.executing_eagerly():
        return [_create_eagerly(f"{name}/part_{part}", initializer, sizes, part, table.dimension,
                                devices[part]) for part in range(len(sizes))]
    device = by_part(name, devices)
    initializer = computed_in_session(initializer)
    if any(name != THIS_PROCESS for name in devices):
        initializer = placed_initializer(initializer, device)
    with tf.compat.v1.get_default_graph().device(device):
        return list(tf.compat.v1.get_variable(
            name, [sum(sizes), table.dimension], tf.float32,
            initializer=initializer,
            partitioner=tf.compat.v1.fixed_size_partitioner(len(sizes)),
            trainable=False, use_resource=True))


def _create_eagerly(name: str, initializer: Initializer, sizes: list[int], part: int,
                    dimension: int, device: str) -> tf.Variable:
    with tf.device(device):  # the value is computed there too
        return tf.Variable(part_value(initializer, sizes, part, dimension), trainable=False,
                           name=name)


def _say_how_rows_lie(plan: EmbeddingPlan, parts: list[tf.Variable],
                      checkpoint_num_hosts: int | None) -> None:
    for number, part in enumerate(parts):
        part._set_save_slice_info(TableSlice(
            part._get_save_slice_info(), partition_strategy=plan.partition_strategy,
            num_hosts=plan.num_hosts, part=number, checkpoint_num_hosts=checkpoint_num_hosts))
