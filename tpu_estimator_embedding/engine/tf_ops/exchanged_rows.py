# SPDX-License-Identifier: Apache-2.0
"""The ids of one step in TensorFlow's own ops whose tables are in other tasks.

A host gets each table as sums or as rows, whichever takes fewer bytes in this step, as
`native.exchanged_ids` describes. A *value* is a sum or a row. To this task both forms are the same:
activation r is Σ over i with rows[i] = r of weights[i] · value[places[i]].
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Replicas
from tpu_estimator_embedding.engine.by_table import concat_by_table
from tpu_estimator_embedding.engine.measures import tables_of_host
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import (
    HostIds,
    ShardedIds,
    to_sharded_ids,
)
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor

_FLOAT, _END = 4, 4  # bytes


class SentIds(NamedTuple):
    """The ids of all tables of a host, concatenated, as they are sent to it.

    Attributes:
        sizes: `[tables, 2]` int64: ids and values of each table.
        ids: `[n]`, rows of the host's parts, int32 where it suffices.
        row_lengths: `[values]` int32, ids of each value.
        weights: `[n]` float32; None where no feature has weights.
        row_counts: `[tables, replicas]` int64, sums of each replica.
    """

    sizes: Tensor
    ids: Tensor
    row_lengths: Tensor
    weights: Tensor | None
    row_counts: Tensor


class KeptIds(NamedTuple):
    """How the values of a table on a host make its activations.

    Attributes:
        places: `[m]` int32, the value that each term is a multiple of.
        rows: `[m]` int64, row of the activations of each term, not decreasing.
        weights: `[m]` float32; None for 1 everywhere.
        num_values: scalar int32.
        has_rows: scalar bool, whether the values are rows.
    """

    places: Tensor
    rows: Tensor
    weights: Tensor | None
    num_values: Tensor
    has_rows: Tensor


class ExchangedRows(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        tables: table name -> its ids, without those of hosts.
        kept: for each host, what stays in this task, by table name.
        sent: what each host gets.
        training: 1 if gradients may follow, else 0.
    """

    tables: Mapping[str, ShardedIds]
    kept: tuple[Mapping[str, KeptIds], ...]
    sent: tuple[SentIds, ...]
    training: int


class _TableIds(NamedTuple):
    """A table in one of both forms."""

    ids: Tensor
    row_lengths: Tensor
    weights: Tensor | None
    kept: KeptIds


def to_exchanged_rows(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                      uniform: bool, may_send_rows: bool = True) -> ExchangedRows:
    """Checks the ids of a step and prepares them for the hosts; as `to_sharded_ids`.

    Args:
        plan, replicas, training, uniform: see `to_sharded_ids`.
        may_send_rows: whether tables may be in the form of rows.
    """
    tables = to_sharded_ids(plan, replicas, False, uniform)
    num_hosts = max(len(ids.hosts) for ids in tables.values())
    hosts = [_to_sent(plan, tables, host, may_send_rows) for host in range(num_hosts)]
    return ExchangedRows({name: ids._replace(hosts=()) for name, ids in tables.items()},
                         tuple(kept for kept, _ in hosts), tuple(sent for _, sent in hosts),
                         int(training))


def merged_ids(tasks: Sequence[SentIds], num_tables: int) -> SentIds:
    """Returns what several tasks sent to a host as the ids of one task."""
    def by_table(name: str, column: int) -> Tensor | None:
        return concat_by_table([getattr(sent, name) for sent in tasks],
                               [sent.sizes[:, column] for sent in tasks], num_tables)

    return SentIds(tf.add_n([sent.sizes for sent in tasks]), by_table("ids", 0),
                   by_table("row_lengths", 1), by_table("weights", 0),
                   tf.concat([sent.row_counts for sent in tasks], 1))


def _to_sent(plan: EmbeddingPlan, tables: Mapping[str, ShardedIds],
             host: int, may_send_rows: bool) -> tuple[dict[str, KeptIds], SentIds]:
    of_host = tables_of_host(plan, host)
    most_rows = max(max(plan.rows_per_host(table)) for table in plan.tables)
    dtype = tf.int32 if most_rows <= tf.int32.max else tf.int64
    counts, chosen = [], {}
    for table in of_host:
        sums = _as_sums(tables[table.name].hosts[host])
        counts.append(_kept_of_replicas(sums.kept.rows, tables[table.name].row_counts))
        by_core = table.optimizer is not None and not table.optimizer.use_gradient_accumulation
        chosen[table.name] = sums if by_core or not may_send_rows else _smaller(
            table, sums, tables[table.name].hosts[host], dtype.size)
    forms = list(chosen.values())
    weights = None if all(form.weights is None for form in forms) else tf.concat(
        [tf.ones_like(form.ids, tf.float32) if form.weights is None else form.weights
         for form in forms], 0)
    return {name: form.kept for name, form in chosen.items()}, SentIds(
        tf.stack([[tf.size(form.ids, tf.int64), tf.cast(form.kept.num_values, tf.int64)]
                  for form in forms]),
        tf.cast(tf.concat([form.ids for form in forms], 0), dtype),
        tf.concat([form.row_lengths for form in forms], 0), weights, tf.stack(counts))


def _as_sums(host: HostIds) -> _TableIds:
    rows, _, lengths = tf.unique_with_counts(host.rows)
    weights = None if host.weights is None else tf.ones_like(rows, tf.float32)
    return _TableIds(host.ids, lengths, host.weights, KeptIds(
        tf.range(tf.size(rows)), rows, weights, tf.size(rows), tf.constant(False)))


def _as_rows(host: HostIds) -> _TableIds:
    ids, places = tf.unique(host.ids)
    weights = None if host.weights is None else tf.ones_like(ids, tf.float32)
    return _TableIds(ids, tf.ones_like(ids, tf.int32), weights, KeptIds(
        places, host.rows, host.weights, tf.size(ids), tf.constant(True)))


def _smaller(table: TablePlan, sums: _TableIds, host: HostIds, bytes_of_id: int) -> _TableIds:
    """Returns the form of a table that takes fewer bytes in both directions."""
    rows = _as_rows(host)

    def num_bytes(form: _TableIds) -> Tensor:
        of_id = bytes_of_id + (0 if host.weights is None else _FLOAT)
        of_value = _END + 2 * _FLOAT * table.dimension
        return (tf.size(form.ids, tf.int64) * of_id
                + tf.cast(form.kept.num_values, tf.int64) * of_value)

    def flat(form: _TableIds) -> list[Tensor]:
        return [tensor for tensor in (*form[:-1], *form.kept) if tensor is not None]

    values = iter(tf.cond(num_bytes(rows) < num_bytes(sums), lambda: flat(rows),
                          lambda: flat(sums)))
    chosen = [None if tensor is None else next(values) for tensor in (*sums[:-1], *sums.kept)]
    ids, row_lengths, weights, *kept = chosen
    return _TableIds(ids, row_lengths, weights, KeptIds(*kept))


def _kept_of_replicas(rows: Tensor, row_counts: Tensor) -> Tensor:
    """Returns how many of some rows, in increasing order, are of each replica."""
    ends = tf.searchsorted(rows, tf.cast(tf.cumsum(row_counts), rows.dtype), out_type=tf.int64)
    return ends - tf.concat([[0], ends[:-1]], 0)
