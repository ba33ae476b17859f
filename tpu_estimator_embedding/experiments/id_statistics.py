# SPDX-License-Identifier: Apache-2.0
"""Statistics of sampled ids: per feature, and per host of partitioned tables."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tqdm

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.estimator.input.input_reader import call_input_fn, read_input
from tpu_estimator_embedding.estimator.input.split_features import split_features
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.plan.partition_strategy import PARTITION_STRATEGIES, shard_of_id
from tpu_estimator_embedding.runtime.capture import Captured
from tpu_estimator_embedding.types import Structure, Tensor

_WORTH_CHANGING = 1.05  # minimum ratio of the maximum loads to recommend a change
_TRAIN = upstream.model_fn.ModeKeys.TRAIN


@dataclasses.dataclass(frozen=True)
class BatchIds:
    """The ids of one feature in one batch.

    Attributes:
        ids: `[n]` integers.
        lengths: `[batch]`, number of ids of each sample.
    """

    ids: np.ndarray
    lengths: np.ndarray


@dataclasses.dataclass(frozen=True)
class FeatureFacts:
    """The statistics of a feature.

    Attributes:
        ids_per_sample: mean number of ids per sample.
        empty: fraction of samples without ids.
        unique_per_batch: mean number of distinct ids in a batch.
        hot_share: fraction of the lookups that go to the most frequent 1 % of the table's rows.
        out_of_range: number of ids outside [0, vocabulary_size).
    """

    ids_per_sample: float
    empty: float
    unique_per_batch: float
    hot_share: float
    out_of_range: int


def feature_facts(batches: Sequence[BatchIds], vocabulary_size: int) -> FeatureFacts:
    """Returns the statistics of a feature in sampled batches."""
    ids = np.concatenate([batch.ids for batch in batches])
    lengths = np.concatenate([batch.lengths for batch in batches])
    valid = ids[(ids >= 0) & (ids < vocabulary_size)]
    counts = np.sort(np.unique(valid, return_counts=True)[1])[::-1]
    hottest = max(1, math.ceil(vocabulary_size / 100))
    return FeatureFacts(
        float(lengths.mean()), float((lengths == 0).mean()),
        float(np.mean([len(np.unique(batch.ids)) for batch in batches])),
        float(counts[:hottest].sum() / max(1, counts.sum())), len(ids) - len(valid))


def rows_touched(plan: EmbeddingPlan, table: str, batches: Sequence[dict[str, BatchIds]]) -> float:
    """Returns the mean number of distinct rows of a table that a step looks up."""
    return float(np.mean([len(_unique_rows(plan, table, batch)) for batch in batches]))


def loads(plan: EmbeddingPlan, num_hosts: int, strategy: str,
          batches: Sequence[dict[str, BatchIds]]) -> np.ndarray:
    """Returns `[num_hosts]`: mean number of values that each host looks up in a step.

    Every distinct row counts once per step, with all of its columns.
    """
    total = np.zeros(num_hosts)
    for batch in batches:
        for table in plan.tables:
            rows = _unique_rows(plan, table.name, batch)
            hosts, _ = shard_of_id(rows, table.vocabulary_size, num_hosts, strategy)
            total += table.dimension * np.bincount(hosts, minlength=num_hosts)
    return total / len(batches)


def imbalance(load: np.ndarray) -> float:
    """Returns the maximum load divided by the mean load; a step waits for the busiest host."""
    return float(load.max() / load.mean()) if load.any() else 1.0


def recommend(plan: EmbeddingPlan, num_hosts: int,
              batches: Sequence[dict[str, BatchIds]]) -> tuple[str, str]:
    """Returns the better strategy and the reason."""
    found = {strategy: imbalance(loads(plan, num_hosts, strategy, batches))
             for strategy in PARTITION_STRATEGIES}
    worse, better = sorted(found, key=lambda strategy: -found[strategy])
    if found[worse] < _WORTH_CHANGING * found[better]:
        return plan.partition_strategy, (
            f"both are similar: with {num_hosts} hosts, the maximum load is "
            f"{found['div']:.2f} (div) and {found['mod']:.2f} (mod) times the mean load")
    return better, (f"with {num_hosts} hosts, the maximum load is {found[better]:.2f} times the "
                    f"mean load, and {found[worse]:.2f} times with {worse!r}: "
                    + ("frequent ids are adjacent" if better == "mod" else
                       "frequent ids have the same remainder"))


def _unique_rows(plan: EmbeddingPlan, table: str, batch: dict[str, BatchIds]) -> np.ndarray:
    features: Sequence[FeaturePlan] = plan.features_of(table)
    ids = np.unique(np.concatenate([batch[feature.name].ids for feature in features]))
    return ids[(ids >= 0) & (ids < plan.table_by_name[table].vocabulary_size)]


def sample(captured: Captured, plan: EmbeddingPlan, count: int) -> list[dict[str, BatchIds]]:
    """Reads the ids of the first training steps; fewer if the input ends earlier.

    Args:
        captured: the estimator of a program that was stopped in `train`.
        plan: the plan of its tables.
        count: number of steps.
    """
    estimator = captured.estimator
    with tf.Graph().as_default(), estimator._ctx.with_mode(_TRAIN) as ctx:
        tf.compat.v1.train.create_global_step()
        keys = {key for feature in plan.features
                for key in (feature.name, feature.weight_key) if key is not None}
        input_fn = estimator._call_input_fn(captured.method_arguments["input_fn"], _TRAIN)
        reading = read_input(ctx, call_input_fn(ctx, input_fn), keys, estimator._batch_axis)
        tensors = [_tensors(plan, features) for features, _ in reading.read().of_replicas]
        initialize = [tf.compat.v1.global_variables_initializer(),
                      tf.compat.v1.local_variables_initializer(),
                      tf.compat.v1.tables_initializer()]
        if reading.initializer is not None:
            initialize.append(reading.initializer)
        with tf.compat.v1.Session() as session:
            for op in initialize:
                session.run(op)
            return _read(session, tensors, count)


def _read(session: tf.compat.v1.Session, tensors: list[dict[str, tuple[Tensor, Tensor]]],
          count: int) -> list[dict[str, BatchIds]]:
    steps: list[dict[str, BatchIds]] = []
    for _ in tqdm.trange(count, desc="Sampling input", unit="batch"):
        try:
            replicas = session.run(tensors)
        except tf.errors.OutOfRangeError:
            break
        steps.append({name: _joined([replica[name] for replica in replicas])
                      for name in replicas[0]})
    return steps


def _tensors(plan: EmbeddingPlan, features: Structure) -> dict[str, tuple[Tensor, Tensor]]:
    split = split_features(plan, features)
    return {name: (data.embedding_indices, _lengths(data, split.batch_size))
            for name, data in split.enqueue_datas.items()}


def _lengths(data: EnqueueData | RaggedEnqueueData, batch_size: Tensor | int) -> Tensor:
    places: Any = data[1]
    if places is None:
        return tf.ones_like(data.embedding_indices)
    if isinstance(data, RaggedEnqueueData):
        return places[1:] - places[:-1]
    samples = places if places.shape.rank == 1 else places[:, 0]
    return tf.math.bincount(tf.cast(samples, tf.int32), minlength=tf.cast(batch_size, tf.int32))


def _joined(replicas: list[tuple[np.ndarray, np.ndarray]]) -> BatchIds:
    return BatchIds(*(np.concatenate(parts) for parts in zip(*replicas, strict=True)))
