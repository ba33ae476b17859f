# SPDX-License-Identifier: Apache-2.0
"""`tpu-estimator-embedding demo`: from nothing to a trained, served model."""

import argparse
import pathlib
import sys
from typing import Any

import tensorflow as tf

import tpu_estimator_embedding
from tpu_estimator_embedding import checks
from tpu_estimator_embedding.demo import model, serving, summary, training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.inputs import make_input_fn
from tpu_estimator_embedding.demo.progress import Clock
from tpu_estimator_embedding.demo.settings import keep_settings
from tpu_estimator_embedding.demo.untrained_tables import with_untrained_tables

_PREDICTIONS = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the demo's options."""
    parser.add_argument("--examples", type=int, default=500_000,
                        help="records to write, a tenth of them held out (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=1024,
                        help="examples in a step (%(default)s)")
    parser.add_argument("--model-dir", type=lambda path: pathlib.Path(path).resolve(),
                        default="tpu-estimator-embedding-demo",
                        help="where everything goes; the same again resumes (%(default)s)")
    parser.add_argument("--seed", type=int, default=1,
                        help="of the records and the model (%(default)s)")


def run(args: argparse.Namespace) -> int:
    """Writes logs, trains, evaluates, predicts, exports; returns the exit status."""
    try:
        logs = _checked(args)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    tpu_estimator_embedding.install()
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    try:
        _run_phases(args, logs)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command goes on from the last checkpoint.")
        return 130
    return 0


def _checked(args: argparse.Namespace) -> ClickLogs:
    checks.check_positive_int("--batch-size", args.batch_size)
    logs = ClickLogs(args.model_dir / "click_logs", args.examples, args.seed)
    keep_settings(args.model_dir, {"examples": args.examples, "batch-size": args.batch_size,
                                   "seed": args.seed})
    return logs


def _run_phases(args: argparse.Namespace, logs: ClickLogs) -> None:
    clock = Clock()
    with clock.phase("write"):
        if not logs.write():
            print(f"The click logs in {logs.directory} are complete and stay as they are.")
    estimator = training.make_estimator(args.model_dir / "model", logs, args.batch_size)
    with clock.phase("train"):
        trained = training.train(estimator, logs, args.batch_size)
    with clock.phase("evaluate"):
        metrics = _evaluate(estimator, logs)
    with clock.phase("predict"):
        predicted = serving.predict(estimator, logs, _PREDICTIONS)
    with clock.phase("export"):
        saved_model = serving.export(estimator, args.model_dir / "export")
    with clock.phase("serve"):
        served = serving.serve(saved_model, logs, _PREDICTIONS)
    summary.show(logs, clock, metrics, trained_examples=trained, predicted=predicted,
                 served=served, files={
                     "click logs": logs.directory, "checkpoints": estimator.model_dir,
                     "SavedModel": saved_model})


def _evaluate(estimator: Any, logs: ClickLogs) -> dict[str, float]:
    input_fn = make_input_fn(logs.eval_files)
    trained = estimator.evaluate(input_fn)
    checkpoint = with_untrained_tables(
        pathlib.Path(estimator.model_dir), estimator.latest_checkpoint(), model.is_table)
    untrained = estimator.evaluate(input_fn, checkpoint_path=checkpoint, name="untrained_tables")
    return {"loss": float(trained["loss"]), "AUC, trained tables": float(trained["auc"]),
            "AUC, untrained tables": float(untrained["auc"]),
            "AUC, knowing the hidden model": logs.best_auc()}
