# SPDX-License-Identifier: Apache-2.0
"""Describes a checkpoint: its tables, their layouts, and statistics of their rows."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, Table
from tpu_estimator_embedding.checkpoint.conversion import StrPath
from tpu_estimator_embedding.checkpoint.files import check_new_figure, new_files, progress_bar
from tpu_estimator_embedding.checkpoint.formats import FORMATS
from tpu_estimator_embedding.checkpoint.names import GROWING_SLOTS, Names
from tpu_estimator_embedding.checkpoint.reading import Reading, check_used, read_checkpoint
from tpu_estimator_embedding.checkpoint.stored_tensor import row_blocks
from tpu_estimator_embedding.json_text import finite_values

# Bins of the histogram of norms: from 1e-6 to 1e4, 20 bins per power of 10.
NORM_EDGES = np.logspace(-6, 4, 201)

# Slots that have their initial value after an update, too: that of FrequencyEstimator in step 0.
_UNKNOWN = {"last_hit_step"}


class RowStatistics:
    """Statistics of the rows of a table seen so far; blocks of rows are added one by one.

    >>> statistics = RowStatistics(["accumulators"])
    >>> statistics.add(np.array([[3.0, 4.0], [0.0, 2.0]]), {"accumulators": np.array(
    ...     [[0.1, 0.1], [0.1, 0.3]])})
    >>> statistics.mean_norm, statistics.max_norm, statistics.never_trained
    (3.5, 5.0, 1)

    Attributes:
        rows: number of rows.
        min_norm, max_norm: smallest and largest Euclidean norm of a row; NaN without rows.
        not_finite: number of rows with an infinite value or NaN.
        histogram: number of rows below NORM_EDGES[0], in every bin, and from the last edge on.
    """

    def __init__(self, slots: Iterable[str]):
        slots = set(slots)
        # Where slots start at 0, they show it: others may shrink, as those of ProximalYogi do.
        self._telling = () if slots & _UNKNOWN else tuple(
            slots - GROWING_SLOTS or slots & GROWING_SLOTS)
        self._initial = {slot: np.inf if slot in GROWING_SLOTS else 0.0 for slot in self._telling}
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
        """Number of rows whose slots that start at 0 are 0; None where no slot shows it.

        If none starts at 0, as with Adagrad, the initial value is assumed to be the smallest one.
        If all rows were trained, this may count the least trained rows.
        """
        return self._untrained if self._initial else None

    def _count_untrained(self, rows: int, slots: Mapping[str, np.ndarray]) -> None:
        untrained = np.ones(rows, bool)
        for slot in self._telling:
            values = slots[slot]
            smallest = float(values.min(initial=np.inf))
            if slot in GROWING_SLOTS and smallest < self._initial[slot]:
                self._initial[slot], self._untrained = smallest, 0
            untrained &= (values == values.dtype.type(self._initial[slot])).all(axis=1)
        self._untrained += int(untrained.sum())


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
        form: "v1", "tf2", "tpu-embedding-layer", "keras-rs", "keras-rs-jax" or "npz".
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

    def to_dict(self) -> dict[str, object]:
        """Returns the report as plain values, for `inspect --json`; norms that are NaN are None."""
        report = dataclasses.asdict(dataclasses.replace(self, tables=()))
        return {**report, "path": str(self.path), "tables": [
            {**dataclasses.asdict(dataclasses.replace(table, statistics=None)),
             "statistics": table.statistics and finite_values(_statistics(table.statistics))}
            for table in self.tables],
            "variables": {name: list(shape) for name, shape in self.variables.items()}}


def inspect(checkpoint: StrPath, *, from_: str | None = None,
            names: Mapping[str, str] | None = None, reading: Reading | None = None,
            values: bool = True, progress: bool = False) -> CheckpointReport:
    """Describes a checkpoint, without TensorFlow.

    Args:
        checkpoint: a checkpoint, a directory with one, or an `.npz` file.
        from_: the format that the checkpoint must have; None accepts any format.
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
    table_names.check_known(contents.tables, contents.variables)
    if names and FORMATS[contents.form].has_estimator_names:
        raise ValueError(f"`names` has no effect on {contents.form!r}, which has the names of "
                         f"TPUEstimator, got {dict(names)}. Leave it out.")
    size = sum(table.size for table in contents.tables.values()) if values else 0
    with progress_bar(f"Reading {contents.path.name}", size, progress and values) as bar:
        tables = tuple(_report(table, _read_statistics(table, bar.update) if values else None)
                       for _, table in sorted(contents.tables.items()))
    return CheckpointReport(contents.path, contents.form, contents.global_step, contents.size,
                            tables, {name: contents.variables[name].shape
                                     for name in sorted(contents.variables)})


def _report(table: Table, statistics: RowStatistics | None) -> TableReport:
    return TableReport(
        table.name, table.vocabulary_size, table.dimension, table.optimizer, tuple(table.slots),
        table.layout.num_hosts, table.layout.partition_strategy, table.size, statistics)


def _read_statistics(table: Table, advance: Callable[[int], object]) -> RowStatistics:
    statistics = RowStatistics(table.slots)
    for start, stop in row_blocks(table.vocabulary_size, table.rows.row_bytes):
        blocks = {slot: tensor.read_rows(start, stop) for slot, tensor in table.tensors()}
        advance(sum(block.nbytes for block in blocks.values()))
        statistics.add(blocks.pop(PARAMETERS), blocks)
    return statistics


def _statistics(statistics: RowStatistics) -> dict[str, float]:
    return {name: getattr(statistics, name) for name in (
        "min_norm", "mean_norm", "max_norm", "not_finite", "never_trained")}


def save_histogram(report: CheckpointReport, path: pathlib.Path) -> None:
    """Writes a figure with a histogram of norms for each table of the report.

    Raises:
        ValueError: if the report has no tables, or was created without values.
        OSError: if the file cannot be written.
    """
    check_new_figure("histogram", path)
    tables = [table for table in report.tables if table.statistics is not None]
    if not tables:
        raise ValueError(f"No histogram of {report.path}: the report has no tables whose values "
                         "were read.")
    with figures.figure(8, 2.4 * len(tables)) as figure:
        for axes, table in zip(np.atleast_1d(figure.subplots(len(tables))), tables, strict=True):
            assert table.statistics is not None
            counts = table.statistics.histogram
            axes.stairs(counts[1:-1], NORM_EDGES, fill=True)
            shown = np.flatnonzero(counts[1:-1])
            if len(shown):
                axes.set_xlim(NORM_EDGES[max(0, shown[0] - 5)],
                              NORM_EDGES[min(len(NORM_EDGES) - 1, shown[-1] + 6)])
            axes.set_xscale("log")
            axes.set_title(f"{table.name}: {table.rows:,} rows, {counts[0]:,} below 1e-6",
                           fontsize="medium")
            axes.set_xlabel("Euclidean norm of a row")
            axes.set_ylabel("rows")
        content = figures.content(figure, path.suffix[1:])
    with new_files([path], 1 << 20) as [unfinished]:
        unfinished.write_bytes(content)
