# SPDX-License-Identifier: Apache-2.0
"""Training and evaluation by turns, as `tf.estimator.train_and_evaluate` on one machine."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.trainer.trainer import (
    SavingListener,
    Trainer,
    check_no_sessions,
    check_steps,
)


@dataclasses.dataclass(frozen=True)
class TrainSpec:
    """What `train_and_evaluate` trains.

    Attributes:
        input_fn: as for `Trainer.train`.
        max_steps: the global step to stop at; None means until the input ends.
        hooks: None or empty: hooks need a session.
        saving_listeners: as for `Trainer.train`.

    Raises:
        ValueError: `max_steps` is below 1, or hooks are given.
    """

    input_fn: Callable[..., tf.data.Dataset]
    max_steps: int | None = None
    hooks: object = None
    saving_listeners: Sequence[SavingListener] | None = None

    def __post_init__(self) -> None:
        check_steps(None, self.max_steps)
        check_no_sessions(hooks=self.hooks)


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What `train_and_evaluate` evaluates, and how often.

    Attributes:
        input_fn: as for `Trainer.evaluate`.
        steps: number of batches; None evaluates all.
        name: as for `Trainer.evaluate`.
        hooks: None or empty: hooks need a session.
        exporters: None or empty: export with `tf.saved_model.save`.
        start_delay_secs: is ignored, as on one machine: it is for an evaluator's own process.
        throttle_secs: seconds from one evaluation to the next, at least.

    Raises:
        ValueError: `steps` is below 1, `throttle_secs` below 0, or hooks or exporters are given.
    """

    input_fn: Callable[..., tf.data.Dataset]
    steps: int | None = 100
    name: str | None = None
    hooks: object = None
    exporters: object = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        check_steps(self.steps)
        check_no_sessions(hooks=self.hooks)
        checks.check(not self.exporters, "exporters", "empty", self.exporters, "Exporters need a "
                     "session: call tf.saved_model.save after train_and_evaluate.")
        checks.check_with_sentence(
            self.throttle_secs >= 0, f"Must specify throttle_secs >= 0, given: "
            f"{self.throttle_secs}")


def train_and_evaluate(trainer: Trainer, train_spec: TrainSpec, eval_spec: EvalSpec
                       ) -> tuple[dict[str, Any], list[object]]:
    """Trains, and evaluates after checkpoints and at the end.

    A checkpoint is evaluated if `throttle_secs` have passed since the last evaluation.

    Args:
        trainer: a Trainer or KerasTrainer.
        train_spec: what it trains.
        eval_spec: what it evaluates.

    Returns:
        The results of the last evaluation, and an empty list, in the place of exports.

    Raises:
        TypeError: one of the specs is of another class.

    Example: what `migrate --to tf2` writes::

        results, _ = train_and_evaluate(
            trainer, TrainSpec(input_fn, max_steps=1000), EvalSpec(eval_input_fn, steps=10))
    """
    for name, spec, kind in (("train_spec", train_spec, TrainSpec),
                             ("eval_spec", eval_spec, EvalSpec)):
        checks.check_type(kind, name, f"a {kind.__name__} of tpu_estimator_embedding.trainer", spec)
    evaluation = _Evaluation(trainer, eval_spec)
    trainer.train(train_spec.input_fn, max_steps=train_spec.max_steps, saving_listeners=[
        *(train_spec.saving_listeners or ()), evaluation.after_save])
    return evaluation.at_end(), []


class _Evaluation:
    def __init__(self, trainer: Trainer, spec: EvalSpec) -> None:
        self._trainer, self._spec = trainer, spec
        self._results: dict[str, Any] | None = None
        self._evaluated_at = -float("inf")  # on the monotonic clock

    def after_save(self, step: int) -> None:
        """Evaluates a checkpoint, unless the last evaluation was a short time ago."""
        del step  # of the Trainer
        if time.monotonic() - self._evaluated_at >= self._spec.throttle_secs:
            self._evaluate()

    def at_end(self) -> dict[str, Any]:
        """Returns the results of the last step."""
        if self._results is None or self._results["global_step"] != int(
                self._trainer.global_step.numpy()):
            self._evaluate()
        assert self._results is not None
        return self._results

    def _evaluate(self) -> None:
        spec = self._spec
        self._results = self._trainer.evaluate(spec.input_fn, steps=spec.steps, name=spec.name)
        self._evaluated_at = time.monotonic()
