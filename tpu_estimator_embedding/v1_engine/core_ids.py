# SPDX-License-Identifier: Apache-2.0
"""The ids of one core's share of a batch, and how those of all cores become one step."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import EnqueueDatas
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import (
    HostIds,
    ShardedIds,
    shard_ids,
    with_unique_ids,
)
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

CoreIds = Mapping[str, ShardedIds]  # by table name


def core_ids(plan: EmbeddingPlan, enqueue_datas: EnqueueDatas, batch_size: int) -> CoreIds:
    """Returns the checked ids of one core, all of them with weights.

    One structure fits every batch so, whichever features have weights in it, and batches
    of all enqueue ops of a graph can wait in one queue.

    Args:
        plan: the tables and features.
        enqueue_datas: feature name -> ids.
        batch_size: samples of the core.
    """
    ids = shard_ids(plan, enqueue_datas, batch_size, training=False)
    return {name: table._replace(hosts=tuple(map(_with_weights, table.hosts)))
            for name, table in ids.items()}


def core_ids_template(plan: EmbeddingPlan, batch_size: int) -> CoreIds:
    """Returns what `core_ids` returns, in a graph of its own, with free numbers of ids."""
    with tf.Graph().as_default():
        return core_ids(plan, {feature.name: EnqueueData(
            tf.compat.v1.placeholder(tf.int64, [None]),
            tf.compat.v1.placeholder(tf.int64, [None, 2])) for feature in plan.features},
            batch_size)


def join_cores(cores: Sequence[CoreIds]) -> dict[str, ShardedIds]:
    """Puts the activations of all cores under one another, and finds duplicate ids.

    Args:
        cores: the ids of each core.

    Returns:
        Table name -> the ids of the step, ready for training.
    """
    return {table: _join_table([core[table] for core in cores]) for table in cores[0]}


def _join_table(parts: Sequence[ShardedIds]) -> ShardedIds:
    starts = tf.unstack(tf.cumsum(tf.stack([part.num_rows for part in parts]), exclusive=True))
    hosts = [_join_host(host_parts, starts)
             for host_parts in zip(*(part.hosts for part in parts), strict=True)]
    scales = None
    if parts[0].row_scales is not None:
        scales = tf.concat([part.row_scales for part in parts], 0)
    return ShardedIds(tuple(hosts), scales, tf.concat([part.row_counts for part in parts], 0))


def _join_host(parts: Sequence[HostIds], starts: Sequence[Tensor]) -> HostIds:
    rows = [part.rows + start for part, start in zip(parts, starts, strict=True)]
    return with_unique_ids(HostIds(
        tf.concat([part.ids for part in parts], 0), tf.concat(rows, 0),
        tf.concat([part.weights for part in parts], 0), None, None))


def _with_weights(host: HostIds) -> HostIds:
    if host.weights is not None:
        return host
    return host._replace(weights=tf.ones_like(host.ids, dtype=tf.float32))
