# SPDX-License-Identifier: Apache-2.0
"""The ids of one step in the format of the compiled ops: flat tensors, one set per host.

One op creates them from the ids of all features. It checks all ids before it outputs any, runs
before the step that uses them, and is pure: the tensors can be stored in a queue or passed to a
`tf.function`.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import Replicas
from tpu_estimator_embedding.engine.enqueue_data import (
    EnqueueData,
    RaggedEnqueueData,
    check_features,
    feature_tensors,
)
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class PreparedHostIds(NamedTuple):
    """The ids of all tables of a host, concatenated.

    Row r of a table's activations sums `ids[row_ends[r - 1]:row_ends[r]]`. Sorted by id they
    are runs: run u updates row `run_ids[u]` with the gradients of the activations
    `run_rows[run_ends[u - 1]:run_ends[u]]`. Ends count from the first id of the table.

    Attributes:
        sizes: `[tables, 6]` int64: rows of this host's part, ids, rows of activations, runs,
            weights and scales of each table.
        ids: `[n]`, rows of this host's parts.
        row_ends: `[rows]` int32.
        weights: `[weighted n]` float32, of tables with a weighted feature.
        scales: `[scaled rows]` float32, the combiner's factors, of tables that have them.
        run_ids: `[runs]`; this and the following are None unless training.
        run_ends: `[runs]` int32.
        run_rows: `[n]` int32.
        run_weights: `[weighted n]` float32.
    """

    sizes: Tensor
    ids: Tensor
    row_ends: Tensor
    weights: Tensor
    scales: Tensor
    run_ids: Tensor | None
    run_ends: Tensor | None
    run_rows: Tensor | None
    run_weights: Tensor | None


class PreparedIds(NamedTuple):
    """The ids of all tables in one step.

    Attributes:
        row_counts: `[tables, replicas]` int64, rows of activations of each replica.
        hosts: the ids that each host looks up and updates.
        given_counts: `[tables]` int64, ids before any were dropped.
    """

    row_counts: Tensor
    hosts: tuple[PreparedHostIds, ...]
    given_counts: Tensor


def to_prepared_ids(plan: EmbeddingPlan, replicas: Replicas, training: bool,
                    uniform: bool) -> PreparedIds:
    """Checks the ids of a step and prepares them for every host.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size.
        training: whether gradients will follow; if so, the ids are sorted here.
        uniform: has no effect, because all batches of a plan have the same structure here.

    Raises:
        TypeError, ValueError: see `shard_ids`.
        tf.errors.InvalidArgumentError: when run, see `shard_ids`.
    """
    del uniform
    for enqueue_datas, _ in replicas:
        check_features(plan, enqueue_datas)
    datas = [feature_tensors(feature, enqueue_datas[feature.name])
             for enqueue_datas, _ in replicas for feature in plan.features]
    outputs = load.native_ops().tpu_embedding_prepare_ids(
        ids=[data[0] for data in datas],
        places=[data[1] for data in datas if data[1] is not None],
        weights=[data[2] for data in datas if data[2] is not None],
        batch_sizes=tf.stack([tf.cast(batch_size, tf.int64) for _, batch_size in replicas]),
        placements=[_placement(data) for data in datas],
        has_weights=[data[2] is not None for data in datas],
        training=training, **_plan_attributes(plan))
    hosts = [PreparedHostIds(*parts) if training else PreparedHostIds(*parts[:5], *[None] * 4)
             for parts in zip(*outputs[1:-1], strict=True)]
    return PreparedIds(outputs.row_counts, tuple(hosts), outputs.given_counts)


def updates_core_by_core(table: TablePlan) -> bool:
    """Whether a row gets an update from every core that looked it up."""
    return table.optimizer is not None and not table.optimizer.use_gradient_accumulation


def _placement(data: EnqueueData | RaggedEnqueueData) -> str:
    if data[1] is None:
        return "one_id_each"
    return "row_splits" if isinstance(data, RaggedEnqueueData) else "coordinates"


def _plan_attributes(plan: EmbeddingPlan) -> dict[str, Any]:
    position = {table.name: number for number, table in enumerate(plan.tables)}
    most_rows = max(max(plan.rows_per_host(table)) for table in plan.tables)
    return {
        "feature_names": [feature.name for feature in plan.features],
        "table_of_feature": [position[feature.table] for feature in plan.features],
        "sequence_lengths": [feature.max_sequence_length for feature in plan.features],
        "vocabulary_sizes": [table.vocabulary_size for table in plan.tables],
        "combiners": [plan.combiner(feature) for feature in plan.features],
        "samples_per_unit": [feature.samples_per_unit for feature in plan.features],
        "feature_vocabulary_sizes": [plan.vocabulary_size(feature) for feature in plan.features],
        **_row_maps(plan),
        "updates_core_by_core": [updates_core_by_core(table) for table in plan.tables],
        "partition_strategy": plan.partition_strategy,
        "num_hosts": min(plan.num_hosts, max(table.vocabulary_size for table in plan.tables)),
        "Tid": tf.int32 if most_rows <= tf.int32.max else tf.int64,
    }


def _row_maps(plan: EmbeddingPlan) -> dict[str, list[int]]:
    """Returns parameter of the mapping from ids to rows of tables -> its value per feature."""
    maps = [_row_map(plan, feature) for feature in plan.features]
    names = ("log2_shards", "rotations", "row_offsets", "rows_per_shard")
    return {name: list(values) for name, values in zip(names, zip(*maps, strict=True),
                                                       strict=True)}


def _row_map(plan: EmbeddingPlan, feature: FeaturePlan) -> tuple[int, int, int, int]:
    if feature.stacked is None:
        return 0, 0, 0, plan.table_by_name[feature.table].vocabulary_size
    layout, stack = feature.stacked.layout, feature.stacked.stack
    return (layout.cores.count.bit_length() - 1, layout.rotation, layout.row_offset,
            stack.rows_per_shard)
