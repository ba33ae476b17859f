# SPDX-License-Identifier: Apache-2.0
"""Computes statistics of tables in one step from the engine's measures, without TensorFlow.

Let g_r be the gradient of row r, summed over all lookups and scaled by the multiplier, w_r the row
before the update and w'_r the row after it. With sums over the rows of the step:

    gradient_norm         = √ Σ ‖g_r‖²
    clipped_gradient_norm = √ Σ ‖clip(g_r)‖²
    clipped_share         = gradients with clip(g_r) ≠ g_r / gradients
    update_ratio          = √ Σ ‖w'_r - w_r‖² / √ Σ ‖w_r‖²
"""

import dataclasses
import math
from typing import Any

import numpy as np

from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.plan.partition_strategy import ids_of_rows

HOT_ROWS = 10


@dataclasses.dataclass(frozen=True)
class TableStatistics:
    """One table in one step.

    Attributes:
        multiplier: the gradient multiplier of the step.
        learning_rate: the learning rate of the step.
        gradient_norm: norm of the summed gradients of all rows, after the multiplier.
        clipped_gradient_norm: norm of the same gradients after clipping.
        clipped_share: fraction of the rows whose gradients were clipped.
        update_norm: norm of the change of the rows.
        update_ratio: update_norm divided by the norm of the rows before; 0 if those are 0.
        unique_ids: number of distinct ids in the step.
        total_ids: number of ids that were looked up in the step.
        dropped_ids: number of dropped ids: padding, and ids beyond max_sequence_length.
        coverage: fraction of all rows that were ever trained.
        hot_rows: (id, occurrences in the step), the most frequent ids first.
        row_norms: `[unique_ids]` float32, norms of the rows after the update.
    """

    multiplier: float
    learning_rate: float
    gradient_norm: float
    clipped_gradient_norm: float
    clipped_share: float
    update_norm: float
    update_ratio: float
    unique_ids: int
    total_ids: int
    dropped_ids: int
    coverage: float
    hot_rows: tuple[tuple[int, int], ...]
    row_norms: np.ndarray

    @property
    def scalars(self) -> dict[str, float]:
        """Name -> value of every scalar statistic."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)
                if field.name not in ("hot_rows", "row_norms")}


def summarize(plan: EmbeddingPlan, measures: Any) -> dict[str, TableStatistics]:
    """Returns table name -> statistics.

    Args:
        plan: the tables.
        measures: the `StepMeasures` of a measured step, with arrays instead of tensors.
    """
    hosts = [_by_table(plan, number, host) for number, host in enumerate(measures.hosts)]
    return {table.name: _of_table(
        plan, index, [host[table.name] for host in hosts if table.name in host], measures)
        for index, table in enumerate(plan.tables)}


@dataclasses.dataclass
class _Part:
    """The measures of one part of a table; rows are identified by ids."""

    sums: np.ndarray
    covered: int
    num_ids: int
    num_gradients: int
    ids: np.ndarray
    counts: np.ndarray
    norms: np.ndarray


def _by_table(plan: EmbeddingPlan, number: int, host: Any) -> dict[str, _Part]:
    tables = [table for table in plan.tables if number < len(plan.rows_per_host(table))]
    begin, parts = 0, {}
    for table, sums, covered, (num_ids, num_runs, num_gradients) in zip(
            tables, host.sums, host.covered, host.sizes, strict=True):
        runs = slice(begin, begin + num_runs)
        begin += num_runs
        ids = ids_of_rows(np.asarray(host.row_ids[runs], np.int64), number, table.vocabulary_size,
                          plan.num_hosts, plan.partition_strategy)
        counts = np.diff(host.run_ends[runs], prepend=0)
        norms = host.row_norms[runs]
        if not np.all(np.diff(ids) > 0):  # a row that several cores update has several runs
            ids, first, positions = np.unique(ids, return_index=True, return_inverse=True)
            counts = np.bincount(positions, counts, len(ids)).astype(np.int64)
            norms = norms[first]
        parts[table.name] = _Part(sums, int(covered), int(num_ids), int(num_gradients), ids,
                                  counts, norms)
    return parts


def _of_table(plan: EmbeddingPlan, index: int, parts: list[_Part],
              measures: Any) -> TableStatistics:
    gradient, clipped_gradient, clipped, update, rows = (
        float(value) for value in np.sum([part.sums for part in parts], 0))
    ids = np.concatenate([part.ids for part in parts])
    counts = np.concatenate([part.counts for part in parts])
    total = sum(part.num_ids for part in parts)
    hottest = _hottest(ids, counts)
    return TableStatistics(
        float(measures.multipliers[index]), float(measures.learning_rates[index]),
        math.sqrt(gradient), math.sqrt(clipped_gradient),
        clipped / max(1, sum(part.num_gradients for part in parts)),
        math.sqrt(update), math.sqrt(update / rows) if rows else 0.0, len(ids), total,
        int(measures.given_counts[index]) - total,
        sum(part.covered for part in parts) / plan.tables[index].vocabulary_size,
        tuple((int(ids[place]), int(counts[place])) for place in hottest),
        np.concatenate([part.norms for part in parts]))


def _hottest(ids: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the positions of the `HOT_ROWS` largest counts; of equal ones, of the smallest ids.

    Most counts are equal, which makes `np.partition` take ten times as long.
    """
    as_frequent = np.cumsum(np.bincount(counts)[::-1])[::-1]  # rows with at least each count
    least = max(0, int(np.searchsorted(-as_frequent, -HOT_ROWS, "right")) - 1)
    candidates = np.flatnonzero(counts >= least)
    return candidates[np.lexsort((ids[candidates], -counts[candidates]))[:HOT_ROWS]]
