# SPDX-License-Identifier: Apache-2.0
"""The result table, the ratios and the files of a run."""

import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence

from benchmarks import baselines, targets
from benchmarks.targets import Results
from benchmarks.timing import Result
from benchmarks.workloads import ALL

DRIFT_LIMIT = 0.2  # of the bound within a run
_TITLE = 58  # columns


def save(directory: pathlib.Path, workload: str, results: Mapping[str, Result],
         machine: Mapping[str, str]) -> None:
    """Writes the measurements of one workload atomically."""
    document = {"machine": dict(machine), "workload": dataclasses.asdict(ALL[workload]),
                "results": [dataclasses.asdict(result) for result in results.values()]}
    unfinished = directory / f"{workload}.unfinished"
    unfinished.write_text(json.dumps(document, indent=1))
    unfinished.replace(directory / f"{workload}.json")


def load(directory: pathlib.Path, workload: str) -> dict[str, Result] | None:
    """Reads a file that `save` wrote; returns None if it does not exist."""
    path = directory / f"{workload}.json"
    if not path.exists():
        return None
    results = [Result(**fields) for fields in json.loads(path.read_text())["results"]]
    return {result.baseline: result for result in results}


def text(results: Results, machine: Mapping[str, str]) -> str:
    """Returns the table of all measurements, followed by the ratios."""
    lines = [", ".join(f"{name} {value}" for name, value in machine.items()), ""]
    for workload in results:
        lines += [*_table(workload, results[workload]), ""]
    return "\n".join([*lines, *_drift_lines(results), *_parsing_lines(results), "",
                      *_target_lines(results)])


def _table(workload: str, results: Mapping[str, Result]) -> Iterator[str]:
    yield (f"{workload:<{_TITLE}}{'ms/step':>9}{'quartiles':>18}{'examples/s':>13}"
           f"{'MB over tables':>16}  kernels")
    for name, result in results.items():
        title = f"  {baselines.ALL[name].title}"
        if result.error:
            yield f"{title}: {result.error}"
            continue
        low, high = (f"{1e3 * seconds:.2f}" for seconds in result.spread)
        rate = ALL[workload].batch_size / result.median
        memory = f"{result.memory_over_tables / 1e6:,.0f}" if "parsing" not in name else "-"
        yield (f"{title:<{_TITLE}}{1e3 * result.median:9.2f}{low + ' - ' + high:>18}{rate:13,.0f}"
               f"{memory:>16}  {result.description}")


def _drift_lines(results: Results) -> Iterator[str]:
    for workload, measured in results.items():
        bound = measured.get("bound")
        if bound and bound.samples and bound.drift > DRIFT_LIMIT:
            yield (f"{workload}: NOT A QUIET MACHINE. The memory accesses alone, the same in every "
                   f"turn, took {bound.drift:.0%} longer in some turns than in others. "
                   "Measure again.")


def _parsing_lines(results: Results) -> Iterator[str]:
    for workload, measured in results.items():
        parsing, ours = (measured.get(name) for name in ("parsing", "estimator_records"))
        if parsing and ours and parsing.samples and ours.samples:
            share = 1 - parsing.median / ours.median
            yield (f"{workload} from files: parsing alone takes {1e3 * parsing.median:.1f} ms of "
                   f"a step of {1e3 * ours.median:.1f} ms; {share:.0%} of the step remain.")


def _target_lines(results: Results) -> Iterator[str]:
    yield f"{'ratios':<68}{'at least':>10}{'in turns':>10}{'medians':>10}"
    for target in targets.targets():
        what = f"{target.workload}: {target.candidate} against {target.peer}"
        measured, of_medians = target.reached(results), target.of_medians(results)
        is_share = target.peer.startswith("bound")
        shown = [_ratio(value, is_share) for value in (measured, of_medians) if value is not None]
        yield _target_line(what, _ratio(target.at_least, is_share), shown,
                           measured is not None and measured >= target.at_least)
    memory = targets.memory_of_w1(results)
    yield _target_line("W1: memory over tables and slots", "<300 MB",
                       [] if memory is None else [f"{memory / 1e6:.0f} MB", ""],
                       memory is not None and memory < targets.MEMORY_LIMIT)


def _ratio(value: float, is_share: bool) -> str:
    return f"{value:.0%}" if is_share else f"{value:.1f}x"


def _target_line(what: str, wanted: str, measured: Sequence[str], is_reached: bool) -> str:
    if not measured:
        return f"  {what:<66}{wanted:>10}{'-':>10}{'-':>10}  not measured"
    in_turns, of_medians = measured
    verdict = "reached" if is_reached else "NOT REACHED"
    return f"  {what:<66}{wanted:>10}{in_turns:>10}{of_medians:>10}  {verdict}"
