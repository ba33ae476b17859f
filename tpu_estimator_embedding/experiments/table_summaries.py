# SPDX-License-Identifier: Apache-2.0
"""Summaries of the tables at the end of a run: norms of their rows, and statistics."""

import pathlib
from collections.abc import Iterable
from typing import TypedDict

import numpy as np
from tensorboard.compat.proto import summary_pb2
from tensorboard.plugins.histogram import metadata
from tensorboard.plugins.scalar.summary_v2 import scalar_pb
from tensorboard.util import tensor_util

from tpu_estimator_embedding.checkpoint.inspection import (
    NORM_EDGES,
    CheckpointReport,
    RowStatistics,
    inspect,
)
from tpu_estimator_embedding.experiments.event_files import write_summaries


class TableFacts(TypedDict, total=False):
    """What the report of a sweep says of a table."""

    rows: int
    dim: int
    mean_norm: float
    never_trained: int | None


def write_all(run_directory: pathlib.Path,
              model_dirs: Iterable[pathlib.Path]) -> dict[str, TableFacts]:
    """Writes summaries of the newest checkpoint of each model.

    Args:
        run_directory: directory for the event files.
        model_dirs: directories of models; those without a checkpoint are skipped.

    Returns:
        Key of a table -> rows, dim, mean_norm and never_trained.
    """
    facts: dict[str, TableFacts] = {}
    summaries: list[tuple[int, summary_pb2.Summary]] = []
    for model_dir in model_dirs:
        if not (model_dir / "checkpoint").exists():
            continue
        report = inspect(model_dir)
        facts.update(table_facts(report))
        step = report.global_step or 0
        for table in report.tables:
            assert table.statistics is not None
            summaries += [(step, summary) for summary in _summaries(table.name, table.statistics)]
    if summaries:
        write_summaries(run_directory, "tables", sorted(summaries, key=lambda pair: pair[0]))
    return facts


def table_facts(report: CheckpointReport) -> dict[str, TableFacts]:
    """Returns key of a table -> rows, dim, mean_norm and never_trained."""
    return {table.name: {
        "rows": table.rows, "dim": table.dimension, "mean_norm": table.statistics.mean_norm,
        "never_trained": table.statistics.never_trained}
        for table in report.tables if table.statistics is not None}


def _summaries(name: str, rows: RowStatistics) -> list[summary_pb2.Summary]:
    found = [_histogram(f"row_norm/{name}", rows),
             scalar_pb(f"mean_row_norm/{name}", rows.mean_norm)]
    if rows.never_trained is not None:
        found.append(scalar_pb(f"never_trained_rows/{name}", rows.never_trained))
    return found


def _histogram(tag: str, rows: RowStatistics) -> summary_pb2.Summary:
    """Returns a summary of counted bins, which TensorBoard's own function does not accept."""
    edges = [0.0, *NORM_EDGES, max(NORM_EDGES[-1], rows.max_norm)]
    bins = np.stack([edges[:-1], edges[1:], rows.histogram], axis=1)
    filled = np.flatnonzero(rows.histogram)
    if len(filled):
        bins = bins[filled[0]:filled[-1] + 1]
    return summary_pb2.Summary(value=[summary_pb2.Summary.Value(
        tag=tag, tensor=tensor_util.make_tensor_proto(bins),
        metadata=metadata.create_summary_metadata(
            display_name=None, description="Euclidean norms of the table's rows"))])
