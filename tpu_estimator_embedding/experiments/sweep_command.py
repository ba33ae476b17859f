# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding sweep`: one program, several settings, one report."""

import argparse
import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Callable, Sequence

from tpu_estimator_embedding import checks, figures, tf_config
from tpu_estimator_embedding.experiments import (
    conclusions,
    directory_lock,
    program_search,
    program_sweep,
    run_records,
    search,
)
from tpu_estimator_embedding.experiments.looks import add_figures, read_formats
from tpu_estimator_embedding.experiments.program_arguments import add_program, parse, program_of
from tpu_estimator_embedding.experiments.results import Results, format_rows, summary_rows
from tpu_estimator_embedding.experiments.search_space import is_range, search_space
from tpu_estimator_embedding.experiments.setting import Setting, grid
from tpu_estimator_embedding.experiments.sweep_directory import (
    SweepDirectory,
    other_runs,
    runs_before,
)
from tpu_estimator_embedding.multipliers.text_format import FORMS

DESCRIPTION = """\
Runs an unmodified program once for every setting and seed, in separate processes
with separate model_dirs, overrides only that setting of the tables, and reports
the results. Run the same command again to continue an interrupted sweep. To extend
one, add settings or seeds to its command: no run is repeated, and the report is on
those that the command names. With --search, Optuna chooses the settings.
"""

_FORMS = "\n".join(f"  {form}" for form in FORMS)
_EPILOG = f"""\
A multiplier scales every gradient of the tables. It is one of
{_FORMS}

--table sets the multiplier of single tables: KEY is a table's name, a glob (user*)
or re: and a regular expression. A KEY with several M is tried with each of them.

With --search optuna a setting may have a range instead of values: uniform:LOW:HIGH,
or log:LOW:HIGH, which is uniform in the logarithm. Several values are a choice.

In ARGS, {{model_dir}}, {{run_dir}} and {{seed}} are replaced with those of the run.

examples:
  tpu-estimator-embedding sweep train.py --multiplier 0 0.1 1 warmup:1000 \\
      --seeds 3 --metric auc -- --data logs/ --steps 5000
  tpu-estimator-embedding sweep train.py --multiplier 1 --table 'user*=0' \\
      'user*=0.1' 'user*=1' --metric auc -- --data logs/
  tpu-estimator-embedding sweep -m trainer.task --learning-rate 0.05 0.1 0.2 \\
      --jobs 2 --target 0.75 --metric auc -- --model_dir {{model_dir}}
  tpu-estimator-embedding sweep train.py --search optuna --trials 30 --metric auc \\
      --multiplier log:0.01:10 --table 'user*=uniform:0:1' -- --data logs/
"""

_TRIALS = 20
_PREFIX = "tpu-estimator-embedding sweep: "

__all__ = ["DESCRIPTION", "add_arguments", "parse", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.epilog = _EPILOG
    add_program(parser)
    parser.add_argument("--multiplier", nargs="+", default=[], metavar="M",
                        help="gradient multipliers of the tables, see below")
    parser.add_argument("--table", nargs="+", action="extend", default=[], metavar="KEY=M",
                        help="multipliers of the tables that KEY matches, see below")
    parser.add_argument("--learning-rate", nargs="+", default=[], metavar="RATE",
                        help="learning rates of all tables")
    parser.add_argument("--clipping-limit", nargs="+", default=[], metavar="LIMIT",
                        help="limits of the absolute value of rows' summed gradients")
    parser.add_argument("--seeds", type=int, default=1, metavar="N",
                        help="runs of each setting: with the program's own seed, that seed plus "
                        "1, plus 2, ... (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N",
                        help="simultaneous runs, which share the cores (%(default)s)")
    parser.add_argument("--metric", help="metric by which to compare settings: of evaluate(), "
                        "NAME/METRIC of evaluate(name=NAME), or training/TAG (loss)")
    parser.add_argument("--target", type=float, metavar="VALUE",
                        help="also compare the steps until the metric reaches this value")
    parser.add_argument("--search", choices=["optuna"],
                        help="let Optuna choose the settings, instead of every combination")
    parser.add_argument("--trials", type=int, metavar="N",
                        help=f"total runs of a search, including earlier ones ({_TRIALS})")
    parser.add_argument("--no-pruning", action="store_true",
                        help="run every trial of a search to its end, without pruning")
    add_figures(parser)
    parser.add_argument("--log", nargs="+", metavar="TRACKER", default=[],
                        help="also write the runs to a tracker on this machine: mlflow")
    parser.add_argument("--out", default="sweep", metavar="DIR",
                        help="directory of the sweep (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit status: 1 if a run failed, 130 after Ctrl-C."""
    with contextlib.ExitStack() as until_end:
        try:
            program = program_of(args)
            _check_alone()
            program_sweep.share_cores(args.jobs)
            formats = read_formats(args.figures)
            run_records.check_trackers(args.log, "--log")
            task = (_search_of if args.search else _grid_of)(args, program, formats, until_end)
        except (OSError, ValueError) as error:
            print(f"{_PREFIX}{error}", file=sys.stderr)
            return 2
        return _run(task, args.log)


@dataclasses.dataclass(frozen=True)
class _Task:
    """What to run, what came of it, and how to report on that."""

    run: Callable[[], None]
    results: Callable[[], Results]
    report: Callable[[Results], list[pathlib.Path]]


def _grid_of(args: argparse.Namespace, program: program_sweep.Program, formats: Sequence[str],
             until_end: contextlib.ExitStack) -> _Task:
    for option in ("trials", "no_pruning"):
        checks.check(not getattr(args, option), f"--{option.replace('_', '-')}",
                     "used with --search optuna only", getattr(args, option))
    texts = _texts(args)
    for name, values in texts.items():
        for value in filter(is_range, values):
            raise ValueError(f"{value!r} is a range of {name}, which only a search can use. Add "
                             "`--search optuna`, or pass values.")
    settings = tuple(grid(
        args.multiplier, _numbers("--learning-rate", args.learning_rate),
        _numbers("--clipping-limit", args.clipping_limit), _by_key(args.table)))
    if settings == (Setting(),) and args.seeds == 1:
        raise ValueError("A sweep of one run compares nothing. Pass values of --multiplier, "
                         "--table, --learning-rate or --clipping-limit, or several --seeds.")
    sweep = _directory(args, settings)
    until_end.enter_context(directory_lock.held(sweep.path, sweep.argument))
    sweep.keep({"program": program.words, "search": None})
    _warn_of_edits(sweep.path, program)
    return _Task(lambda: program_sweep.run_missing(sweep, program, args.jobs),
                 sweep.results, lambda results: sweep.write_report(
                     results, program.words, formats=formats))


def _warn_of_edits(directory: pathlib.Path, program: program_sweep.Program) -> None:
    """Says that runs ended before the file of the program was changed."""
    if program.is_module:
        return
    older = runs_before(directory, pathlib.Path(program.name).stat().st_mtime)
    if older:
        print(f"{_PREFIX}{program.name} was changed after {len(older)} of the runs in {directory} "
              "had ended. These are kept, and are of the earlier program. Choose another --out to "
              "run all with the new one.", file=sys.stderr)


def _search_of(args: argparse.Namespace, program: program_sweep.Program, formats: Sequence[str],
               until_end: contextlib.ExitStack) -> _Task:
    search.check_installed()
    checks.check(args.metric is not None, "--metric", "given: a search needs to know what to "
                 "improve", args.metric)
    checks.check(args.seeds == 1, "--seeds", "1 with --search; run the best settings with several "
                 "seeds afterwards, without it", args.seeds)
    trials = _TRIALS if args.trials is None else args.trials
    checks.check_positive_int("--trials", trials)
    space = search_space(_texts(args))
    sweep = _directory(args, (Setting(),))
    what = {"program": program.words, "search": {
        "metric": args.metric, **{name: item.text for name, item in space.items()}}}
    until_end.enter_context(directory_lock.held(sweep.path, sweep.argument))
    if before := search.replace_unseen_metric(sweep.path, space, what):
        print(f"No run has the metric {before!r}: the search begins again with {args.metric!r}, "
              "and keeps the runs.")
    sweep.keep(what)
    _warn_of_edits(sweep.path, program)
    found = search.Search(sweep.path, space, args.metric)

    def tried() -> SweepDirectory:
        return dataclasses.replace(sweep, settings=tuple(found.settings) or sweep.settings)

    return _Task(lambda: program_search.run_trials(
        sweep, program, args.jobs, found, trials, not args.no_pruning),
        lambda: tried().results(),
        lambda results: tried().write_report(
            results, program.words, found.report(), formats))


def _directory(args: argparse.Namespace, settings: tuple[Setting, ...]) -> SweepDirectory:
    checks.check_can_hold_checkpoints("--out", pathlib.Path(args.out).resolve())
    return SweepDirectory(pathlib.Path(args.out).resolve(), settings, args.seeds, args.metric,
                          args.target)


def _texts(args: argparse.Namespace) -> dict[str, list[str]]:
    """Returns name of a setting -> the values of its option."""
    return {"multiplier": args.multiplier, "learning_rate": args.learning_rate,
            "clipping_limit": args.clipping_limit,
            **{f"table:{key}": values for key, values in _by_key(args.table).items()}}


def _numbers(option: str, texts: Sequence[str]) -> list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        raise ValueError(checks.complaint(option, "numbers", list(texts))) from None


def _run(task: _Task, trackers: Sequence[str]) -> int:
    status = 0
    try:
        task.run()
    except ValueError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to continue.")
        status = 130
    except OSError as error:  # most likely a full disk
        print(f"{_PREFIX}{error}. Run the same command again to continue.",
              file=sys.stderr)
        status = 1
    try:
        results = task.results()
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return status or 2
    _show(results)
    try:
        paths = task.report(results)
    except OSError as error:  # most likely a full disk
        print(f"{_PREFIX}the report is not complete: {error}. Run the same command again.",
              file=sys.stderr)
        return status or 1
    print(f"report   {results.directory / 'report.html'}")
    if not figures.can_draw():
        print(f"figures  {figures.NONE}")
    print(f"results  {results.directory / 'results.csv'}\n"
          f"curves   tensorboard --logdir {results.directory}")
    if others := len(other_runs(results)):
        print(f"{others} other {'runs' if others > 1 else 'run'} in {results.directory} "
              f"{'are' if others > 1 else 'is'} not in this report. To have all in one, repeat "
              "their settings and seeds in the command.")
    for tracker in dict.fromkeys(trackers):
        try:
            print(f"{tracker:8} {run_records.write(tracker, results, paths)}")
        except (OSError, run_records.TrackerError) as error:
            print(f"{_PREFIX}{error}. Run the same command again.", file=sys.stderr)
            status = status or 1
    return status or int(any(result.has_failed for result in results.runs))


def _show(results: Results) -> None:
    print("", format_rows(summary_rows(results)), "", sep="\n")
    for result in results.runs:
        if result.has_failed and result.has_ended:
            print(f"{result.run.name} failed: {result.error}\n  its log: {result.run.log}")
    for warning in conclusions.warnings_of(results):
        print(f"warning: {warning}")


def _by_key(texts: Sequence[str]) -> dict[str, list[str]]:
    """Returns key -> multipliers, from texts `KEY=M`."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, multiplier = text.rpartition("=")
        checks.check(bool(key and equals), "--table", "KEY=M, a table and its multiplier", text)
        found.setdefault(key, []).append(multiplier)
    return found


def _check_alone() -> None:
    if tf_config.text():
        raise ValueError("Each run of a sweep uses one machine, but TF_CONFIG describes a cluster. "
                         "Unset it.")
