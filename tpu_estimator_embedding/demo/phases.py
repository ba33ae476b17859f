# SPDX-License-Identifier: Apache-2.0
"""The phases of the demo: data, training, metrics, export."""

import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.demo import model, serving, summary, training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.clock import Clock
from tpu_estimator_embedding.demo.inputs import make_input_fn
from tpu_estimator_embedding.demo.progress import ProgressHook
from tpu_estimator_embedding.demo.untrained_tables import with_untrained_tables
from tpu_estimator_embedding.experiments.model_report import write_report
from tpu_estimator_embedding.multipliers.schedule import Schedule

_PREDICTIONS = 5


def run(directory: pathlib.Path, logs: ClickLogs, batch_size: int, multiplier: Schedule,
        clock: Clock, train: Callable[..., int]) -> None:
    """Runs all phases and prints a summary.

    Args:
        directory: directory of the model, its export and, except in a sweep, its report.
        logs: the training data; missing files are written.
        batch_size: examples per step.
        multiplier: scales the gradients of the tables.
        clock: the clock, which has measured the time since the start.
        train: `training.train`, or a function that trains elsewhere.
    """
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    with clock.phase("write"):
        if not logs.write():
            print(f"The click logs in {logs.directory} are complete and are kept.")
    estimator = training.make_estimator(
        directory / "model", logs, batch_size, lambda loss: ProgressHook(
            loss, logs.train_examples, batch_size, on_start=lambda: clock.go_on_as("train")),
        multiplier)
    with clock.phase("start training"):
        trained = train(estimator, logs, batch_size, clock.go_on_as)
    with clock.phase("evaluate"):
        metrics = _evaluate(estimator, logs)
    with clock.phase("predict"):
        predicted = serving.predict(estimator, logs, _PREDICTIONS)
    of_run = pathlib.Path(estimator.model_dir).parent  # a sweep gives each run a model_dir
    with clock.phase("export"):
        saved_model = serving.export(estimator, of_run / "export")
    with clock.phase("serve"):
        served = serving.serve(saved_model, logs, _PREDICTIONS)
    with clock.phase("report"):
        report, *_ = write_report(pathlib.Path(estimator.model_dir), of_run / "report")
    summary.show(logs, clock, metrics, trained_examples=trained, predicted=predicted,
                 served=served, files={
                     "click logs": logs.directory, "checkpoints": estimator.model_dir,
                     "SavedModel": saved_model, "report": report})
    print(f"\nThe report has curves and tables: {report}\n"
          "To compare gradient multipliers of the tables:\n"
          "  tpu-estimator-embedding sweep -m tpu_estimator_embedding --multiplier 0 0.1 1 "
          f"--metric auc \\\n      --out {directory / 'sweep'} -- demo --examples {logs.examples} "
          f"--batch-size {batch_size} --seed {logs.seed} --model-dir {directory}")


def _evaluate(estimator: Any, logs: ClickLogs) -> dict[str, float]:
    input_fn = make_input_fn(logs.eval_files)
    trained = estimator.evaluate(input_fn)
    checkpoint = with_untrained_tables(
        pathlib.Path(estimator.model_dir), estimator.latest_checkpoint(), model.is_table)
    untrained = estimator.evaluate(input_fn, checkpoint_path=checkpoint, name="untrained_tables")
    return {"loss": float(trained["loss"]), "AUC, trained tables": float(trained["auc"]),
            "AUC, untrained tables": float(untrained["auc"]),
            "AUC, knowing the hidden model": logs.best_auc()}
