# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding demo`: generates data, trains a model and serves it."""

import argparse
import json
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Mapping

import tpu_estimator_embedding
from tpu_estimator_embedding import checks, multipliers
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.runtime import quiet_start

_EXAMPLES, _BATCH_SIZE, _SEED = 200_000, 1024, 1
_DIRECTORY, _OF_CLUSTER = "tpu-estimator-embedding-demo", "tpu-estimator-embedding-demo-cluster"
DESCRIPTION = """\
Writes click logs, trains a model with embedding tables on them, then evaluates,
predicts and exports it."""
_EPILOG = """\
examples:
  tpu-estimator-embedding demo
  tpu-estimator-embedding demo --multiplier warmup:100 --model-dir warmed-up
  tpu-estimator-embedding demo --cluster"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the demo's options."""
    parser.epilog = _EPILOG
    parser.add_argument("--examples", type=int, default=_EXAMPLES,
                        help="records to write, a tenth of them held out (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=_BATCH_SIZE,
                        help="examples in a step (%(default)s)")
    parser.add_argument("--model-dir", type=pathlib.Path,
                        help=f"directory of all files; run again to resume ({_DIRECTORY}; of "
                        f"--cluster: {_OF_CLUSTER})")
    parser.add_argument("--seed", type=int, default=_SEED,
                        help="seed of the records and the model (%(default)s)")
    parser.add_argument("--cluster", action="store_true",
                        help="train as a parameter-server cluster on this machine: chief, worker, "
                        "2 servers, evaluator")
    quiet_start.add_argument(parser)
    parser.add_argument("--multiplier", metavar="M", default="1",
                        help="gradient multiplier of the tables, a number or a schedule such as "
                        "warmup:100 or freeze_until:200 (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Writes logs, trains, evaluates, predicts, exports; returns the exit status."""
    try:
        args.model_dir = _model_dir(args)
        logs, multiplier = _checked(args)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    start = time.perf_counter()
    with quiet_start.quiet_start(args.verbose):
        from tpu_estimator_embedding.demo import cluster_task, phases, training
        from tpu_estimator_embedding.kernels import load
        tpu_estimator_embedding.install()
        load.kernels()
    try:
        phases.run(args.model_dir, logs, args.batch_size, multiplier,
                   cluster_task.with_options(args) if args.cluster else training.train)
        print(f"All of it took {time.perf_counter() - start:.0f} s.")
        print("\nTo compare gradient multipliers of the tables:\n  tpu-estimator-embedding sweep "
              "-m tpu_estimator_embedding --multiplier 0 0.1 1 --metric auc --out demo_sweep "
              f"-- demo{_changed_options(args)}")
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to continue from the last checkpoint.")
        return 130
    return 0


def _model_dir(args: argparse.Namespace) -> pathlib.Path:
    default = _OF_CLUSTER if args.cluster else _DIRECTORY  # so that neither finds a trained model
    return pathlib.Path(args.model_dir or default).resolve()


def _changed_options(args: argparse.Namespace) -> str:
    """Returns the options of the records and the model that are not the default."""
    directory = pathlib.Path(_DIRECTORY).resolve()
    options = {"examples": (args.examples, _EXAMPLES), "seed": (args.seed, _SEED),
               "batch-size": (args.batch_size, _BATCH_SIZE),
               "model-dir": (args.model_dir, directory)}
    return "".join(f" --{name} {shlex.quote(str(value))}"
                   for name, (value, default) in options.items() if value != default)


def _checked(args: argparse.Namespace) -> tuple[ClickLogs, Schedule]:
    multiplier = multipliers.parse(args.multiplier)
    checks.check_positive_int("--batch-size", args.batch_size)
    checks.check_can_hold_checkpoints("--model-dir", args.model_dir)
    logs = ClickLogs(args.model_dir / "click_logs", args.examples, args.seed)
    keep_settings(args.model_dir, {"examples": args.examples, "batch-size": args.batch_size,
                                   "seed": args.seed, "multiplier": multiplier.text})
    return logs, multiplier


def keep_settings(directory: pathlib.Path, settings: Mapping[str, int | str]) -> None:
    """Records the settings of a new directory, or compares them with the recorded ones.

    Raises:
        ValueError: if the directory was created with other settings.
    """
    path = directory / "settings.json"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
        unfinished.write_text(json.dumps(settings))
        unfinished.rename(path)
    for name, noted in json.loads(path.read_text()).items():
        checks.check(settings[name] == noted, f"--{name}",
                     f"{noted}, with which {directory} was created", settings[name],
                     "Or choose another --model-dir.")
