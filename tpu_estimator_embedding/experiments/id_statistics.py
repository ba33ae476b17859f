# SPDX-License-Identifier: Apache-2.0
"""Statistics of sampled ids: per feature, and per host of partitioned tables."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.plan.partition_strategy import PARTITION_STRATEGIES, shard_of_id

_WORTH_CHANGING = 1.05  # minimum ratio of the maximum loads to recommend a change


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
