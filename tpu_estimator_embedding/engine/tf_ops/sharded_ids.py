# SPDX-License-Identifier: Apache-2.0
"""The ids of one step by table and host, with all values that a lookup needs.

`to_sharded_ids` converts enqueued features to `ShardedIds`. It runs before the step that uses them,
checks all ids before any table is touched, and is pure: the values can be stored in a queue or
passed to a `tf.function`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Replicas
from tpu_estimator_embedding.engine.checked_ids import checked_ids, to_stack_rows
from tpu_estimator_embedding.engine.enqueue_data import check_features
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import SparseIds
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.partition_strategy import part_sizes, shard_of_id
from tpu_estimator_embedding.types import Tensor


class HostIds(NamedTuple):
    """The ids of one table that one host holds.

    Attributes:
        ids: `[n]` int64, rows of this host's part of the table.
        rows: `[n]` int64, rows of the activations, not decreasing.
        weights: `[n]` float32, or None for 1 everywhere.
        unique_ids: `[u]` int64, the distinct `ids`; None unless training.
        positions: `[n]` int32, index of each id in `unique_ids`; None unless training.
    """

    ids: Tensor
    rows: Tensor
    weights: Tensor | None
    unique_ids: Tensor | None
    positions: Tensor | None


class ShardedIds(NamedTuple):
    """The ids of one table in one step.

    Attributes:
        hosts: the ids that each host looks up.
        row_scales: `[num_rows]` float32, the combiner's factor for each row of
            activations; None for 1 everywhere.
        row_counts: `[replicas]` int64, rows of activations of each replica. The rows of a
            replica are those of its features, in the order of the plan.
        given_count: scalar int64, ids before any were dropped.
    """

    hosts: tuple[HostIds, ...]
    row_scales: Tensor | None
    row_counts: Tensor
    given_count: Tensor

    @property
    def num_rows(self) -> Tensor:
        """Rows of activations of the table, a scalar."""
        return tf.reduce_sum(self.row_counts)


def to_sharded_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                   uniform: bool) -> dict[str, ShardedIds]:
    """Checks the ids of a step and distributes them to tables and hosts.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size.
        training: whether gradients will follow; if so, duplicates are found here.
        uniform: whether ids without weights get weights of 1, as others of the plan may have.

    Returns:
        The ids of every table, by table name. The activations of the replicas are
        concatenated along axis 0.

    Raises:
        ValueError: if the enqueued data of a replica has other features than the plan.
        Others: those of `checked_ids`.
    """
    for enqueue_datas, _ in replicas:
        check_features(plan, enqueue_datas)
    batch_sizes = [tf.cast(batch_size, tf.int64) for _, batch_size in replicas]
    ids = [checked_ids(plan, enqueue_datas, batch_size)
           for (enqueue_datas, _), batch_size in zip(replicas, batch_sizes, strict=True)]
    for replica, batch_size in zip(ids, batch_sizes, strict=True):
        replica.update({feature.name: to_stack_rows(
            feature.stacked, replica[feature.name], batch_size * feature.rows_per_sample)
            for feature in plan.features if feature.stacked})
    if uniform:
        ids = [{name: part._replace(weights=sparse_ids.weights_or_ones(part))
                for name, part in replica.items()} for replica in ids]
    return {table.name: _shard_table(plan, table, ids, batch_sizes, training,
                                     _count_given(plan, table, replicas))
            for table in plan.tables}


def _count_given(plan: EmbeddingPlan, table: TablePlan, replicas: Replicas) -> Tensor:
    return tf.add_n([tf.size(enqueue_datas[feature.name].embedding_indices, tf.int64)
                     for enqueue_datas, _ in replicas
                     for feature in plan.features_of(table.name)])


def _shard_table(plan: EmbeddingPlan, table: TablePlan, ids: Sequence[Mapping[str, SparseIds]],
                 batch_sizes: Sequence[Tensor], training: bool,
                 given_count: Tensor) -> ShardedIds:
    features = plan.features_of(table.name)
    parts = [replica[feature.name] for replica in ids for feature in features]
    part_rows = [batch_size * feature.rows_per_sample
                 for batch_size in batch_sizes for feature in features]
    stacked = sparse_ids.without_negative(sparse_ids.stack(parts, part_rows))
    row_counts = tf.stack(batch_sizes) * sum(feature.rows_per_sample for feature in features)
    scales = row_scales(table.combiner, stacked, tf.reduce_sum(row_counts))
    hosts = _split_over_hosts(plan, table, stacked)
    if training:
        hosts = [with_unique_ids(host) for host in hosts]
    return ShardedIds(tuple(hosts), scales, row_counts, given_count)


def _split_over_hosts(plan: EmbeddingPlan, table: TablePlan, stacked: SparseIds) -> list[HostIds]:
    num_parts = len(part_sizes(table.vocabulary_size, plan.num_hosts))
    if num_parts == 1:
        return [HostIds(*stacked, None, None)]
    part, row_in_part = shard_of_id(stacked.ids, table.vocabulary_size, plan.num_hosts,
                                    plan.partition_strategy)
    return [_take(stacked._replace(ids=row_in_part), tf.where(tf.equal(part, host))[:, 0])
            for host in range(num_parts)]


def _take(ids: SparseIds, kept: Tensor) -> HostIds:
    tensors = [None if tensor is None else tf.gather(tensor, kept) for tensor in ids]
    return HostIds(tensors[0], tensors[1], tensors[2], None, None)


def with_unique_ids(host: HostIds) -> HostIds:
    """Adds unique_ids and positions to the ids of a host."""
    unique_ids, positions = tf.unique(host.ids)
    return host._replace(unique_ids=unique_ids, positions=positions)
