# SPDX-License-Identifier: Apache-2.0
"""Formats statistics of tables for TensorBoard, and as a log line."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.statistics.table_statistics import TableStatistics

PREFIX = "embedding/"
_BINS = 30
_TABLES_OF_LINE = 8


def to_summary(statistics: Mapping[str, TableStatistics]) -> tf.compat.v1.Summary:
    """Returns a `Summary`: scalars `embedding/TABLE/NAME`, and a histogram `.../row_norms`."""
    values = [tf.compat.v1.Summary.Value(tag=f"{PREFIX}{table}/{name}", simple_value=value)
              for table, of_table in statistics.items()
              for name, value in of_table.scalars.items()]
    # A histogram has finite numbers only; others appear in the scalars.
    finite = {table: of_table.row_norms[np.isfinite(of_table.row_norms)]
              for table, of_table in statistics.items()}
    values += [tf.compat.v1.Summary.Value(tag=f"{PREFIX}{table}/row_norms", histo=_histogram(norms))
               for table, norms in finite.items() if len(norms)]
    values += [tf.compat.v1.Summary.Value(
        tag=f"{PREFIX}{table}/hot_rows", tensor=tf.make_tensor_proto(_hot_rows(of_table)),
        metadata=tf.compat.v1.SummaryMetadata(plugin_data={"plugin_name": "text"}))
        for table, of_table in statistics.items() if of_table.hot_rows]
    return tf.compat.v1.Summary(value=values)


def to_line(statistics: Mapping[str, TableStatistics], step: int) -> str:
    """Returns a log line about a step; of many tables, it shows those with the largest updates."""
    moving = sorted(statistics, key=lambda table: -statistics[table].update_ratio)
    shown = [table for table in statistics if table in moving[:_TABLES_OF_LINE]]
    line = "; ".join(f"{table}: {_of_table(statistics[table])}" for table in shown)
    more = len(statistics) - len(shown)
    return f"tables at step {step}: {line}" + (f"; and {more} that moved less" if more else "")


def _of_table(of_table: TableStatistics) -> str:
    clipped = f" ({of_table.clipped_share:.0%} of rows clipped)" if of_table.clipped_share else ""
    dropped = f", {of_table.dropped_ids:,} dropped" if of_table.dropped_ids else ""
    hot = f", hottest {of_table.hot_rows[0][0]}" if of_table.hot_rows else ""
    return (f"multiplier {of_table.multiplier:g}, learning rate {of_table.learning_rate:g}, "
            f"gradient norm {of_table.gradient_norm:.4g}{clipped}, "
            f"update {of_table.update_ratio:.2g} of rows, {of_table.unique_ids:,} of "
            f"{of_table.total_ids:,} ids distinct{dropped}{hot}, {of_table.coverage:.1%} of "
            "rows ever trained")


def _histogram(values: np.ndarray) -> tf.compat.v1.HistogramProto:
    """Counts values in bins of equal width, three times as fast as `np.histogram`.

    `np.dot` is avoided: the threads of BLAS would compete with those of the kernels.
    """
    values = values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    limits = np.linspace(low, high, _BINS + 1)[1:]
    per_width = _BINS / (high - low) if high > low else 0.0
    bins = np.minimum(((values - low) * per_width).astype(np.intp), _BINS - 1)
    return tf.compat.v1.HistogramProto(
        min=low, max=high, num=len(values), sum=float(values.sum()),
        sum_squares=float(np.square(values).sum()), bucket_limit=limits.tolist(),
        bucket=np.bincount(bins, minlength=_BINS).tolist())


def _hot_rows(of_table: TableStatistics) -> str:
    rows = "\n".join(f"| {row} | {count} |" for row, count in of_table.hot_rows)
    return f"| id | times in the step |\n|---|---|\n{rows}"
