# SPDX-License-Identifier: Apache-2.0
"""A step in TensorFlow's own ops whose tables are in other tasks: what it exchanges with them.

Only rows of activations that have an id on a host are exchanged with it, those of all its tables
in one tensor. Combiners scale in this task. Results are those of one process, bit for bit.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, Exchange, Replicas, StepGradients
from tpu_estimator_embedding.engine.by_table import concat_by_table
from tpu_estimator_embedding.engine.measures import (
    HostMeasures,
    Marks,
    StepMeasures,
    stack_values,
    tables_of_host,
)
from tpu_estimator_embedding.engine.placement import beside
from tpu_estimator_embedding.engine.tf_ops.backend import (
    Variables,
    measured_update_of_part,
    scaled_gradient,
    update_part,
)
from tpu_estimator_embedding.engine.tf_ops.measured_rows import concatenated
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import (
    HostIds,
    ShardedIds,
    to_sharded_ids,
    with_unique_ids,
)
from tpu_estimator_embedding.ops.lookup import lookup
from tpu_estimator_embedding.ops.ordering import unordered
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class SentIds(NamedTuple):
    """The ids of all tables of a host, concatenated, without rows that have no id there.

    Attributes:
        sizes: `[tables, 2]` int64: ids and rows of each table.
        ids: `[n]`, rows of the host's parts, int32 where it suffices.
        row_lengths: `[rows]` int32, ids of each row.
        weights: `[n]` float32; None where no feature has weights.
        row_counts: `[tables, replicas]` int64, rows of each replica.
    """

    sizes: Tensor
    ids: Tensor
    row_lengths: Tensor
    weights: Tensor | None
    row_counts: Tensor


class ExchangedRows(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        tables: table name -> its ids, which stay in this task.
        rows: for each host, the row of its table's activations that each row is, `[rows]` int64.
        sent: what each host gets.
        training: 1 if gradients may follow, else 0.
    """

    tables: Mapping[str, ShardedIds]
    rows: tuple[Tensor, ...]
    sent: tuple[SentIds, ...]
    training: int


class HostStep(NamedTuple):
    """What the update of a host needs.

    Attributes:
        sent: the ids of its tables.
        gradients: of the rows of all tables, scaled and flat, float32.
        learning_rates: `[tables]` float32.
        step: scalar.
    """

    sent: SentIds
    gradients: Tensor
    learning_rates: Tensor
    step: Tensor


class HostTable(NamedTuple):
    """A table on its host.

    Attributes:
        ids: whose rows are those that the host has.
        num_rows: scalar.
        row_counts: `[replicas]` int64, rows of each replica.
    """

    ids: HostIds
    num_rows: Tensor
    row_counts: Tensor


def to_exchanged_rows(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                      uniform: bool) -> ExchangedRows:
    """Checks the ids of a step and prepares them for the hosts; as `to_sharded_ids`."""
    tables = to_sharded_ids(plan, replicas, False, uniform)
    num_hosts = max(len(ids.hosts) for ids in tables.values())
    hosts = [_to_sent(plan, tables, host) for host in range(num_hosts)]
    return ExchangedRows(tables, tuple(rows for rows, _ in hosts),
                         tuple(sent for _, sent in hosts), int(training))


def look_up(plan: EmbeddingPlan, variables: Variables, ids: ExchangedRows) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32; looks up all tables of the plan."""
    sums: dict[str, list[Tensor]] = {table.name: [] for table in plan.tables}
    for host, sent in enumerate(ids.sent):
        tables = tables_of_host(plan, host)
        with beside(variables[tables[0].name].parts[host]):
            partial = tf.concat([tf.reshape(lookup(
                variables[table.name].parts[host], of_table.ids.ids, of_table.ids.rows,
                of_table.ids.weights, of_table.num_rows, table.quantization), [-1])
                for table, of_table in zip(tables, _received(sent, len(tables)), strict=True)], 0)
        rows = tf.split(ids.rows[host], sent.sizes[:, 1], num=len(tables))
        values = tf.split(partial, sent.sizes[:, 1] * [table.dimension for table in tables],
                          num=len(tables))
        for table, of_table, flat in zip(tables, rows, values, strict=True):
            num_rows = ids.tables[table.name].num_rows
            sums[table.name].append(tf.scatter_nd(
                of_table[:, tf.newaxis], tf.reshape(flat, [-1, table.dimension]),
                tf.stack([num_rows, table.dimension])))
    return {name: _scaled(tf.add_n(parts), ids.tables[name].row_scales)
            for name, parts in sums.items()}


def update(plan: EmbeddingPlan, variables: Variables, ids: ExchangedRows,
           step_gradients: StepGradients) -> list[tf.Operation]:
    """Returns the writes to all tables and slots."""
    return [write for host in range(len(ids.sent)) for write in update_host(
        plan, variables, host, host_step(plan, ids, step_gradients, host))]


def host_step(plan: EmbeddingPlan, ids: ExchangedRows, step_gradients: StepGradients,
              host: int) -> HostStep:
    """Returns what this task sends to a host for its update."""
    tables = tables_of_host(plan, host)
    rows = tf.split(ids.rows[host], ids.sent[host].sizes[:, 1], num=len(tables))
    gradients = [tf.reshape(tf.gather(scaled_gradient(
        table, ids.tables[table.name].row_scales, step_gradients), of_table), [-1])
        for table, of_table in zip(tables, rows, strict=True)]
    return HostStep(ids.sent[host], tf.concat(gradients, 0),
                    stack_values(step_gradients.learning_rates, tables),
                    tf.identity(step_gradients.step))


def merged(plan: EmbeddingPlan, host: int, steps: Sequence[HostStep]) -> HostStep:
    """Returns the host steps of several tasks as that of one task."""
    tables, sent = tables_of_host(plan, host), [step.sent for step in steps]
    dims = tf.constant([table.dimension for table in tables], tf.int64)
    num_ids, num_rows = ([of_task.sizes[:, column] for of_task in sent] for column in (0, 1))

    def by_table(name: str, sizes: Sequence[Tensor]) -> Tensor | None:
        return concat_by_table([getattr(of_task, name) for of_task in sent], sizes, len(tables))

    return HostStep(SentIds(
        tf.add_n([of_task.sizes for of_task in sent]), by_table("ids", num_ids),
        by_table("row_lengths", num_rows), by_table("weights", num_ids),
        tf.concat([of_task.row_counts for of_task in sent], 1)),
        concat_by_table([step.gradients for step in steps],
                        [count * dims for count in num_rows], len(tables)),
        steps[0].learning_rates, steps[0].step)


def update_host(plan: EmbeddingPlan, variables: Variables, host: int,
                step: HostStep) -> list[tf.Operation]:
    """Returns the writes to the tables of a host and their slots."""
    tables = tables_of_host(plan, host)
    with unordered(), beside(variables[tables[0].name].parts[host]):
        of_tables = _trained(step.sent, len(tables))
        return [write for number, table in enumerate(tables) for write in update_part(
            plan, table, variables[table.name], host, of_tables[number].ids,
            of_tables[number].row_counts,
            _gradients_of(step.gradients, step.sent, tables, number),
            step.learning_rates[number], step.step)[0]]


def measured_update(plan: EmbeddingPlan, variables: Variables, ids: ExchangedRows,
                    step_gradients: StepGradients, marks: Marks,
                    measures: Tensor) -> StepMeasures:
    """Updates all tables, marks the rows, and measures them if `measures` says so."""
    hosts: list[HostMeasures] = []
    for host, sent in enumerate(ids.sent):
        tables, step = tables_of_host(plan, host), host_step(plan, ids, step_gradients, host)
        with unordered(), beside(variables[tables[0].name].parts[host]):
            of_tables = _trained(sent, len(tables))
            hosts.append(concatenated([measured_update_of_part(
                plan, table, variables[table.name], host, of_tables[number].ids,
                of_tables[number].row_counts,
                _gradients_of(step.gradients, sent, tables, number), step.learning_rates[number],
                step.step, marks[table.name][host], measures)
                for number, table in enumerate(tables)]))
    return StepMeasures(
        tuple(hosts), tf.stack([ids.tables[table.name].given_count for table in plan.tables]),
        stack_values(step_gradients.multipliers, list(plan.tables)),
        stack_values(step_gradients.learning_rates, list(plan.tables)))


def row_counts(plan: EmbeddingPlan, ids: ExchangedRows) -> dict[str, Tensor]:
    """Returns table name -> rows of activations of each replica, `[replicas]` int64."""
    return {table.name: ids.tables[table.name].row_counts for table in plan.tables}


def are_for_training(ids: ExchangedRows) -> bool:
    """Whether gradients may follow."""
    return bool(ids.training)


TF_OPS_EXCHANGE = Backend(to_exchanged_rows, look_up, update, measured_update, row_counts,
                          are_for_training, Exchange(host_step, merged, update_host))


def _to_sent(plan: EmbeddingPlan, tables: Mapping[str, ShardedIds],
             host: int) -> tuple[Tensor, SentIds]:
    names = [table.name for table in tables_of_host(plan, host)]
    ids = [tables[name].hosts[host] for name in names]
    rows, _, lengths = zip(*(tf.unique_with_counts(of_table.rows) for of_table in ids),
                           strict=True)
    weights = None if all(of_table.weights is None for of_table in ids) else tf.concat(
        [tf.ones_like(of_table.ids, tf.float32) if of_table.weights is None else of_table.weights
         for of_table in ids], 0)
    most_rows = max(max(plan.rows_per_host(table)) for table in plan.tables)
    sizes = [[tf.size(of_table.ids, tf.int64), tf.size(of_rows, tf.int64)]
             for of_table, of_rows in zip(ids, rows, strict=True)]
    return tf.concat(rows, 0), SentIds(
        tf.stack(sizes),
        tf.cast(tf.concat([of_table.ids for of_table in ids], 0),
                tf.int32 if most_rows <= tf.int32.max else tf.int64),
        tf.concat(lengths, 0), weights,
        tf.stack([_kept_of_replicas(of_rows, tables[name].row_counts)
                  for name, of_rows in zip(names, rows, strict=True)]))


def _kept_of_replicas(rows: Tensor, row_counts: Tensor) -> Tensor:
    """Returns how many of some rows, in increasing order, are of each replica."""
    ends = tf.searchsorted(rows, tf.cast(tf.cumsum(row_counts), rows.dtype), out_type=tf.int64)
    return ends - tf.concat([[0], ends[:-1]], 0)


def _received(sent: SentIds, num_tables: int) -> list[HostTable]:
    """Returns the tables of a host."""
    num_ids, num_rows = sent.sizes[:, 0], sent.sizes[:, 1]
    ids = tf.split(tf.cast(sent.ids, tf.int64), num_ids, num=num_tables)
    lengths = tf.split(sent.row_lengths, num_rows, num=num_tables)
    weights = ([None] * num_tables if sent.weights is None
               else tf.split(sent.weights, num_ids, num=num_tables))
    return [HostTable(HostIds(ids[table], tf.repeat(tf.range(num_rows[table]), lengths[table]),
                              weights[table], None, None), num_rows[table],
                      sent.row_counts[table]) for table in range(num_tables)]


def _trained(sent: SentIds, num_tables: int) -> list[HostTable]:
    return [of_table._replace(ids=with_unique_ids(of_table.ids))
            for of_table in _received(sent, num_tables)]


def _gradients_of(gradients: Tensor, sent: SentIds, tables: Sequence[TablePlan],
                  number: int) -> Tensor:
    sizes = sent.sizes[:, 1] * [table.dimension for table in tables]
    begin = tf.reduce_sum(sizes[:number])
    return tf.reshape(gradients[begin:begin + sizes[number]], [-1, tables[number].dimension])


def _scaled(values: Tensor, scales: Tensor | None) -> Tensor:
    return values if scales is None else values * scales[:, tf.newaxis]
