# SPDX-License-Identifier: Apache-2.0
"""Measures how the time of a step depends on one size at a time."""

import dataclasses
import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks import baselines
from benchmarks.timing import TimingSettings, measure
from benchmarks.worker import Worker
from benchmarks.workloads import Workload

_BASE = Workload("base", rows=100_000, dim=32, batch_size=4096, ids_per_sample=(10,))
_SETTINGS = TimingSettings(rounds=5, seconds=0.15, warm_up_rounds=1)
AGAINST = ("native", "tf_ops", "stock_graph")
_THREADS = (1, 2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True)
class Axis:
    """A size that varies while all others are constant.

    Attributes:
        name: name of the file.
        label: description of the size.
        sizes: its values.
        workload: function from the size to the workload.
        options: function from the size to keyword arguments of the baselines.
        against: names of the baselines that support the size.
    """

    name: str
    label: str
    sizes: tuple[int, ...]
    workload: Callable[[int], Workload]
    options: Callable[[int], dict[str, Any]] = lambda _: {}
    against: tuple[str, ...] = AGAINST


@dataclasses.dataclass
class Curve:
    """The measurements along one axis.

    Attributes:
        points: baseline -> (size, seconds per step) pairs.
        errors: descriptions of failed measurements.
    """

    points: dict[str, list[tuple[int, float]]]
    errors: list[str]

    def slope(self, baseline: str) -> float:
        """Returns the exponent p of the best fit of a power law size^p."""
        return fitted_exponent(self.points[baseline])

    def growth(self, baseline: str) -> float:
        """Returns the time per step at the last size, divided by that at the first size."""
        pairs = self.points[baseline]
        return pairs[-1][1] / pairs[0][1]


def axes(cores: int) -> list[Axis]:
    """Returns all axes for a machine with this number of cores."""
    replace = dataclasses.replace
    return [
        Axis("vocabulary", "rows of the table, of which 8,000 are touched",
             (10 ** 4, 10 ** 5, 10 ** 6, 10 ** 7),
             lambda rows: replace(_BASE, rows=rows, touched_rows=8_000)),
        Axis("batch", "samples in a step", (256, 1024, 4096, 16_384, 65_536),
             lambda size: replace(_BASE, batch_size=size)),
        Axis("ids", "ids per sample", (1, 3, 10, 30, 100),
             lambda ids: replace(_BASE, ids_per_sample=(ids,))),
        Axis("dim", "values of a row", (4, 16, 64, 256, 1024),
             lambda dim: replace(_BASE, dim=dim)),
        Axis("tables", "tables", (1, 4, 16, 64),
             lambda tables: replace(_BASE, ids_per_sample=(10,) * tables)),
        Axis("threads", "threads", tuple(n for n in _THREADS if n <= cores),
             lambda _: replace(_BASE, ids_per_sample=(10,) * 8),
             lambda threads: {"threads": threads}),
        Axis("hosts", "hosts, all in one process", (1, 2, 4, 8),
             lambda _: replace(_BASE, ids_per_sample=(10,) * 8),
             lambda hosts: {"num_hosts": hosts}, ("native", "tf_ops")),
    ]


def measure_axis(axis: Axis, workers: dict[str, Worker],
                 progress: Callable[[str], None]) -> Curve:
    """Measures one axis, all baselines in turn at each size."""
    entries = [baselines.ALL[name] for name in axis.against if name in workers]
    curve = Curve({entry.name: [] for entry in entries}, [])
    for size in axis.sizes:
        workload = dataclasses.replace(axis.workload(size), name=f"{axis.name} {size}")
        if "threads" in axis.options(size):  # a process keeps the thread pool of its first session
            for entry in entries:
                workers[entry.name].stop()
        for result in measure(workload, entries, workers, _SETTINGS, progress,
                              axis.options(size)):
            if result.error:
                curve.errors.append(f"{workload.name}, {result.baseline}: {result.error}")
            else:
                curve.points[result.baseline].append((size, result.median))
    curve.points = {name: pairs for name, pairs in curve.points.items() if pairs}
    return curve


def fitted_exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """Returns the slope of the least-squares line through the logarithms.

    >>> round(fitted_exponent([(1, 2.0), (10, 20.0), (100, 200.0)]), 6)
    1.0
    """
    x, y = ([math.log(pair[i]) for pair in pairs] for i in range(2))
    x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
    variance = sum((a - x_mean) ** 2 for a in x)
    if not variance:
        return 0.0
    return sum((a - x_mean) * (b - y_mean) for a, b in zip(x, y, strict=True)) / variance


def text(axis: Axis, curve: Curve) -> str:
    """Formats the measurements of one axis."""
    lines = [f"{axis.label}: ms per step",
             f"  {'':<14}" + "".join(f"{size:>12,}" for size in axis.sizes) + f"{'slope':>9}"]
    for name, pairs in curve.points.items():
        of_size = dict(pairs)
        cells = (f"{1e3 * of_size[size]:12.2f}" if size in of_size else f"{'-':>12}"
                 for size in axis.sizes)
        lines.append(f"  {name:<14}" + "".join(cells) + f"{curve.slope(name):9.2f}")
    return "\n".join([*lines, *(f"  {error}" for error in curve.errors)])


def figure_path(directory: pathlib.Path, axis: Axis) -> pathlib.Path:
    """Returns the path of the figure of an axis."""
    return directory / f"scaling_{axis.name}.png"
