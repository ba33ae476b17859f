# SPDX-License-Identifier: Apache-2.0
"""Saving and restoring tables, beside the disk, a checksum and TensorFlow's Saver.

Each way runs in its own process, in turns. `python -m benchmarks.checkpoints WAY GIB
DIRECTORY` is such a process: it prints its figures as JSON. A save has ended when its files are on
the disk, and a restore reads them from there.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

from benchmarks import checkpoint_ways
from benchmarks.workloads import Workload

ROUNDS = 3
GIB = 1.0  # of tables, without slots
QUICK_GIB = 1 / 64
DISK, CHECKSUM, STOCK, BETWEEN, WHILE = "disk", "crc32c", "stock", "between_steps", "while_training"
WAYS = {DISK: "dd, with fsync", CHECKSUM: "CRC32C alone, in memory",
        STOCK: "stock TensorFlow: sparse Adagrad, v1 Saver",
        BETWEEN: "this package, between steps",
        WHILE: "this package, while training goes on"}
_TABLES, _DIM = 8, 64
_WIDTH = 84  # of what a ratio is of
_SHARE = 0.8  # of the disk or of the checksum, the slower one
_STALL = 0.2  # seconds per GB of tables

Figures = Mapping[str, list[float]]  # figure -> its values, one for each round


def workload(gib: float) -> Workload:
    """Returns tables of so many GiB together, and a slot of the same size.

    >>> workload(1.0).rows, workload(1.0).bytes == 2 << 30
    (524288, True)
    """
    rows = max(1, round(gib * 2 ** 30 / (_TABLES * _DIM * 4)))
    return Workload("checkpoints", rows, _DIM, 4096, (1,) * _TABLES)


def measure(gib: float, rounds: int, directory: pathlib.Path,
            progress: Callable[[str], None]) -> dict[str, Figures]:
    """Runs each way in turn; calls `progress` with each, `rounds * len(WAYS)` times.

    Args:
        gib: GiB of the tables.
        rounds: turns of each way.
        directory: where checkpoints are written, and deleted.
        progress: receives what runs.
    """
    measured: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    for _ in range(rounds):
        for way in WAYS:
            progress(way)
            with tempfile.TemporaryDirectory(dir=directory) as files:
                done = subprocess.run([sys.executable, "-m", __name__, way, str(gib), files],
                                      check=True, stdout=subprocess.PIPE,
                                      stderr=subprocess.DEVNULL, text=True)
            for figure, value in json.loads(done.stdout.splitlines()[-1]).items():
                measured[way].setdefault(figure, []).append(value)
    return measured


def text(gib: float, measured: Mapping[str, Figures]) -> str:
    """Returns a table of medians and their ratios."""
    size = workload(gib).bytes
    lines = [f"{size / 1e9:.3g} GB: tables of {size / 2e9:.3g} GB and Adagrad's slot",
             f"  {'':<46}{'GB/s':>14}{'longest':>12}{'other':>8}{'MB over tables, slots':>24}",
             f"  {'':<46}{'save':>7}{'restore':>8}{'step, ms':>11}{'steps':>8}"
             f"{'saving':>12}{'restoring':>12}"]
    for way, title in WAYS.items():
        median = _medians(measured[way])
        line = f"  {title:<46}{_rate(size, median['save'])}{_rate(size, median['restore'])}"
        if "step" in median:
            line += (f"{1e3 * median['stall']:>11,.0f}{1e3 * median['step']:>8.1f}"
                     f"{median['saving_bytes'] / 1e6:>12,.0f}"
                     f"{median['restoring_bytes'] / 1e6:>12,.0f}")
        lines.append(line)
    return "\n".join([*lines, "", *_ratio_lines(size, measured)])


def _rate(size: int, seconds: float) -> str:
    return f"{size / seconds / 1e9:>8.2f}"


def _medians(figures: Figures) -> dict[str, float]:
    return {figure: statistics.median(values) for figure, values in figures.items()}


def _ratio_lines(size: int, measured: Mapping[str, Figures]) -> list[str]:
    lines = [f"  {'ratios':<{_WIDTH}}{'wanted':>10}{'in turns':>10}{'medians':>10}"]
    for way in (STOCK, BETWEEN, WHILE):
        for figure in ("save", "restore"):
            bound = [max(pair) for pair in zip(measured[DISK][figure], measured[CHECKSUM][figure],
                                               strict=True)]
            of_medians = max(statistics.median(measured[other][figure])
                             for other in (DISK, CHECKSUM))
            lines.append(_ratio_line(
                f"{figure}, {WAYS[way]}, against the slower of both", bound, of_medians,
                measured[way][figure], _SHARE if way != STOCK else None))
    for way in (BETWEEN, WHILE):
        for figure in ("save", "restore"):
            lines.append(_ratio_line(f"{figure}, {WAYS[way]}, against stock",
                                     measured[STOCK][figure],
                                     statistics.median(measured[STOCK][figure]),
                                     measured[way][figure], None))
    stall = statistics.median(measured[WHILE]["stall"]) / (size / 2e9)
    lines.append(f"  {'longest step while training goes on, s per GB of tables':<{_WIDTH}}"
                 f"{f'<= {_STALL}':>10}{'':>10}{stall:>10.2f}  {_verdict(stall <= _STALL)}")
    return lines


def _ratio_line(what: str, reference: Sequence[float], reference_of_medians: float,
                seconds: Sequence[float], wanted: float | None) -> str:
    in_turns = statistics.median(one / other for one, other in zip(reference, seconds, strict=True))
    of_medians = reference_of_medians / statistics.median(seconds)
    verdict = f"  {_verdict(in_turns >= wanted)}" if wanted else ""
    return (f"  {what:<{_WIDTH}}{f'>= {wanted:.0%}' if wanted else '':>10}{in_turns:>10.0%}"
            f"{of_medians:>10.0%}{verdict}")


def _verdict(is_reached: bool) -> str:
    return "reached" if is_reached else "NOT REACHED"


def main(arguments: Sequence[str]) -> None:
    """Measures the way that the command line names."""
    way, gib, directory = arguments
    print(json.dumps(getattr(checkpoint_ways, way)(workload(float(gib)), pathlib.Path(directory))))


if __name__ == "__main__":
    main(sys.argv[1:])
