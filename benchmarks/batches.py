# SPDX-License-Identifier: Apache-2.0
"""Ids and gradients of a workload, the same in every process."""

from typing import NamedTuple

import numpy as np

from benchmarks.workloads import Workload

ZIPF_EXPONENT = 1.05
_SEED = 20


class Batch(NamedTuple):
    """The input of one step.

    Attributes:
        ids: for each table `[batch * ids per sample]` int64.
        splits: for each table `[batch + 1]` int64: sample j has `ids[splits[j]:splits[j + 1]]`.
    """

    ids: list[np.ndarray]
    splits: list[np.ndarray]


def make_batches(workload: Workload, count: int) -> list[Batch]:
    """Returns `count` batches.

    >>> from benchmarks.workloads import TINY
    >>> [batch] = make_batches(TINY, 1)
    >>> [ids.shape for ids in batch.ids], batch.splits[1][:3].tolist()
    ([(12,), (36,), (24,)], [0, 3, 6])
    """
    ids_of_tables = [_draw(workload, table, count) for table in range(workload.num_tables)]
    splits = [np.arange(workload.batch_size + 1, dtype=np.int64) * ids
              for ids in workload.ids_per_sample]
    return [Batch([ids[number] for ids in ids_of_tables], splits) for number in range(count)]


def make_gradients(workload: Workload) -> list[np.ndarray]:
    """Returns the gradient `[batch, dim]` of the activations of every table."""
    random = np.random.default_rng(_SEED)
    shape = (workload.batch_size, workload.dim)
    return [random.standard_normal(shape, np.float32) for _ in range(workload.num_tables)]


def make_labels(workload: Workload) -> np.ndarray:
    """Returns a label `[batch, 1]` for each sample, 0 or 1."""
    random = np.random.default_rng(_SEED)
    return random.integers(0, 2, (workload.batch_size, 1)).astype(np.float32)


def unique_rows(workload: Workload, batch: Batch) -> list[np.ndarray]:
    """Returns the distinct ids of every table, in the order of first occurrence."""
    distinct = []
    for ids in batch.ids:
        values, first = np.unique(ids, return_index=True)
        distinct.append(values[np.argsort(first)])
    return distinct


def _draw(workload: Workload, table: int, count: int) -> list[np.ndarray]:
    """Returns the ids of one table for every batch."""
    random = np.random.default_rng((_SEED, table))
    size = workload.batch_size * workload.ids_per_sample[table]
    if workload.touched_rows:
        rows = random.choice(workload.rows, min(workload.touched_rows, workload.rows),
                             replace=False).astype(np.int64)
        return [random.choice(rows, size) for _ in range(count)]
    shares = np.arange(1, workload.rows + 1, dtype=np.float64) ** -ZIPF_EXPONENT
    cumulative = np.cumsum(shares) / shares.sum()
    id_of_rank = random.permutation(workload.rows).astype(np.int64)
    return [id_of_rank[np.searchsorted(cumulative, random.random(size))] for _ in range(count)]
