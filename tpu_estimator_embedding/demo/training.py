# SPDX-License-Identifier: Apache-2.0
"""Creates and trains the estimator of the demo, and resumes after an interruption."""

import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import tensorflow as tf

from tpu_estimator_embedding.demo import model
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.model import make_input_fn
from tpu_estimator_embedding.demo.untrained_tables import KeepFirstCheckpoint
from tpu_estimator_embedding.types import EstimatorSpec, Tensor

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

_CHECKPOINTS_PER_RUN = 20
_SUMMARIES_PER_RUN = 50
_EVALUATIONS = 4  # evenly spaced, including the one after training


def make_estimator(model_dir: pathlib.Path, logs: ClickLogs, batch_size: int,
                   new_progress: Callable[[tf.Tensor], tf.compat.v1.train.SessionRunHook],
                   multiplier: Callable[[Tensor], Tensor] | None = None) -> "TPUEstimator":
    """Returns a TPUEstimator on the embedding engine.

    Args:
        model_dir: directory of checkpoints.
        logs: the training data.
        batch_size: examples per step, in every mode.
        new_progress: creates the hook that shows the progress of training, from the loss.
        multiplier: function of the global step that scales the gradients of the tables.
    """
    tpu = tf.compat.v1.estimator.tpu
    steps = total_steps(logs, batch_size)
    config = tpu.RunConfig(
        model_dir=str(model_dir), tf_random_seed=logs.seed,
        save_checkpoints_steps=max(1, steps // _CHECKPOINTS_PER_RUN),
        save_summary_steps=max(1, steps // _SUMMARIES_PER_RUN),
        experimental_max_worker_delay_secs=0,  # training may be over after the usual 5
        log_step_count_steps=None, tpu_config=tpu.TPUConfig(iterations_per_loop=1))
    return tpu.TPUEstimator(
        model_fn=_model_fn_with_progress(new_progress), config=config, use_tpu=True,
        train_batch_size=batch_size, eval_batch_size=batch_size, predict_batch_size=batch_size,
        params={"columns": model.embedding_columns(), "dense_learning_rate": 0.1},
        embedding_config_spec=model.embedding_config_spec(multiplier=multiplier))


def total_steps(logs: ClickLogs, batch_size: int) -> int:
    """Returns the number of steps in one pass over the training records."""
    return -(-logs.train_examples // batch_size)


def trained_steps(estimator: "TPUEstimator") -> int:
    """Returns the global step of the newest checkpoint; 0 without a checkpoint."""
    checkpoint = estimator.latest_checkpoint()
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def train(estimator: "TPUEstimator", logs: ClickLogs, batch_size: int) -> int:
    """Trains on every record once, resuming from the newest checkpoint.

    It also evaluates several times, for a curve over the steps.

    Returns:
        The number of records trained in this run.
    """
    start, total = trained_steps(estimator), total_steps(logs, batch_size)
    if is_trained(estimator, start, total):
        return 0
    for stop in evaluation_steps(total):
        if start < stop:
            _train_until(stop, estimator, logs)
            if stop < total:  # the last evaluation belongs to the next phase of the demo
                estimator.evaluate(make_input_fn(logs.eval_files))
    return logs.train_examples - start * batch_size


def is_trained(estimator: "TPUEstimator", start: int, total: int) -> bool:
    """Whether no steps are left; says so, or that a run resumes.

    Args:
        estimator: the model.
        start: the step of its newest checkpoint.
        total: the steps of the whole training.
    """
    if start >= total:
        print(f"The model is already trained: step {start} of {total}.")
    elif start:
        print(f"Resuming the interrupted run at step {start} of {total}, "
              f"from {estimator.latest_checkpoint()}.")
    return start >= total


def evaluation_steps(total: int) -> list[int]:
    """Returns the steps after which the model is evaluated, including the last one.

    >>> evaluation_steps(440)
    [110, 220, 330, 440]
    """
    return sorted({max(1, total * number // _EVALUATIONS)
                   for number in range(1, _EVALUATIONS + 1)})


def _train_until(stop: int, estimator: "TPUEstimator", logs: ClickLogs) -> None:
    input_fn = make_input_fn(logs.train_files, first_batch=trained_steps(estimator))
    estimator.train(input_fn, max_steps=stop,
                    saving_listeners=[KeepFirstCheckpoint(pathlib.Path(estimator.model_dir))])


def _model_fn_with_progress(
        new_progress: Callable[[tf.Tensor], tf.compat.v1.train.SessionRunHook],
) -> Callable[..., EstimatorSpec]:
    def model_fn(features, labels, mode, params):
        spec = model.model_fn(features, labels, mode, params)
        if mode != tf.estimator.ModeKeys.TRAIN:
            return spec
        return spec._replace(training_hooks=(new_progress(spec.loss),))

    return model_fn
