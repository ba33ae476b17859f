# SPDX-License-Identifier: Apache-2.0
"""The step in TensorFlow's own ops: a few for each table and host.

    enqueued features ─ to_sharded_ids ─▶ ShardedIds ─ lookup ─▶ stacked activations
    stacked gradients ─ sum_duplicates ─▶ RowGradients ─ RowOptimizer ─▶ rows, slots ─ write
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, StepGradients
from tpu_estimator_embedding.engine.measures import (
    HostMeasures,
    Marks,
    StepMeasures,
    stack_values,
)
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.tf_ops.core_by_core import core_by_core
from tpu_estimator_embedding.engine.tf_ops.measured_rows import concatenated, measure, rows_if
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import HostIds, ShardedIds, to_sharded_ids
from tpu_estimator_embedding.engine.tf_ops.update_rows import update_rows
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.ops.gradients import RowGradients, sum_duplicates
from tpu_estimator_embedding.ops.lookup import lookup
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
            for write in _update_part(plan, table, variables, ids, step_gradients, host)[0]]


def measured_update(plan: EmbeddingPlan, variables: Variables, ids: Ids,
                    step_gradients: StepGradients, marks: Marks,
                    measures: Tensor) -> StepMeasures:
    """Updates all tables, marks the rows, and measures them if `measures` says so."""
    hosts: list[list[HostMeasures]] = []
    for table in plan.tables:
        for host, part in enumerate(variables[table.name].parts):
            host_ids = ids[table.name].hosts[host]
            with beside(part):
                before = rows_if(measures, part, host_ids.unique_ids)
            with tf.control_dependencies([before]):
                writes, gradients = _update_part(plan, table, variables, ids, step_gradients, host)
            with tf.control_dependencies(writes), beside(part):
                measured = measure(measures, part, marks[table.name][host], host_ids, before,
                                   gradients, table.training_optimizer.gradient_limits)
            hosts += [[]] if host == len(hosts) else []
            hosts[host].append(measured)
    return StepMeasures(
        tuple(concatenated(of_host) for of_host in hosts),
        tf.stack([ids[table.name].given_count for table in plan.tables]),
        stack_values(step_gradients.multipliers, list(plan.tables)),
        stack_values(step_gradients.learning_rates, list(plan.tables)))


def row_counts(plan: EmbeddingPlan, ids: Ids) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids[table.name].row_counts for table in plan.tables}


def are_for_training(ids: Ids) -> bool:
    """Whether duplicates among the ids were found."""
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


def _update_part(plan: EmbeddingPlan, table: TablePlan, variables: Variables, ids: Ids,
                 step_gradients: StepGradients, host: int
                 ) -> tuple[list[tf.Operation], list[RowGradients]]:
    """Returns the writes to a part of a table and its slots, and the gradients of each round."""
    of_table, gradient = ids[table.name], step_gradients.gradients[table.name]
    if table.name in step_gradients.multipliers:
        gradient *= step_gradients.multipliers[table.name]
    if of_table.row_scales is not None:
        gradient *= of_table.row_scales[:, tf.newaxis]
    slots = {name: parts[host] for name, parts in variables[table.name].slots.items()}
    updates: list[tf.Operation] = []
    gradients = []
    for round_ids in _rounds(plan, table, of_table, host):
        with tf.control_dependencies(updates), beside(variables[table.name].parts[host]):
            gradients.append(sum_duplicates(
                gradient, round_ids.rows, round_ids.weights, round_ids.unique_ids,
                round_ids.positions))
            updates = update_rows(table.training_optimizer, variables[table.name].parts[host],
                                  slots, gradients[-1], step_gradients.learning_rates[table.name],
                                  step_gradients.step)
    return updates, gradients


def _rounds(plan: EmbeddingPlan, table: TablePlan, ids: ShardedIds, host: int) -> list[HostIds]:
    """Returns what to update at once: everything, or one core's share after another."""
    num_cores = tf.compat.dimension_value(ids.row_counts.shape[0])
    if table.training_optimizer.use_gradient_accumulation or num_cores == 1:
        return [ids.hosts[host]]
    row_ids = ids_of_rows(ids.hosts[host].unique_ids, host, table.vocabulary_size,
                          plan.num_hosts, plan.partition_strategy)
    return core_by_core(ids.hosts[host], row_ids % num_cores, ids.row_counts)
