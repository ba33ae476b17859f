# SPDX-License-Identifier: Apache-2.0
"""Follows a program with a TPUEstimator: a legacy program, or one with explicit imports."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tpu_estimator_embedding.migration.verify import evaluation
from tpu_estimator_embedding.migration.verify.life import (
    AGAIN,
    EVALUATION,
    PREDICTION,
    TRAINING,
    Life,
    steps_again,
)
from tpu_estimator_embedding.migration.verify.recording import (
    READ_AHEAD,
    RecordedResult,
    RecordingSettings,
    TrainedError,
    limited_steps,
)
from tpu_estimator_embedding.runtime.interception import estimators_intercepted
from tpu_estimator_embedding.types import RunConfig

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.tpu_estimator import TPUEstimator

Result = TypeVar("Result")
SEED = 1
_ENDS = ("export_saved_model",)  # what ends the program after its training


class _Call(NamedTuple):
    """A call of `train`."""

    train: Callable[..., object]
    estimator: TPUEstimator
    arguments: Mapping[str, Any]


class EstimatorRun:
    """The run of a program with a TPUEstimator, from its first training.

    Attributes:
        result: None until the program has trained.
    """

    def __init__(self, settings: RecordingSettings) -> None:
        self._settings = settings
        self._arguments_of: dict[TPUEstimator, dict[str, Any]] = {}
        self._life = Life()
        self._first: _Call | None = None
        self._evaluated: Mapping[str, object] = {}
        self._predicted: evaluation.Rows = []
        self.result: RecordedResult | None = None

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Replaces the methods of TPUEstimator."""
        with estimators_intercepted({
                "__init__": self._construct, "train": self._train, "evaluate": self._evaluate,
                "predict": self._predict, **dict.fromkeys(_ENDS, self._end)}):
            yield

    def finish(self) -> None:
        """Trains again, once the program has ended, if it has not done so itself."""
        if self._first is not None and self.result is not None and (
                AGAIN not in self._life.phases):
            try:
                self._train_again(self._first)
            except Exception as error:  # of the program, whatever it raises
                self._note(f"no second training was compared: {type(error).__name__}: {error}")
        if self.result is not None:
            self.result = dataclasses.replace(self.result, phases=tuple(self._life.phases.items()))

    def _construct(self, original: Callable[..., None], estimator: TPUEstimator,
                   arguments: dict[str, Any]) -> None:
        if arguments["embedding_config_spec"] is not None:
            arguments["config"] = _recorded_config(arguments["config"], self._settings)
            arguments["model_dir"] = arguments["config"].model_dir
        original(**arguments)
        self._arguments_of[estimator] = arguments

    def _train(self, original: Callable[..., TPUEstimator], estimator: TPUEstimator,
               arguments: dict[str, Any]) -> TPUEstimator:
        constructed = self._arguments_of[estimator]
        if constructed["embedding_config_spec"] is None:
            return original(**arguments)
        call = _Call(original, estimator, arguments)
        if self._first is not None and self._first.estimator is not estimator:
            raise TrainedError  # which may start from other values
        if self.result is None:
            self._first = call
            self.result = self._train_first(call, constructed)
            self._life.add(TRAINING, len(self.result.losses))
        elif AGAIN not in self._life.phases:
            self._train_again(call)
        else:
            self._life.pass_over()
        self._evaluate_at_end(call)
        return estimator

    def _evaluate_at_end(self, call: _Call) -> None:
        """Evaluates as `train_and_evaluate` does after the last step, which reads the result."""
        from tpu_estimator_embedding.compat.upstream import training
        for listener in call.arguments["saving_listeners"] or ():
            if isinstance(listener, training._NewCheckpointListenerForEvaluate):
                spec = listener._evaluator._eval_spec
                results = call.estimator.evaluate(
                    spec.input_fn, spec.steps, spec.hooks, name=spec.name)
                listener.eval_result = training._EvalResult(
                    training._EvalStatus.EVALUATED, results, self._settings.directory)

    def _evaluate(self, original: Callable[..., Mapping[str, object]], estimator: TPUEstimator,
                  arguments: dict[str, Any]) -> Mapping[str, object]:
        if self.result is None:
            return original(**arguments)
        self._check_model(estimator)
        if self.result.num_replicas > 1:
            raise TrainedError
        if EVALUATION in self._life.phases:
            self._life.pass_over()
            return self._evaluated
        self._evaluated = evaluation.of_estimator(
            original, arguments, self._settings, self._step())
        self.result = dataclasses.replace(
            self.result, evaluation=evaluation.numbers(self._evaluated))
        self._life.add(EVALUATION, self._step())
        return self._evaluated

    def _predict(self, original: Callable[..., Iterator[Any]], estimator: TPUEstimator,
                 arguments: dict[str, Any]) -> Iterator[Any]:
        if self.result is None:
            return original(**arguments)
        self._check_model(estimator)
        if self.result.num_replicas > 1:
            raise TrainedError
        if PREDICTION in self._life.phases:
            self._life.pass_over()
        else:
            self._predicted = evaluation.predicted_by_estimator(
                original, arguments, self._settings, self._step())
            self._life.add(PREDICTION, self._step())
        return iter(self._predicted)

    def _end(self, original: Callable[..., Result], estimator: TPUEstimator,
             arguments: dict[str, Any]) -> Result:
        if self.result is not None:
            raise TrainedError
        return original(**arguments)

    def _check_model(self, estimator: TPUEstimator) -> None:
        """Ends the program where it goes on with another model than the one that has trained."""
        if self._first is not None and (
                self._arguments_of[estimator]["model_fn"]
                is not self._arguments_of[self._first.estimator]["model_fn"]):
            raise TrainedError

    def _step(self) -> int:
        assert self.result is not None
        return len(self.result.losses) + len(self.result.again)

    def _note(self, text: str) -> None:
        assert self.result is not None
        self.result = dataclasses.replace(self.result, notes=(*self.result.notes, text))

    def _train_first(self, call: _Call, constructed: Mapping[str, Any]) -> RecordedResult:
        from tpu_estimator_embedding.estimator.embedding_config_spec import spec_to_plan
        from tpu_estimator_embedding.migration.verify import step_checkpoints
        from tpu_estimator_embedding.migration.verify.batches import RecordedInput
        from tpu_estimator_embedding.migration.verify.plan_values import plan_values
        replicas = call.estimator.config.tpu_config.num_shards or 1
        steps = limited_steps(self._settings.steps, call.arguments)
        notes = () if steps == self._settings.steps else (
            f"the program's first call of train has {steps} steps, fewer than "
            f"{self._settings.steps}, and verify compares these",)
        recorded = RecordedInput(call.arguments["input_fn"], self._settings,
                                 (steps + READ_AHEAD) * replicas)
        with step_checkpoints.collected() as found:
            checkpoints = step_checkpoints.StepCheckpoints(
                self._settings.directory, self._settings.reference, found)
            of_model = step_checkpoints.ModelVariables()
            call.train(input_fn=recorded.input_fn, steps=steps,
                       hooks=[of_model, *(call.arguments["hooks"] or ()), checkpoints])
        plan = spec_to_plan(constructed["embedding_config_spec"], training=True,
                            num_hosts=constructed["num_hosts"] or 1)
        return RecordedResult(
            tuple(checkpoints.losses), plan_values(plan), tuple(recorded.inputs),
            tuple(recorded.digests), recorded.is_repeatable, is_seedless=recorded.is_seedless,
            tables=found.table_variables, trainable=checkpoints.trainable, num_replicas=replicas,
            of_hooks=tuple(sorted(checkpoints.names - of_model.names)), steps=steps, notes=notes,
            draws=checkpoints.draws)

    def _train_again(self, call: _Call) -> None:
        from tpu_estimator_embedding.migration.verify import step_checkpoints
        from tpu_estimator_embedding.migration.verify.batches import RecordedInput
        assert self.result is not None
        first = len(self.result.losses)
        steps = steps_again(self._settings, first, call.arguments["steps"])
        self._life.add(AGAIN, first)  # also if it fails: the program does not try twice
        if not steps or not first:
            return
        recorded = RecordedInput(call.arguments["input_fn"], evaluation.in_folder(
            self._settings, AGAIN), (steps + READ_AHEAD) * self.result.num_replicas)
        with step_checkpoints.collected() as found:
            checkpoints = step_checkpoints.StepCheckpoints(
                self._settings.directory, None, found, first)
            call.train(input_fn=recorded.input_fn, max_steps=first + steps,
                       hooks=[*(call.arguments["hooks"] or ()), checkpoints])
        self.result = dataclasses.replace(self.result, again=tuple(checkpoints.losses))
        self._life.add(AGAIN, self._step())


def _recorded_config(config: RunConfig | None, settings: RecordingSettings) -> RunConfig:
    from tpu_estimator_embedding.compat import upstream
    config = config or upstream.tpu_config.RunConfig()
    seed = SEED if config.tf_random_seed is None else config.tf_random_seed
    return config.replace(
        model_dir=os.path.join(settings.directory, "model"), tf_random_seed=seed,
        save_checkpoints_secs=None, save_checkpoints_steps=None,
        tpu_config=config.tpu_config._replace(iterations_per_loop=1))
