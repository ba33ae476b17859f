# SPDX-License-Identifier: Apache-2.0
"""The ids of one step in compiled ops whose tables are in other tasks.

A host gets each table in one of two forms, whichever takes fewer bytes in this step:

* sums: the ids of the rows of activations that have one on the host. It returns their sums,
* rows: each distinct id once, as if it were one row of activations. It returns the rows of the
  table, which this task combines; their gradients are summed in this task too.

What a host does is the same for both. Tables that are updated core by core are always sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Replicas
from tpu_estimator_embedding.engine.by_table import concat_by_table
from tpu_estimator_embedding.engine.measures import tables_of_host
from tpu_estimator_embedding.engine.native.backend import IDS, ROWS, SCALES, WEIGHTS
from tpu_estimator_embedding.engine.native.prepared_ids import (
    PreparedHostIds,
    PreparedIds,
    to_prepared_ids,
    updates_core_by_core,
)
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class SentIds(NamedTuple):
    """The ids of all tables of a host, concatenated, as they are sent to it.

    Attributes:
        sizes: `[tables, 6]` int64, as in `PreparedHostIds`; the number of runs is 0 for tables in
            the form of sums.
        ids: `[n]`, rows of the host's parts.
        row_ends: `[rows]` int32.
        weights: `[weighted n]` float32; None where no feature has weights.
        scales: `[scaled rows]` float32; None where every combiner is a sum.
        replica_ends: `[tables, replicas]` int64, where the rows of each replica end; None where
            no table is updated core by core.
    """

    sizes: Tensor
    ids: Tensor
    row_ends: Tensor
    weights: Tensor | None
    scales: Tensor | None
    replica_ends: Tensor | None


class KeptIds(NamedTuple):
    """What this task needs in order to combine what a host returns, and to make its gradients.

    Attributes:
        places: `[sums, or ids of tables in the form of rows]` int32: the row of its table's
            activations that each sum is, or the position of each id among the distinct ids.
        prepared: the ids of the host.
    """

    places: Tensor
    prepared: PreparedHostIds


class ExchangedIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        row_counts: `[tables, replicas]` int64, rows of activations of each replica.
        sent: what each host looks up and updates.
        kept: for each host, what stays in this task.
        given_counts: `[tables]` int64, ids before any were dropped.
        training: 1 if gradients may follow, else 0.
    """

    row_counts: Tensor
    sent: tuple[SentIds, ...]
    kept: tuple[KeptIds, ...]
    given_counts: Tensor
    training: int


def to_exchanged_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool, uniform: bool,
                     may_send_rows: bool = True) -> ExchangedIds:
    """Checks the ids of a step and prepares them for the hosts; as `to_prepared_ids`.

    Args:
        plan, replicas, training, uniform: see `to_prepared_ids`.
        may_send_rows: whether tables may be in the form of rows.
    """
    prepared = to_prepared_ids(plan, replicas, True, uniform)  # sorted, to count distinct ids
    has_weights = uniform or any(data.aggregation_weights is not None
                                 for datas, _ in replicas for data in datas.values())
    has_scales = any(plan.combiner(feature) != "sum" for feature in plan.features)
    by_core = len(replicas) > 1 and any(map(updates_core_by_core, plan.tables))
    sent, kept = [], []
    for host, host_ids in enumerate(prepared.hosts):
        tables = tables_of_host(plan, host)
        of_host = load.native_ops().tpu_embedding_compact_ids(
            sizes=host_ids.sizes, ids=host_ids.ids, row_ends=host_ids.row_ends,
            weights=host_ids.weights, scales=host_ids.scales, run_ids=host_ids.run_ids,
            row_counts=_counts_of_host(plan, host, prepared),
            may_send_rows=[may_send_rows and not updates_core_by_core(table) for table in tables],
            dims=[table.dimension for table in tables])
        sent.append(SentIds(
            of_host.sent_sizes, of_host.sent_ids, of_host.sent_row_ends,
            of_host.sent_weights if has_weights else None,
            of_host.sent_scales if has_scales else None,
            of_host.replica_ends if by_core else None))
        kept.append(KeptIds(of_host.places, host_ids))
    return ExchangedIds(prepared.row_counts, tuple(sent), tuple(kept), prepared.given_counts,
                        int(training))


def merged_ids(plan: EmbeddingPlan, num_tables: int, tasks: Sequence[SentIds]) -> SentIds:
    """Returns what several tasks sent to a host as the ids of one task.

    Args:
        plan: the tables.
        num_tables: how many of them the host has.
        tasks: of each task, what it sent.
    """
    sizes = tf.stack([ids.sizes for ids in tasks])
    ends = tf.cumsum(sizes)  # of each task, in every column

    def by_table(column: int, values: Sequence[Tensor | None]) -> Tensor | None:
        return concat_by_table(values, [ids.sizes[:, column] for ids in tasks], num_tables)

    row_ends = [ids.row_ends + tf.repeat(
        tf.cast(ends[task, :, IDS] - sizes[task, :, IDS], tf.int32), ids.sizes[:, ROWS])
        for task, ids in enumerate(tasks)]
    return SentIds(
        tf.concat([sizes[0, :, :1], tf.reduce_sum(sizes, 0)[:, 1:]], 1),
        by_table(IDS, [ids.ids for ids in tasks]), by_table(ROWS, row_ends),
        by_table(WEIGHTS, [ids.weights for ids in tasks]),
        by_table(SCALES, [ids.scales for ids in tasks]),
        _replica_ends(tasks, ends[:, :, ROWS])
        if any(map(updates_core_by_core, plan.tables)) else None)


def _counts_of_host(plan: EmbeddingPlan, host: int, prepared: PreparedIds) -> Tensor:
    """Returns the row counts of the tables of a host."""
    positions = [position for position, table in enumerate(plan.tables)
                 if host < len(plan.rows_per_host(table))]
    return (prepared.row_counts if len(positions) == len(plan.tables)
            else tf.gather(prepared.row_counts, positions))


def _replica_ends(tasks: Sequence[SentIds], ends: Tensor) -> Tensor:
    """Returns the ends of the rows of all replicas, from those of all tasks `[tasks, tables]`."""
    if tasks[0].replica_ends is None:
        return tf.transpose(ends)
    return tf.concat([ids.replica_ends + (ends[task] - ids.sizes[:, ROWS])[:, tf.newaxis]
                      for task, ids in enumerate(tasks)], 1)
