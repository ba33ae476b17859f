# SPDX-License-Identifier: Apache-2.0
"""Statistics of the rows of a table, computed block by block.

>>> statistics = RowStatistics(["accumulators"])
>>> statistics.add(np.array([[3.0, 4.0], [0.0, 2.0]]), {"accumulators": np.array(
...     [[0.1, 0.1], [0.1, 0.3]])})
>>> statistics.mean_norm, statistics.max_norm, statistics.never_trained
(3.5, 5.0, 1)
"""

from collections.abc import Iterable, Mapping

import numpy as np

from tpu_estimator_embedding.checkpoint.slot_names import GROWING_SLOTS

# Bins of the histogram of norms: from 1e-6 to 1e4, 20 bins per power of 10.
NORM_EDGES = np.logspace(-6, 4, 201)


class RowStatistics:
    """Statistics of the rows seen so far.

    Attributes:
        rows: number of rows.
        min_norm, max_norm: smallest and largest Euclidean norm of a row; NaN without rows.
        not_finite: number of rows with an infinite value or NaN.
        histogram: number of rows below NORM_EDGES[0], in every bin, and from the last edge on.
    """

    def __init__(self, slots: Iterable[str]):
        self._initial = {slot: np.inf if slot in GROWING_SLOTS else 0.0 for slot in slots}
        self._untrained, self._sum = 0, 0.0
        self.rows = self.not_finite = 0
        self.min_norm = self.max_norm = float("nan")
        self.histogram = np.zeros(len(NORM_EDGES) + 1, np.int64)

    def add(self, rows: np.ndarray, slots: Mapping[str, np.ndarray]) -> None:
        """Adds rows.

        Args:
            rows: `[n, dim]`.
            slots: slot name -> the same shape.
        """
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        finite = norms[np.isfinite(norms)]
        self.rows += len(rows)
        self.not_finite += len(norms) - len(finite)
        if len(finite):
            self._sum += float(finite.sum())
            self.min_norm = float(np.fmin(self.min_norm, finite.min()))
            self.max_norm = float(np.fmax(self.max_norm, finite.max()))
        self.histogram += np.bincount(np.searchsorted(NORM_EDGES, finite, side="right"),
                                      minlength=len(self.histogram))
        self._count_untrained(len(rows), slots)

    @property
    def mean_norm(self) -> float:
        """Mean norm of the finite rows; NaN without finite rows."""
        finite = self.rows - self.not_finite
        return self._sum / finite if finite else float("nan")

    @property
    def never_trained(self) -> int | None:
        """Number of rows whose slots all have their initial value; None without slots.

        The initial value of a slot that only grows is assumed to be its smallest value. If all rows
        were trained, this may count the least trained rows.
        """
        return self._untrained if self._initial else None

    def _count_untrained(self, rows: int, slots: Mapping[str, np.ndarray]) -> None:
        for slot, values in slots.items():
            smallest = float(values.min(initial=np.inf))
            if slot in GROWING_SLOTS and smallest < self._initial[slot]:
                self._initial[slot], self._untrained = smallest, 0
        untrained = np.ones(rows, bool)
        for slot, values in slots.items():
            untrained &= (values == values.dtype.type(self._initial[slot])).all(axis=1)
        self._untrained += int(untrained.sum())
