# SPDX-License-Identifier: Apache-2.0
"""Describes a checkpoint: its tables, their layouts and statistics."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.bundle.stored_tensor import row_blocks
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Contents, Table
from tpu_estimator_embedding.checkpoint.conversion import StrPath
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.reading import Reading, check_used, read_checkpoint
from tpu_estimator_embedding.checkpoint.report.progress import progress_bar
from tpu_estimator_embedding.checkpoint.report.row_statistics import RowStatistics


@dataclasses.dataclass(frozen=True)
class TableReport:
    """The description of a table.

    Attributes:
        name: its key in a TPUEstimator checkpoint.
        rows: its vocabulary size.
        dimension: number of values per row.
        optimizer: the optimizer with these slots; None without slots.
        slots: names of the slots.
        num_hosts: number of hosts in the layout of the file.
        partition_strategy: "div" or "mod".
        size: number of bytes, including slots.
        statistics: statistics of the values; None if they were not read.
    """

    name: str
    rows: int
    dimension: int
    optimizer: str | None
    slots: tuple[str, ...]
    num_hosts: int
    partition_strategy: str
    size: int
    statistics: RowStatistics | None


@dataclasses.dataclass(frozen=True)
class CheckpointReport:
    """The description of a checkpoint.

    Attributes:
        path: path of the checkpoint.
        form: "v1", "tf2", "tpu-embedding-layer", "keras-rs" or "npz".
        global_step: its step; None if it does not contain one.
        size: number of bytes of all values.
        tables: its tables, sorted by name.
        variables: name -> shape, for all other variables.
    """

    path: pathlib.Path
    form: str
    global_step: int | None
    size: int
    tables: tuple[TableReport, ...]
    variables: Mapping[str, tuple[int, ...]]

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain values, for `inspect --json`."""
        report = dataclasses.asdict(dataclasses.replace(self, tables=()))
        return {**report, "path": str(self.path), "tables": [
            {**dataclasses.asdict(dataclasses.replace(table, statistics=None)),
             "statistics": table.statistics and _statistics(table.statistics)}
            for table in self.tables],
            "variables": {name: list(shape) for name, shape in self.variables.items()}}


def inspect(checkpoint: StrPath, *, from_: str | None = None,
            names: Mapping[str, str] | None = None, reading: Reading | None = None,
            values: bool = True, progress: bool = False) -> CheckpointReport:
    """Describes a checkpoint, without TensorFlow.

    Args:
        checkpoint: a checkpoint, a directory with one, or an `.npz` file.
        from_: the form that the checkpoint must have; None accepts any form.
        names: name in TPUEstimator -> name of the table, or path of the variable, in TF2.
        reading: facts that the checkpoint does not contain.
        values: whether to read the tables, which also verifies their checksums.
        progress: whether to show a progress bar.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if it is damaged or in another format, or an argument is invalid.
    """
    table_names = Names(names)
    contents = read_checkpoint(checkpoint, from_, table_names, reading)
    check_used(reading, contents)
    table_names.check_known(contents)
    checks.check(not names or contents.form not in ("v1", "npz"), "names",
                 f"left out for {contents.form!r}, which has the names of TPUEstimator", names)
    size = sum(table.size for table in contents.tables.values()) if values else 0
    with progress_bar(f"Reading {contents.path.name}", size, progress and values) as bar:
        tables = tuple(_report(table, _read_statistics(table, bar.update) if values else None)
                       for _, table in sorted(contents.tables.items()))
    return CheckpointReport(contents.path, contents.form, contents.global_step, contents.size,
                            tables, _shapes(contents))


def _report(table: Table, statistics: RowStatistics | None) -> TableReport:
    return TableReport(
        table.name, table.vocabulary_size, table.dimension, table.optimizer, tuple(table.slots),
        table.layout.num_hosts, table.layout.partition_strategy, table.size, statistics)


def _read_statistics(table: Table, advance: Any) -> RowStatistics:
    statistics = RowStatistics(table.slots)
    for start, stop in row_blocks(table.vocabulary_size, table.rows.row_bytes):
        blocks = {slot: tensor.read_rows(start, stop) for slot, tensor in table.tensors()}
        advance(sum(block.nbytes for block in blocks.values()))
        statistics.add(blocks.pop(PARAMETERS), blocks)
    return statistics


def _shapes(contents: Contents) -> dict[str, tuple[int, ...]]:
    return {name: contents.variables[name].shape for name in sorted(contents.variables)}


def _statistics(statistics: RowStatistics) -> dict[str, Any]:
    return {"min_norm": statistics.min_norm, "mean_norm": statistics.mean_norm,
            "max_norm": statistics.max_norm, "not_finite": statistics.not_finite,
            "never_trained": statistics.never_trained}
