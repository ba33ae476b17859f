# SPDX-License-Identifier: Apache-2.0
"""The phases of the demo: data, training, metrics, export."""

import itertools
import pathlib
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf
import tqdm

from tpu_estimator_embedding.demo import model, training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.model import make_input_fn, record_spec
from tpu_estimator_embedding.demo.untrained_tables import with_untrained_tables
from tpu_estimator_embedding.experiments.model_report import write_report
from tpu_estimator_embedding.multipliers.schedule import Schedule
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

_PREDICTIONS = 5


def run(directory: pathlib.Path, logs: ClickLogs, batch_size: int, multiplier: Schedule,
        train: Callable[..., int]) -> None:
    """Runs all phases and prints a summary.

    Args:
        directory: directory of the model, its export and, except in a sweep, its report.
        logs: the training data; missing files are written.
        batch_size: examples per step.
        multiplier: scales the gradients of the tables.
        train: `training.train`, or a function that trains elsewhere.
    """
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    print(str(plan()).partition("\n")[0], flush=True)
    if not logs.write():
        print(f"The click logs in {logs.directory} are complete; they are used as they are.")
    progress = Progress(logs.train_examples, batch_size)
    estimator = training.make_estimator(directory / "model", logs, batch_size, progress.hook,
                                        multiplier)
    start = time.perf_counter()
    examples = train(estimator, logs, batch_size)
    progress.close()
    seconds = progress.seconds or time.perf_counter() - start
    metrics = _evaluate(estimator, logs)
    predicted = predict(estimator, logs, _PREDICTIONS)
    of_run = pathlib.Path(estimator.model_dir).parent  # a sweep gives each run a model_dir
    saved_model = export(estimator, of_run / "export")
    served = serve(saved_model, logs, _PREDICTIONS)
    report, = write_report([pathlib.Path(estimator.model_dir)], of_run / "report", formats=())
    if examples:
        print(f"Trained on {examples:,} examples in {seconds:.1f} s, "
              f"{examples / seconds:,.0f} examples/s.")
    _show_section("Metrics on held-out records",
                  {name: f"{value:.4f}" for name, value in metrics.items()})
    _show_section("Files", {
        "click logs": str(logs.directory), "checkpoints": estimator.model_dir,
        "SavedModel": f"{saved_model}, whose predictions equal the estimator's within "
                      f"{np.abs(predicted - served).max():.0e}",
        "report": f"{report}, with curves and tables"})


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


class Progress:
    """The line that shows step, loss, examples per second and the time left of a training.

    Attributes:
        seconds: those between the starts of its sessions and their ends.
    """

    def __init__(self, examples: int, batch_size: int):
        """Shows nothing until the first session starts."""
        self.seconds = 0.0
        self._examples, self._batch_size = examples, batch_size
        self._line: tqdm.tqdm | None = None

    def hook(self, loss: tf.Tensor) -> "_ProgressHook":
        """Returns a hook of one session that shows this loss."""
        return _ProgressHook(self, loss)

    def show(self, step: int, loss: float | None) -> None:
        """Moves the line to a step."""
        done = min(step * self._batch_size, self._examples)
        if self._line is None:
            self._line = tqdm.tqdm(total=self._examples, initial=done, desc="Training",
                                   unit=" examples", unit_scale=True)
        if loss is not None:
            self._line.set_postfix(step=step, loss=f"{loss:.4f}", refresh=False)
        self._line.update(done - self._line.n)

    def close(self) -> None:
        """Keeps the finished line."""
        if self._line is not None:
            self._line.close()


class _ProgressHook(tf.compat.v1.train.SessionRunHook):
    def __init__(self, progress: Progress, loss: tf.Tensor):
        self._progress, self._loss = progress, loss
        self._step_of_graph = tf.compat.v1.train.get_global_step()

    def after_create_session(self, session, coord):
        self._step = int(session.run(self._step_of_graph))
        self._start = time.perf_counter()
        self._progress.show(self._step, None)

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        self._step += 1
        self._progress.show(self._step, run_values.results)

    def end(self, session):
        self._progress.seconds += time.perf_counter() - self._start


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


def plan() -> EmbeddingPlan:
    """Returns the EmbeddingPlan of the demo's columns."""
    from tpu_estimator_embedding.estimator.embedding_config_spec import spec_to_plan

    return spec_to_plan(model.embedding_config_spec(), training=True, num_hosts=1)


def _show_section(title: str, lines: Mapping[str, str]) -> None:
    width = max(len(name) for name in lines)
    print("", title, *(f"  {name:<{width}}  {text}" for name, text in lines.items()), sep="\n")
