# SPDX-License-Identifier: Apache-2.0
"""Histograms and most frequent rows of the summaries, beside NumPy's slower functions."""

import numpy as np
import pytest

from tpu_estimator_embedding.statistics.summaries import to_summary
from tpu_estimator_embedding.statistics.table_statistics import TableStatistics, _hottest


def histogram_of(row_norms):
    """Returns the histogram of the summary, or None."""
    norms = np.asarray(row_norms, np.float32)
    statistics = TableStatistics(1, 1, 1, 1, 0, 1, 1, len(norms), len(norms), 0, 1, (), norms)
    values = to_summary({"t": statistics}).value
    return next((value.histo for value in values if value.tag.endswith("row_norms")), None)


@pytest.mark.parametrize("row_norms", [
    np.random.default_rng(1).gamma(2, 3, 5_000), [0.5], [2, 2, 2], range(31)])
def test_histograms(row_norms):
    found = histogram_of(row_norms)
    norms = np.asarray(row_norms, np.float32).astype(np.float64)
    counts, edges = np.histogram(norms, 30, (norms.min(), norms.max()))
    if len(set(norms)) > 1:
        np.testing.assert_array_equal(found.bucket, counts)
        np.testing.assert_allclose(found.bucket_limit, edges[1:])
    assert sum(found.bucket) == found.num == len(norms)
    assert (found.min, found.max) == (norms.min(), norms.max())
    assert found.sum == pytest.approx(norms.sum())
    assert found.sum_squares == pytest.approx((norms ** 2).sum())


def test_numbers_that_are_not_finite_are_left_out():
    found = histogram_of([1, np.nan, 3, np.inf])
    assert (found.num, found.min, found.max) == (2, 1, 3)
    assert histogram_of([np.nan]) is None
    assert histogram_of([]) is None


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 500])
@pytest.mark.parametrize("most", [1, 2, 5, 300])
def test_most_frequent_rows(size, most):
    rng = np.random.default_rng(size + most)
    ids, counts = rng.permutation(3 * size)[:size], rng.integers(1, most + 1, size)
    expected = sorted(range(size), key=lambda row: (-counts[row], ids[row]))[:10]
    assert _hottest(ids, counts).tolist() == expected
