# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding sweep`: one program, several settings, one report."""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from tpu_estimator_embedding import checks, figures
from tpu_estimator_embedding.experiments import program_sweep
from tpu_estimator_embedding.experiments.program_arguments import add_program, parse, program_of
from tpu_estimator_embedding.experiments.results import Results, format_rows, summary_rows
from tpu_estimator_embedding.experiments.setting import grid
from tpu_estimator_embedding.experiments.sweep_directory import SweepDirectory
from tpu_estimator_embedding.multipliers.text_format import FORMATS

DESCRIPTION = """\
Runs an unmodified program once for every setting and seed, in separate processes
with separate model_dirs, overrides only that setting of the tables, and reports
the results. Run the same command again to continue an interrupted sweep, or with
more settings or seeds to extend it.
"""

_EPILOG = f"""\
A multiplier scales every gradient of the tables. It is {FORMATS}.
--table sets the multiplier of single tables: KEY is a table's name, a glob (user*)
or re: and a regular expression. A KEY with several M is tried with each of them.

In ARGS, {{model_dir}}, {{run_dir}} and {{seed}} are replaced with those of the run.

examples:
  tpu-estimator-embedding sweep train.py --multiplier 0 0.1 1 warmup:1000 \\
      --seeds 3 --metric auc -- --data logs/ --steps 5000
  tpu-estimator-embedding sweep train.py --multiplier 1 --table 'user*=0' \\
      'user*=0.1' 'user*=1' --metric auc -- --data logs/
  tpu-estimator-embedding sweep -m trainer.task --learning-rate 0.05 0.1 0.2 \\
      --jobs 2 --target 0.75 --metric auc -- --model_dir {{model_dir}}
"""

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
    parser.add_argument("--learning-rate", nargs="+", type=float, default=[], metavar="RATE",
                        help="learning rates of all tables")
    parser.add_argument("--clipping-limit", nargs="+", type=float, default=[], metavar="LIMIT",
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
    parser.add_argument("--out", default="sweep", metavar="DIR",
                        help="directory of the sweep (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit status: 1 if a run failed, 130 after Ctrl-C."""
    try:
        program = program_of(args)
        sweep = SweepDirectory(
            pathlib.Path(args.out).resolve(),
            tuple(grid(args.multiplier, args.learning_rate, args.clipping_limit,
                       _by_key(args.table))),
            args.seeds, args.metric, args.target)
        program_sweep.share_cores(args.jobs)
        _check_alone()
        sweep.keep({"program": program.words})
    except ValueError as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return 2
    if not figures.can_draw():
        print(f"There will be no figures: they need matplotlib, {figures.HOW_TO_GET}.",
              file=sys.stderr)
    return _run(sweep, program, args.jobs)


def _run(sweep: SweepDirectory, program: program_sweep.Program, jobs: int) -> int:
    status = 0
    try:
        program_sweep.run_missing(sweep, program, jobs)
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
        results = sweep.write_report(program.words)
    except (OSError, ValueError) as error:
        print(f"{_PREFIX}{error}", file=sys.stderr)
        return status or 2
    _show(results)
    return status or int(any(result.error for result in results.runs))


def _show(results: Results) -> None:
    print("", format_rows(summary_rows(results)), "", sep="\n")
    for result in results.runs:
        if result.error and result.has_ended:
            print(f"{result.run.name} failed: {result.error}\n  its log: {result.run.log}")
    print(f"report   {results.directory / 'report.html'}\n"
          f"results  {results.directory / 'results.csv'}\n"
          f"curves   tensorboard --logdir {results.directory}")


def _by_key(texts: Sequence[str]) -> dict[str, list[str]]:
    """Returns key -> multipliers, from texts `KEY=M`."""
    found: dict[str, list[str]] = {}
    for text in texts:
        key, equals, multiplier = text.rpartition("=")
        checks.check(bool(key and equals), "--table", "KEY=M, a table and its multiplier", text)
        found.setdefault(key, []).append(multiplier)
    return found


def _check_alone() -> None:
    if os.environ.get("TF_CONFIG"):
        raise ValueError("Each run of a sweep uses one machine, but TF_CONFIG describes a cluster. "
                         "Unset it.")
