# SPDX-License-Identifier: Apache-2.0
"""Training and evaluation by turns, as `tf.estimator.train_and_evaluate` on one machine."""

import dataclasses
import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class _Exporter(Protocol):
    name: str

    def export(self, estimator: Trainer, export_path: str, checkpoint_path: str | None,
               eval_result: dict[str, Any], is_the_final_export: bool) -> object:
        """Exports the model, or decides not to; returns the path of the export."""


@dataclasses.dataclass(frozen=True)
class EvalSpec:
    """What `train_and_evaluate` evaluates, and how often.

    Attributes:
        input_fn: as for `Trainer.evaluate`.
        steps: number of batches; None evaluates all.
        name: as for `Trainer.evaluate`.
        hooks: None or empty: hooks need a session.
        exporters: None, or one or several objects with a `name` and a method `export`, such as a
            FinalExporter, LatestExporter or BestExporter of `tpu_estimator_embedding.tf_estimator`;
            a tuple from then on. Each may export after every evaluation, to the folder
            `export/NAME` of model_dir.
        start_delay_secs: is ignored, as on one machine: it is for an evaluator's own process.
        throttle_secs: seconds from one evaluation to the next, at least.

    Raises:
        ValueError: `steps` is below 1, `throttle_secs` below 0, hooks are given, or two exporters
            have the same name.
        TypeError: an exporter is of another kind.
    """

    input_fn: Callable[..., tf.data.Dataset]
    steps: int | None = 100
    name: str | None = None
    hooks: object = None
    exporters: Any = None
    start_delay_secs: float = 120
    throttle_secs: float = 600

    def __post_init__(self) -> None:
        check_steps(self.steps)
        check_no_sessions(hooks=self.hooks)
        given = () if self.exporters is None else self.exporters
        exporters = tuple(given) if isinstance(given, Iterable) else (given,)
        for exporter in exporters:
            checks.check_type(_Exporter, "exporters", "objects with a name and a method export",
                              exporter)
        object.__setattr__(self, "exporters", exporters)  # which the program may not change later
        names = [exporter.name for exporter in exporters]
        checks.check(len({*names}) == len(names), "exporters", "of different names", names)
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
        The results of the last evaluation, and what its exporters returned.

    Raises:
        TypeError: one of the specs is of another class.
        ValueError: there are exporters, and the Trainer has no model_dir.

    Example: what `migrate --to tf2` writes::

        results, _ = train_and_evaluate(
            trainer, TrainSpec(input_fn, max_steps=1000), EvalSpec(eval_input_fn, steps=10))
    """
    for name, spec, kind in (("train_spec", train_spec, TrainSpec),
                             ("eval_spec", eval_spec, EvalSpec)):
        checks.check_type(kind, name, f"a {kind.__name__} of tpu_estimator_embedding.trainer", spec)
    checks.check(trainer.model_dir is not None or not eval_spec.exporters, "model_dir",
                 "a directory, to which exporters export", trainer.model_dir,
                 "Give the Trainer one.")
    evaluation = _Evaluation(trainer, train_spec.max_steps, eval_spec)
    trainer.train(train_spec.input_fn, max_steps=train_spec.max_steps, saving_listeners=[
        *(train_spec.saving_listeners or ()), evaluation.after_save])
    return evaluation.at_end()


class _Evaluation:
    def __init__(self, trainer: Trainer, max_steps: int | None, spec: EvalSpec) -> None:
        self._trainer, self._max_steps, self._spec = trainer, max_steps, spec
        self._results: dict[str, Any] | None = None
        self._exports: list[object] = []
        self._evaluated_at = -float("inf")  # on the monotonic clock

    def after_save(self, step: int) -> None:
        """Evaluates a checkpoint, unless the last evaluation was a short time ago."""
        del step  # of the Trainer
        if time.monotonic() - self._evaluated_at >= self._spec.throttle_secs:
            self._evaluate()

    def at_end(self) -> tuple[dict[str, Any], list[object]]:
        """Returns the results and exports of the last step."""
        if self._results is None or self._results["global_step"] != int(
                self._trainer.global_step.numpy()):
            self._evaluate()
        assert self._results is not None
        return self._results, self._exports

    def _evaluate(self) -> None:
        spec = self._spec
        self._results = self._trainer.evaluate(spec.input_fn, steps=spec.steps, name=spec.name)
        self._evaluated_at = time.monotonic()
        is_final = bool(self._max_steps) and self._results["global_step"] >= self._max_steps
        self._exports = [exporter.export(
            estimator=self._trainer,
            export_path=os.path.join(self._trainer.model_dir or "", "export", exporter.name),
            checkpoint_path=self._trainer.latest_checkpoint(), eval_result=self._results,
            is_the_final_export=is_final) for exporter in spec.exporters]
