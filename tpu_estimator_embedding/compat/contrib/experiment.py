# SPDX-License-Identifier: Apache-2.0
"""`Experiment` of `tf.contrib.learn`, over `tf.estimator.train_and_evaluate`."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.compat.contrib import learn

v1 = tf.compat.v1


class Experiment:
    """An Estimator with its input, and the number of steps.

    Args:
        estimator: an Estimator of `tf.estimator`.
        train_input_fn: returns the training data.
        eval_input_fn: returns the evaluation data.
        eval_metrics: must be None; return them from model_fn.
        train_steps: the global step at which training ends; None means the end of the data.
        eval_steps: batches of an evaluation; None means all.
        train_monitors: hooks of the training.
        eval_hooks: hooks of evaluations.
        eval_delay_secs: seconds before the first evaluation, in a process that only evaluates:
            the evaluator of TF_CONFIG, or one that calls `evaluate`.
        continuous_eval_throttle_secs: least seconds between two evaluations.
        min_eval_frequency: None or 1: as often as there are checkpoints.
        delay_workers_by_global_step: must be false.
        export_strategies: exporters of `tf.estimator`, called after evaluations.

    Raises:
        ValueError: if an argument has no counterpart.
        TypeError: if a monitor is no hook, or a strategy no exporter.
    """

    def __init__(self, estimator: Any, train_input_fn: Callable[..., Any],
                 eval_input_fn: Callable[..., Any], eval_metrics: None = None,
                 train_steps: int | None = None, eval_steps: int | None = 100,
                 train_monitors: Sequence[object] | None = None,
                 eval_hooks: Sequence[object] | None = None, eval_delay_secs: int = 120,
                 continuous_eval_throttle_secs: int = 60, min_eval_frequency: int | None = None,
                 delay_workers_by_global_step: bool = False,
                 export_strategies: Any = None) -> None:
        for name, value, advice in (
                ("eval_metrics", eval_metrics, "Return `eval_metric_ops` from model_fn"),
                ("delay_workers_by_global_step", delay_workers_by_global_step, "Omit it")):
            if value:
                raise ValueError(f"`{name}` must be empty, got {value!r}. {advice}.")
        if min_eval_frequency not in (None, 1):
            raise ValueError(f"`min_eval_frequency` must be None or 1, got {min_eval_frequency!r}. "
                             "Evaluations follow checkpoints: set save_checkpoints_steps of the "
                             "RunConfig.")
        self._estimator = estimator
        self._train = v1.estimator.TrainSpec(
            train_input_fn, train_steps,
            learn.replace_monitors_with_hooks(train_monitors, estimator))
        self._eval = v1.estimator.EvalSpec(
            eval_input_fn, eval_steps, hooks=eval_hooks, exporters=export_strategies,
            start_delay_secs=eval_delay_secs, throttle_secs=continuous_eval_throttle_secs)

    @property
    def estimator(self) -> Any:
        """The Estimator."""
        return self._estimator

    @property
    def train_steps(self) -> int | None:
        """The global step at which training ends."""
        return self._train.max_steps

    @property
    def eval_steps(self) -> int | None:
        """Batches of an evaluation."""
        return self._eval.steps

    def train(self, delay_secs: float | None = None) -> Any:
        """Trains up to `train_steps`.

        Args:
            delay_secs: seconds to wait before; None means 5 for each worker of TF_CONFIG that comes
                before this one, but at most 60.
        """
        _wait(min(60, 5 * (self._estimator.config.task_id or 0)) if delay_secs is None
              else delay_secs, "training")
        return self._estimator.train(self._train.input_fn, list(self._train.hooks),
                                     max_steps=self._train.max_steps)

    def evaluate(self, delay_secs: float | None = None, name: str | None = None) -> Any:
        """Returns the metrics of the latest checkpoint.

        Args:
            delay_secs: seconds to wait before; None means `eval_delay_secs`.
            name: name of the evaluation, for its summaries; None means "one_pass".
        """
        _wait(self._eval.start_delay_secs if delay_secs is None else delay_secs, "evaluation")
        return self._estimator.evaluate(self._eval.input_fn, self._eval.steps,
                                        list(self._eval.hooks), name=name or "one_pass")

    def train_and_evaluate(self) -> Any:
        """Trains, and evaluates each checkpoint; in a cluster, as TF_CONFIG says.

        Returns:
            `(metrics, exports)` of the last evaluation.
        """
        return v1.estimator.train_and_evaluate(self._estimator, self._train, self._eval)

    local_run = train_and_evaluate

    def test(self) -> Any:
        """Trains and evaluates one step."""
        self._estimator.train(self._train.input_fn, steps=1)
        return self._estimator.evaluate(self._eval.input_fn, 1, name="one_pass")

    def run_std_server(self) -> None:
        """Serves as the process of a cluster that TF_CONFIG names, until it is ended."""
        config = self._estimator.config
        v1.train.Server(config.cluster_spec, config.task_type, config.task_id,
                        protocol=config.protocol).join()


def _wait(seconds: float, purpose: str) -> None:
    if seconds > 0:
        v1.logging.info("Waiting %g seconds before %s.", seconds, purpose)
        time.sleep(seconds)
