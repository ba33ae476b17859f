# SPDX-License-Identifier: Apache-2.0
"""`tf.contrib.learn.learn_runner`: makes an Experiment and runs one of its methods."""

from collections.abc import Callable
from typing import Any

from tpu_estimator_embedding.compat.contrib.experiment import Experiment


def run(experiment_fn: Callable[..., Experiment], output_dir: str | None = None,
        schedule: str | None = None, run_config: Any = None, hparams: Any = None) -> Any:
    """Runs an Experiment.

    Args:
        experiment_fn: function of `output_dir`, or of `run_config` and `hparams`.
        output_dir: the argument of `experiment_fn`; not with `run_config`.
        schedule: name of the method; by default `train_and_evaluate`, which follows TF_CONFIG.
        run_config: first argument of `experiment_fn`; has a `model_dir`.
        hparams: second argument of `experiment_fn`, with `run_config`.

    Raises:
        ValueError: if both or none of `output_dir` and `run_config` are given, or the schedule
            names no method.
        TypeError: if the result of `experiment_fn` is no Experiment.
    """
    if (output_dir is None) == (run_config is None):
        raise ValueError("Must provide either `output_dir` or `run_config`, but not both, got "
                         f"{output_dir!r} and {run_config!r}.")
    if run_config is None and hparams is not None:
        raise ValueError("Must set value for `run_config`, because `hparams` is set: got "
                         f"{hparams!r}.")
    experiment = experiment_fn(output_dir) if run_config is None else experiment_fn(
        run_config, hparams)
    if not isinstance(experiment, Experiment):
        raise TypeError("Experiment builder did not return an Experiment instance, got "
                        f"{experiment!r} instead.")
    schedule = schedule or "train_and_evaluate"
    method = getattr(experiment, schedule, None)
    if schedule.startswith("_") or not callable(method):
        known = [name for name, value in vars(Experiment).items()
                 if callable(value) and not name.startswith("_")]
        raise ValueError(f"Schedule references non-existent task {schedule!r}. The tasks are "
                         f"{known}.")
    return method()


def tune(experiment_fn: Callable[..., Experiment], tuner: Any) -> None:
    """Runs Experiments for as long as a tuner has hyperparameters to try.

    Args:
        experiment_fn: function of `run_config` and `hparams`.
        tuner: has `next_trial`, which returns whether there is one, `run_experiment`, and the
            like of the interface of `tf.contrib.learn`.
    """
    while tuner.next_trial():
        tuner.run_experiment(experiment_fn)
