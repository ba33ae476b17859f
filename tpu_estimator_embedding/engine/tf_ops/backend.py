# SPDX-License-Identifier: Apache-2.0
"""The backend of TensorFlow's own ops: several ops per table and host.

    enqueued features ─ to_sharded_ids ─▶ ShardedIds ─ lookup ─▶ stacked activations
    stacked gradients ─ sum_duplicates ─▶ RowGradients ─ RowOptimizer ─▶ rows, slots ─ write
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, StepGradients
from tpu_estimator_embedding.engine.measures import HostMeasures, Marks, StepMeasures, stack_values
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.tf_ops.measured_rows import concatenated, measure, rows_if
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import (
    HostIds,
    ShardedIds,
    to_sharded_ids,
    with_unique_ids,
)
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.ops.gradients import RowGradients, sum_duplicates
from tpu_estimator_embedding.ops.lookup import gather_rows, lookup
from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.partition_strategy import ids_of_rows
from tpu_estimator_embedding.types import Tensor

Ids = Mapping[str, ShardedIds]  # by table name
Variables = Mapping[str, TableVariables]


def look_up(plan: EmbeddingPlan, variables: Variables, ids: Ids) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32."""
    return {table.name: _look_up_table(table, variables[table.name], ids[table.name])
            for table in plan.tables if table.name in variables}


def update(plan: EmbeddingPlan, variables: Variables, ids: Ids,
           step_gradients: StepGradients) -> list[tf.Operation]:
    """Returns the writes to all tables and slots."""
    return [write for table in plan.tables for host in range(len(variables[table.name].parts))
            for write in update_part(
                plan, table, variables[table.name], host, ids[table.name].hosts[host],
                ids[table.name].row_counts,
                scaled_gradient(table, ids[table.name].row_scales, step_gradients),
                step_gradients.learning_rates[table.name], step_gradients.step)[0]]


def measured_update(plan: EmbeddingPlan, variables: Variables, ids: Ids,
                    step_gradients: StepGradients, marks: Marks,
                    measures: Tensor) -> StepMeasures:
    """Updates all tables, marks the rows, and measures them if `measures` is true."""
    hosts: list[list[HostMeasures]] = []
    for table in plan.tables:
        of_table = ids[table.name]
        gradient = scaled_gradient(table, of_table.row_scales, step_gradients)
        for host, host_ids in enumerate(of_table.hosts):
            hosts += [[]] if host == len(hosts) else []
            hosts[host].append(measured_update_of_part(
                plan, table, variables[table.name], host, host_ids, of_table.row_counts, gradient,
                step_gradients.learning_rates[table.name], step_gradients.step,
                marks[table.name][host], measures))
    return StepMeasures(
        tuple(concatenated(of_host) for of_host in hosts),
        tf.stack([ids[table.name].given_count for table in plan.tables]),
        stack_values(step_gradients.multipliers, list(plan.tables)),
        stack_values(step_gradients.learning_rates, list(plan.tables)))


def row_counts(plan: EmbeddingPlan, ids: Ids) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids[table.name].row_counts for table in plan.tables}


def are_for_training(ids: Ids) -> bool:
    """Whether the ids were prepared for training."""
    return all(host.unique_ids is not None for table in ids.values() for host in table.hosts)


TF_OPS = Backend(to_sharded_ids, look_up, update, measured_update, row_counts, are_for_training)


def _look_up_table(table: TablePlan, variables: TableVariables, ids: ShardedIds) -> Tensor:
    num_rows = ids.num_rows
    sums = []
    for part, host in zip(variables.parts, ids.hosts, strict=True):
        with beside(part):
            sums.append(lookup(part, host.ids, host.rows, host.weights, num_rows,
                               table.quantization))
    total = sums[0] if len(sums) == 1 else tf.add_n(sums)
    return total if ids.row_scales is None else total * ids.row_scales[:, tf.newaxis]


def scaled_gradient(table: TablePlan, row_scales: Tensor | None,
                    step_gradients: StepGradients) -> Tensor:
    """Returns the gradient `[num_rows, dim]` of the sums of a table's rows."""
    gradient = step_gradients.gradients[table.name]
    if table.name in step_gradients.multipliers:
        gradient *= step_gradients.multipliers[table.name]
    return gradient if row_scales is None else gradient * row_scales[:, tf.newaxis]


def update_part(plan: EmbeddingPlan, table: TablePlan, variables: TableVariables, host: int,
                ids: HostIds, row_counts: Tensor, gradient: Tensor,
                learning_rate: Tensor | float, step: Tensor
                ) -> tuple[list[tf.Operation], list[RowGradients]]:
    """Updates a part of a table and its slots.

    Args:
        plan, table, variables, host: identify the part.
        ids: the ids of the part.
        row_counts: `[replicas]` int64, rows of activations of each replica.
        gradient: the scaled gradient of these rows.
        learning_rate, step: scalars.

    Returns:
        The writes, and the gradients of each round of updates.
    """
    slots = {name: parts[host] for name, parts in variables.slots.items()}
    updates: list[tf.Operation] = []
    gradients = []
    for round_ids in _rounds(plan, table, ids, row_counts, host):
        with tf.control_dependencies(updates), beside(variables.parts[host]):
            gradients.append(sum_duplicates(
                gradient, round_ids.rows, round_ids.weights, round_ids.unique_ids,
                round_ids.positions))
            updates = update_rows(table.training_optimizer, variables.parts[host], slots,
                                  gradients[-1], learning_rate, step)
    return updates, gradients


def measured_update_of_part(plan: EmbeddingPlan, table: TablePlan, variables: TableVariables,
                            host: int, ids: HostIds, row_counts: Tensor, gradient: Tensor,
                            learning_rate: Tensor | float, step: Tensor, marks: tf.Variable,
                            measures: Tensor) -> HostMeasures:
    """Updates like `update_part`, marks the rows, and measures them if `measures` is true."""
    part = variables.parts[host]
    with beside(part):
        before = rows_if(measures, part, ids.unique_ids)
    with tf.control_dependencies([before]):
        writes, gradients = update_part(plan, table, variables, host, ids, row_counts, gradient,
                                        learning_rate, step)
    with tf.control_dependencies(writes), beside(part):
        return measure(measures, part, marks, ids, before, gradients,
                       table.training_optimizer.gradient_limits)


def _rounds(plan: EmbeddingPlan, table: TablePlan, ids: HostIds, row_counts: Tensor,
            host: int) -> list[HostIds]:
    """Returns the rounds of the update: all ids, or without accumulation one core per row."""
    num_cores = tf.compat.dimension_value(row_counts.shape[0])
    if table.training_optimizer.use_gradient_accumulation or num_cores == 1:
        return [ids]
    row_ids = ids_of_rows(ids.unique_ids, host, table.vocabulary_size, plan.num_hosts,
                          plan.partition_strategy)
    return core_by_core(ids, row_ids % num_cores, row_counts)


def core_by_core(ids: HostIds, home_cores: Tensor, row_counts: Tensor) -> list[HostIds]:
    """Splits the ids of a step into rounds, in each of which a row has one core's ids.

    Args:
        ids: the ids of all cores.
        home_cores: `[u]` int64, the core that each of `ids.unique_ids` lives on.
        row_counts: `[cores]` int64, rows of activations of each core.

    Returns:
        One part of the ids for each core's distance from home, to be applied in order.

    >>> ids = with_unique_ids(HostIds(tf.constant([4, 5, 4]), tf.constant([0, 1, 2]), None,
    ...                               None, None))
    >>> rounds = core_by_core(ids, home_cores=tf.constant([0, 1], tf.int64),
    ...                       row_counts=tf.constant([2, 2], tf.int64))
    >>> [part.ids.numpy().tolist() for part in rounds]  # core 0 has [4, 5], core 1 has [4]
    [[4], [5, 4]]
    """
    num_cores = tf.compat.dimension_value(row_counts.shape[0])
    ends = tf.cumsum(row_counts)
    cores = tf.searchsorted(ends, tf.cast(ids.rows, ends.dtype), side="right",
                            out_type=tf.int64)
    distances = (cores - tf.gather(home_cores, ids.positions)) % num_cores
    return [_at(ids, tf.where(tf.equal(distances, distance))[:, 0])
            for distance in range(num_cores)]


def _at(ids: HostIds, kept: Tensor) -> HostIds:
    weights = None if ids.weights is None else tf.gather(ids.weights, kept)
    return with_unique_ids(HostIds(tf.gather(ids.ids, kept), tf.gather(ids.rows, kept),
                                   weights, None, None))


def update_rows(optimizer: RowOptimizer, table: tf.Variable, slots: Mapping[str, tf.Variable],
                row_gradients: RowGradients, learning_rate: Tensor,
                step: Tensor) -> list[tf.Operation]:
    """Updates the touched rows of one part of a table, and its slots, in place.

    Args:
        optimizer: the update.
        table: resource variable `[rows of this part, dim]`.
        slots: slot name -> resource variable of the same shape.
        row_gradients: the summed gradients of distinct rows.
        learning_rate: scalar float32.
        step: scalar, the global step before it is incremented.

    Returns:
        The writes; all of them run after all reads.
    """
    ids, gradients = row_gradients
    row = gather_rows(table, ids)
    slot_rows = {name: gather_rows(slot, ids) for name, slot in slots.items()}
    new_row, new_slots = optimizer.update(gradients, row, slot_rows, learning_rate, step)
    new_values = [(table, new_row), *((slots[name], new_slots[name]) for name in slots)]
    reads = [row, *slot_rows.values()]
    if not optimizer.rule.updates_untouched_rows:
        with tf.control_dependencies(reads):
            return [_scatter(variable, ids, values) for variable, values in new_values]
    return _update_all_rows(optimizer, table, slots, ids, new_values, learning_rate, step)


def _scatter(variable: tf.Variable, ids: Tensor, values: Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(resource=variable.handle, indices=ids, updates=values)


def _update_all_rows(optimizer: RowOptimizer, table: tf.Variable,
                     slots: Mapping[str, tf.Variable], touched: Tensor,
                     touched_values: Sequence[tuple[tf.Variable, Tensor]],
                     learning_rate: Tensor, step: Tensor) -> list[tf.Operation]:
    """Updates all rows; untouched rows get a gradient of 0, without clipping and decay."""
    row, slot_rows = table.read_value(), {name: slot.read_value() for name, slot in slots.items()}
    new_row, new_slots = optimizer.rule.update(tf.zeros_like(row), row, slot_rows, learning_rate,
                                               step)
    everywhere = {id(table): new_row, **{id(slots[name]): new_slots[name] for name in slots}}
    with tf.control_dependencies([row, *slot_rows.values(),
                                  *(values for _, values in touched_values)]):
        return [variable.assign(tf.tensor_scatter_nd_update(
            everywhere[id(variable)], touched[:, tf.newaxis], values), read_value=False)
            for variable, values in touched_values]
