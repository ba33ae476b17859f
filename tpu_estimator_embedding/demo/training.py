# SPDX-License-Identifier: Apache-2.0
"""The demo's estimator: made, trained, and trained on after an interruption."""

import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.demo import model
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.inputs import make_input_fn
from tpu_estimator_embedding.demo.progress import ProgressHook
from tpu_estimator_embedding.demo.untrained_tables import KeepFirstCheckpoint

_CHECKPOINTS_PER_RUN = 20


def make_estimator(model_dir: pathlib.Path, logs: ClickLogs, batch_size: int,
                   on_start: Callable[[], None]) -> Any:
    """Returns a TPUEstimator on the embedding engine.

    Args:
        model_dir: where checkpoints are, and go.
        logs: what it will be trained on.
        batch_size: examples in a step, in every mode.
        on_start: called when everything is ready for the first step of training.
    """
    tpu = tf.compat.v1.estimator.tpu
    config = tpu.RunConfig(
        model_dir=str(model_dir), tf_random_seed=logs.seed,
        save_checkpoints_steps=max(1, total_steps(logs, batch_size) // _CHECKPOINTS_PER_RUN),
        log_step_count_steps=None, tpu_config=tpu.TPUConfig(iterations_per_loop=1))
    return tpu.TPUEstimator(
        model_fn=_model_fn_with_progress(logs, batch_size, on_start), config=config, use_tpu=True,
        train_batch_size=batch_size, eval_batch_size=batch_size, predict_batch_size=batch_size,
        params={"columns": model.embedding_columns(), "dense_learning_rate": 0.1},
        embedding_config_spec=model.embedding_config_spec())


def total_steps(logs: ClickLogs, batch_size: int) -> int:
    """Returns the steps of one pass over the training records."""
    return -(-logs.train_examples // batch_size)


def trained_steps(estimator: Any) -> int:
    """Returns the global step of the newest checkpoint, 0 without one."""
    checkpoint = estimator.latest_checkpoint()
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def train(estimator: Any, logs: ClickLogs, batch_size: int) -> int:
    """Trains on every record once, going on where the newest checkpoint stopped.

    Returns:
        The records of this run.
    """
    start, total = trained_steps(estimator), total_steps(logs, batch_size)
    if start >= total:
        print(f"The model is trained already: step {start} of {total}.")
        return 0
    if start:
        print(f"Resuming the interrupted run at step {start} of {total}, "
              f"from {estimator.latest_checkpoint()}.")
    input_fn = make_input_fn(logs.train_files, first_record=start * batch_size)
    estimator.train(input_fn, max_steps=total,
                    saving_listeners=[KeepFirstCheckpoint(pathlib.Path(estimator.model_dir))])
    return logs.train_examples - start * batch_size


def _model_fn_with_progress(logs: ClickLogs, batch_size: int,
                            on_start: Callable[[], None]) -> Any:
    def model_fn(features, labels, mode, params):
        spec = model.model_fn(features, labels, mode, params)
        if mode != tf.estimator.ModeKeys.TRAIN:
            return spec
        progress = ProgressHook(spec.loss, logs.train_examples, batch_size, on_start)
        return spec._replace(training_hooks=(progress,))

    return model_fn
