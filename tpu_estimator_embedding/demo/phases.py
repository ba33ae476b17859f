# SPDX-License-Identifier: Apache-2.0
"""The phases of the demo: data, training, metrics, export."""

import itertools
import pathlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tqdm

from tpu_estimator_embedding.demo import model, training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.clock import Clock
from tpu_estimator_embedding.demo.model import make_input_fn, record_spec
from tpu_estimator_embedding.demo.untrained_tables import with_untrained_tables
from tpu_estimator_embedding.experiments.model_report import write_report
from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

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
        predicted = predict(estimator, logs, _PREDICTIONS)
    of_run = pathlib.Path(estimator.model_dir).parent  # a sweep gives each run a model_dir
    with clock.phase("export"):
        saved_model = export(estimator, of_run / "export")
    with clock.phase("serve"):
        served = serve(saved_model, logs, _PREDICTIONS)
    with clock.phase("report"):
        report, *_ = write_report(pathlib.Path(estimator.model_dir), of_run / "report")
    show_summary(logs, clock, metrics, trained_examples=trained, predicted=predicted,
                 served=served, files={
                     "click logs": logs.directory, "checkpoints": estimator.model_dir,
                     "SavedModel": saved_model, "report": report})
    print(f"\nThe report has curves and tables: {report}\n"
          "To compare gradient multipliers of the tables:\n"
          "  tpu-estimator-embedding sweep -m tpu_estimator_embedding --multiplier 0 0.1 1 "
          f"--metric auc \\\n      --out {directory / 'sweep'} -- demo --examples {logs.examples} "
          f"--batch-size {batch_size} --seed {logs.seed} --model-dir {directory}")


def _evaluate(estimator: "TPUEstimator", logs: ClickLogs) -> dict[str, float]:
    input_fn = make_input_fn(logs.eval_files)
    trained = estimator.evaluate(input_fn)
    checkpoint = with_untrained_tables(
        pathlib.Path(estimator.model_dir), tf.train.latest_checkpoint(estimator.model_dir),
        model.is_table)
    untrained = estimator.evaluate(input_fn, checkpoint_path=checkpoint, name="untrained_tables")
    return {"loss": float(trained["loss"]), "AUC, trained tables": float(trained["auc"]),
            "AUC, untrained tables": float(untrained["auc"]),
            "AUC, knowing the hidden model": logs.best_auc()}


class ProgressHook(tf.compat.v1.train.SessionRunHook):
    """Shows step, loss, examples per second and the time left on one line."""

    def __init__(self, loss: tf.Tensor, examples: int, batch_size: int,
                 on_start: Callable[[], None] = lambda: None):
        """Creates the line; calls `on_start` when everything is ready for the first step."""
        self._loss = loss
        self._examples = examples
        self._batch_size = batch_size
        self._on_start = on_start
        self._step = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session, coord):
        """Starts the line at the step of the checkpoint."""
        done = self._examples_done(session.run(self._step))
        self._line = tqdm.tqdm(total=self._examples, initial=done, desc="Training",
                               unit=" examples", unit_scale=True)
        self._on_start()

    def before_run(self, run_context):
        """Requests the loss of the step."""
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        """Advances the line by one step."""
        step = round(self._line.n / self._batch_size) + 1
        self._line.set_postfix(step=step, loss=f"{run_values.results:.4f}", refresh=False)
        self._line.update(self._examples_done(step) - self._line.n)

    def end(self, session):
        """Keeps the finished line."""
        self._line.close()

    def _examples_done(self, step: int) -> int:
        return min(int(step) * self._batch_size, self._examples)


def predict(estimator: Any, logs: ClickLogs, count: int) -> np.ndarray:
    """Returns the predicted click probabilities of the first held-out records: `[count]`."""
    predictions = estimator.predict(make_input_fn(logs.eval_files))
    first = [item["probability"][0] for item in itertools.islice(predictions, count)]
    predictions.close()
    return np.array(first)


def export(estimator: "TPUEstimator", directory: pathlib.Path) -> pathlib.Path:
    """Writes a SavedModel whose input is serialized records; returns its path."""
    receiver_fn = tf.compat.v1.estimator.export.build_parsing_serving_input_receiver_fn(
        record_spec())
    path = estimator.export_saved_model(str(directory), receiver_fn)
    return pathlib.Path(tf.compat.as_str(path))


def serve(saved_model: pathlib.Path, logs: ClickLogs, count: int) -> np.ndarray:
    """Returns the predictions of a SavedModel, loaded with TensorFlow only."""
    serialized = list(tf.data.TFRecordDataset(str(logs.eval_files[0])).take(count))
    model = tf.saved_model.load(str(saved_model), tags=[tf.saved_model.SERVING])
    serving_default = model.signatures["serving_default"]
    return serving_default(examples=tf.stack(serialized))["probability"].numpy()[:, 0]


def show_summary(logs: ClickLogs, clock: Clock, metrics: Mapping[str, float], *,
                 trained_examples: int, predicted: np.ndarray, served: np.ndarray,
                 files: Mapping[str, str | pathlib.Path]) -> None:
    """Prints the summary."""
    print("", plan(), sep="\n")
    examples = {"write": logs.examples, "train": trained_examples,
                "evaluate": 2 * logs.eval_examples}
    _section("Times", {name: _time(seconds, examples.get(name))
                       for name, seconds in clock.seconds.items()})
    _section("Metrics on held-out records",
             {name: f"{value:.4f}" for name, value in metrics.items()})
    _section("First held-out records", {
        "predicted": _numbers(predicted), "served": _numbers(served),
        "largest difference": f"{np.abs(predicted - served).max():.1e}"})
    _section("Files", {name: str(path) for name, path in files.items()})


def plan() -> EmbeddingPlan:
    """Returns the EmbeddingPlan of the demo's columns."""
    from tpu_estimator_embedding.estimator.embedding_config_spec import spec_to_plan

    return spec_to_plan(model.embedding_config_spec(), training=True, num_hosts=1)


def _section(title: str, lines: Mapping[str, str]) -> None:
    width = max(len(name) for name in lines)
    print("", title, *(f"  {name:<{width}}  {text}" for name, text in lines.items()), sep="\n")


def _time(seconds: float, examples: int | None) -> str:
    rate = f"  {examples / seconds:12,.0f} examples/s" if examples else ""
    return f"{seconds:7.1f} s{rate}"


def _numbers(values: np.ndarray) -> str:
    return "  ".join(f"{value:.4f}" for value in values)
