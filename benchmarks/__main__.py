# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks`: measures all baselines on this machine, side by side."""

import argparse
import contextlib
import json
import math
import pathlib
import sys
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from benchmarks import (
    baselines,
    checkpoints,
    cluster,
    dlrm,
    exchange,
    machine,
    plots,
    report,
    scaling,
    startup,
    targets,
    timing,
)
from benchmarks.baselines import Entry
from benchmarks.worker import Worker
from benchmarks.workloads import ALL, MEASURED, Workload

_EXAMPLES = """\
examples:
  python -m benchmarks                       W, W1, W2 and small steps (about 12 minutes)
  python -m benchmarks --resume              continue an interrupted run
  python -m benchmarks --quick               W and W2, engine level, in under two minutes
  python -m benchmarks --workloads W --only native,stock_graph
  python -m benchmarks --quick --simd avx2   with AVX-512 and with AVX2, side by side
  python -m benchmarks startup               install(), and start to first step (about 5 minutes)
  python -m benchmarks scaling               time of a step against each size (about 10 minutes)
  python -m benchmarks cluster               W on parameter servers, all here (about 15 minutes)
  python -m benchmarks exchange              bytes of a step against servers (about 20 seconds)
  python -m benchmarks dlrm                  a DLRM in several ways (about two minutes)
  python -m benchmarks checkpoints           save and restore 2 GiB (about 15 minutes)
"""
_QUICK_WORKLOADS = ("W", "W2")
_CLUSTER_SECONDS = 15.0
_WITHOUT_BASELINES = ("checkpoints", "cluster", "dlrm", "exchange", "startup")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints, writes; returns the exit status."""
    args = _parser().parse_args(arguments)
    entries = [] if args.what in _WITHOUT_BASELINES else _entries(args)
    directory = pathlib.Path(args.output)
    directory.mkdir(parents=True, exist_ok=True)
    if args.what == "cluster":
        return _measure_clusters(directory, args)
    if args.what == "exchange":
        return _count_bytes(directory)
    if args.what == "dlrm":
        return _train_dlrm(directory, args.quick)
    if args.what == "checkpoints":
        return _save_and_restore(directory, args)
    if args.what == "startup":
        return _start_programs(directory, args.quick)
    if args.what == "scaling":
        return _scale(directory, entries)
    names = args.workloads or (_QUICK_WORKLOADS if args.quick else [w.name for w in MEASURED])
    settings = timing.QUICK if args.quick else timing.TimingSettings()
    described = machine.describe()
    results: dict[str, dict[str, timing.Result]] = {}
    for name in names:
        measured = report.load(directory, name) if args.resume else None
        if measured is None:
            with _processes(directory, entries) as workers:
                measured = _measure(ALL[name], entries, workers, settings)
            report.save(directory, name, measured, described)
        results[name] = measured
    printed = report.text(results, described | machine.load("load after"))
    print(printed)
    (directory / "report.txt").write_text(f"{printed}\n")
    _draw(lambda: plots.bars(results, directory / "benchmarks.png"))
    print(f"\nFigures and JSON are in {directory}/.")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog=_EXAMPLES,
        description="Compares this package with other libraries that train embedding tables on "
        "a CPU. Baselines that are not installed are skipped: pip install '.[bench]'.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="table",
                        choices=("table", "startup", "scaling", "cluster", "exchange",
                                 "dlrm", "checkpoints"),
                        help="table: all peers on all workloads; startup: until the first step; "
                        "scaling: one size at a time; cluster: on parameter servers; "
                        "exchange: bytes between a worker and its servers; "
                        "dlrm: one model by hand-driven program, TPUEstimator and others; "
                        "checkpoints: GB/s, and how long training waits")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, workloads and peers")
    parser.add_argument("--resume", action="store_true",
                        help="keep results that are already in the output directory")
    parser.add_argument("--workloads", nargs="+", choices=sorted(ALL), help="instead of all")
    parser.add_argument("--only", help="names of baselines, separated by commas: "
                        f"{', '.join(baselines.ALL)}")
    parser.add_argument("--simd", nargs="+", choices=sorted(baselines.SIMD), default=[],
                        help="measure the native kernels with this instruction set, too, as on "
                        "processors that have no wider one")
    parser.add_argument("--table-gib", type=_gib, metavar="N",
                        help="size of the tables of `checkpoints`, without their slots (default: "
                        f"{checkpoints.GIB}, with --quick {checkpoints.QUICK_GIB})")
    parser.add_argument("--output", default="benchmark_results", help="directory for JSON, "
                        "figures and logs (default: %(default)s)")
    return parser


def _gib(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a positive number of GiB, got {text}")
    return value


def _entries(args: argparse.Namespace) -> list[Entry]:
    """Returns the selected baselines that are installed."""
    if args.only:
        unknown = set(args.only.split(",")) - set(baselines.ALL)
        if unknown:
            sys.exit(f"--only must name some of {', '.join(baselines.ALL)}, got {unknown}.")
        chosen = [baselines.ALL[name] for name in args.only.split(",")]
    else:
        chosen = list(baselines.QUICK if args.quick
                      else (*baselines.ENGINE, *baselines.END_TO_END))
    chosen += [baselines.SIMD[name] for name in args.simd
               if not (name == "avx2" and not machine.has_avx512())]
    for entry in chosen:
        if entry.missing:
            print(f"{entry.title}: skipped, {', '.join(entry.missing)} is not installed "
                  "(pip install '.[bench]')")
    return [entry for entry in chosen if not entry.missing]


@contextlib.contextmanager
def _processes(directory: pathlib.Path, entries: Sequence[Entry]) -> Iterator[dict[str, Worker]]:
    """Yields name -> worker; stops the processes at the end of the context."""
    workers = {entry.name: Worker(entry, directory / "logs" / f"{entry.name}.log")
               for entry in entries}
    try:
        yield workers
    finally:
        for worker in workers.values():
            worker.stop()


def _measure(workload: Workload, entries: Sequence[Entry], workers: dict[str, Worker],
             settings: timing.TimingSettings) -> dict[str, timing.Result]:
    """Measures baselines without a model, then those that train one."""
    chosen = [entry for entry in entries if entry.runs(workload)]
    groups = [[entry for entry in group if entry in chosen]
              for group in ((*baselines.ENGINE, *baselines.SIMD.values()), baselines.END_TO_END)]
    groups = [group for group in groups if group]
    total = sum(timing.num_calls(workload, group, settings) for group in groups)
    results = []
    with tqdm(total=total, unit="turn", leave=False, dynamic_ncols=True) as bar:
        def progress(what: str) -> None:
            bar.set_description(what)
            bar.update()
        for group in groups:
            results += timing.measure(workload, group, workers, settings, progress)
    return {result.baseline: result for result in results}


def _scale(directory: pathlib.Path, entries: Sequence[Entry]) -> int:
    with _processes(directory, [e for e in entries if e.name in scaling.AGAINST]) as workers:
        for axis in tqdm(scaling.axes(int(machine.describe()["cores"])), unit="axis"):
            curve = scaling.measure_axis(axis, workers, lambda _: None)
            tqdm.write(scaling.text(axis, curve))
            if axis.name == "vocabulary" and "native" in curve.points:
                growth = curve.growth("native")
                verdict = "reached" if growth < targets.GROWTH_LIMIT else "NOT REACHED"
                tqdm.write(f"  native grows {growth:.2f}x, target under {targets.GROWTH_LIMIT}x: "
                           f"{verdict}")
            (directory / f"scaling_{axis.name}.json").write_text(json.dumps(curve.points))
            _draw(lambda axis=axis, curve=curve: plots.curves(
                f"Time of a step against {axis.label}", axis.label, curve.points,
                {name: curve.slope(name) for name in curve.points},
                scaling.figure_path(directory, axis)))
    return 0


def _start_programs(directory: pathlib.Path, is_quick: bool) -> int:
    rounds = 1 if is_quick else startup.ROUNDS
    described = machine.describe()
    with tqdm(total=rounds * len(startup.TASKS), unit="start", leave=False) as bar:
        seconds = startup.measure(lambda task: (bar.set_description(task), bar.update()), rounds)
    described |= machine.load("load after")
    printed = "\n".join([", ".join(f"{name} {value}" for name, value in described.items()), "",
                         startup.text(seconds)])
    print(printed)
    (directory / "startup.txt").write_text(f"{printed}\n")
    (directory / "startup.json").write_text(json.dumps({"machine": described, "seconds": seconds}))
    return 0


def _measure_clusters(directory: pathlib.Path, args: argparse.Namespace) -> int:
    described = machine.describe()
    for name in args.workloads or ["W"]:
        figures: list[cluster.Figures] = []
        for kind, servers, workers in tqdm(cluster.configurations(args.quick), unit="cluster"):
            figures.append(cluster.measure(
                ALL[name], kind, servers=servers, workers=workers, seconds=_CLUSTER_SECONDS,
                log=directory / "logs" / f"cluster-{kind}-{servers}-{workers}.log"))
            # After each, so that an interruption loses one.
            (directory / f"cluster_{name}.txt").write_text(
                f"{cluster.text(ALL[name], figures)}\n")
            (directory / f"cluster_{name}.json").write_text(json.dumps(
                {"machine": described, "figures": [vars(each) for each in figures]}, indent=1))
        print(cluster.text(ALL[name], figures))
    return 0


def _count_bytes(directory: pathlib.Path) -> int:
    total = len(exchange.IDS_PER_SAMPLE) * len(exchange.SERVERS)
    with tqdm(total=total, unit="cluster", leave=False) as bar:
        printed = exchange.text(exchange.measure(bar.update))
    print(printed)
    (directory / "exchange.txt").write_text(f"{printed}\n")
    return 0


def _train_dlrm(directory: pathlib.Path, is_quick: bool) -> int:
    settings = dlrm.QUICK if is_quick else dlrm.Settings()
    described = machine.describe()
    with tqdm(total=len(dlrm.WAYS), unit="way", leave=False) as bar:
        figures = dlrm.measure(settings, lambda way: (bar.set_description(way), bar.update()))
    described |= machine.load("load after")
    printed = "\n".join([", ".join(f"{name} {value}" for name, value in described.items()), "",
                         dlrm.text(settings, figures)])
    print(printed)
    (directory / "dlrm.txt").write_text(f"{printed}\n")
    (directory / "dlrm.json").write_text(json.dumps({"machine": described, "figures": figures}))
    return 0


def _save_and_restore(directory: pathlib.Path, args: argparse.Namespace) -> int:
    gib = args.table_gib or (checkpoints.QUICK_GIB if args.quick else checkpoints.GIB)
    rounds = 1 if args.quick else checkpoints.ROUNDS
    described = machine.describe()
    with tqdm(total=rounds * len(checkpoints.WAYS), unit="turn", leave=False) as bar:
        measured = checkpoints.measure(
            gib, rounds, directory, lambda way: (bar.set_description(way), bar.update()))
    described |= machine.load("load after")
    printed = "\n".join([", ".join(f"{name} {value}" for name, value in described.items()), "",
                         checkpoints.text(gib, measured)])
    print(printed)
    (directory / "checkpoints.txt").write_text(f"{printed}\n")
    (directory / "checkpoints.json").write_text(json.dumps(
        {"machine": described, "table_gib": gib, "measured": measured}))
    return 0


def _draw(draw) -> None:
    try:
        draw()
    except ImportError:
        print("No figure: matplotlib is not installed (pip install '.[bench]').")


if __name__ == "__main__":
    sys.exit(main())
