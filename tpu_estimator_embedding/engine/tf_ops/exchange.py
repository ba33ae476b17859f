# SPDX-License-Identifier: Apache-2.0
"""A step in TensorFlow's own ops whose tables are in other tasks: what it exchanges with them.

`exchanged_rows` says what is exchanged of each table; all tables of a host share a tensor.
Combiners scale in this task. Results are those of one process, bit for bit, but for merged steps of
tasks that exchange rows: the gradients of a row are first summed in each task.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Backend, Exchange, StepGradients
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
from tpu_estimator_embedding.engine.tf_ops.exchanged_rows import (
    ExchangedRows,
    KeptIds,
    SentIds,
    merged_ids,
    to_exchanged_rows,
)
from tpu_estimator_embedding.engine.tf_ops.measured_rows import concatenated
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import HostIds, with_unique_ids
from tpu_estimator_embedding.ops.gradients import sum_duplicates
from tpu_estimator_embedding.ops.lookup import lookup, sum_rows
from tpu_estimator_embedding.ops.ordering import unordered
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class HostStep(NamedTuple):
    """What the update of a host needs.

    Attributes:
        sent: the ids of its tables.
        gradients: of the values of all tables, scaled and flat, float32.
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


def look_up(plan: EmbeddingPlan, variables: Variables, ids: ExchangedRows) -> dict[str, Tensor]:
    """Returns table name -> `[num_rows, dim]` float32; looks up all tables of the plan."""
    sums: dict[str, list[Tensor]] = {table.name: [] for table in plan.tables}
    for host, sent in enumerate(ids.sent):
        tables = tables_of_host(plan, host)
        with beside(variables[tables[0].name].parts[host]):
            values = tf.concat([tf.reshape(lookup(
                variables[table.name].parts[host], of_table.ids.ids, of_table.ids.rows,
                of_table.ids.weights, of_table.num_rows, table.quantization), [-1])
                for table, of_table in zip(tables, _received(sent, len(tables)), strict=True)], 0)
        flat = tf.split(values, sent.sizes[:, 1] * [table.dimension for table in tables],
                        num=len(tables))
        for table, of_table in zip(tables, flat, strict=True):
            sums[table.name].append(_combined(
                tf.reshape(of_table, [-1, table.dimension]), ids.kept[host][table.name],
                ids.tables[table.name].num_rows))
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
    gradients = [tf.reshape(_gradients_of_values(
        scaled_gradient(table, ids.tables[table.name].row_scales, step_gradients),
        ids.kept[host][table.name]), [-1]) for table in tables]
    return HostStep(ids.sent[host], tf.concat(gradients, 0),
                    stack_values(step_gradients.learning_rates, tables),
                    tf.identity(step_gradients.step))


def merged(plan: EmbeddingPlan, host: int, steps: Sequence[HostStep]) -> HostStep:
    """Returns the host steps of several tasks as that of one task."""
    tables, sent = tables_of_host(plan, host), [step.sent for step in steps]
    dims = tf.constant([table.dimension for table in tables], tf.int64)
    return HostStep(merged_ids(sent, len(tables)), concat_by_table(
        [step.gradients for step in steps],
        [of_task.sizes[:, 1] * dims for of_task in sent], len(tables)),
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
            measured = [measured_update_of_part(
                plan, table, variables[table.name], host, of_tables[number].ids,
                of_tables[number].row_counts,
                _gradients_of(step.gradients, sent, tables, number), step.learning_rates[number],
                step.step, marks[table.name][host], measures)
                for number, table in enumerate(tables)]
        hosts.append(concatenated([_with_all_ids(of_table, ids.kept[host][table.name], measures)
                                   for table, of_table in zip(tables, measured, strict=True)]))
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
                          are_for_training, Exchange(
                              functools.partial(to_exchanged_rows, may_send_rows=False),
                              host_step, merged, update_host))


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


def _combined(values: Tensor, kept: KeptIds, num_rows: Tensor) -> Tensor:
    """Returns the activations `[num_rows, dim]` of a host's values, not scaled."""
    terms = tf.gather(values, kept.places)
    if kept.weights is not None:
        terms *= kept.weights[:, tf.newaxis]
    # With shapes that TensorFlow cannot tell to be equal, it adds up three hosts in another order.
    return tf.reshape(sum_rows(terms, kept.rows, num_rows),
                      tf.stack([num_rows, terms.shape[1]]))


def _gradients_of_values(gradient: Tensor, kept: KeptIds) -> Tensor:
    """Returns the gradients `[num_values, dim]` of values, from those of activations."""
    return sum_duplicates(gradient, kept.rows, kept.weights, tf.range(kept.num_values),
                          kept.places).gradients


def _with_all_ids(measured: HostMeasures, kept: KeptIds, measures: Tensor) -> HostMeasures:
    """Counts all ids of a row where the host was sent one; the host has rows in their order."""
    def counted() -> list[Tensor]:
        counts = tf.math.unsorted_segment_sum(
            tf.ones_like(kept.places), kept.places, kept.num_values)
        num_ids = tf.size(kept.places, tf.int64)
        return [tf.cumsum(counts), tf.concat([[[num_ids]], measured.sizes[:, 1:]], 1)]

    run_ends, sizes = tf.cond(tf.logical_and(measures, kept.has_rows), counted,
                              lambda: [measured.run_ends, measured.sizes])
    return measured._replace(run_ends=run_ends, sizes=sizes)


def _scaled(values: Tensor, scales: Tensor | None) -> Tensor:
    return values if scales is None else values * scales[:, tf.newaxis]
