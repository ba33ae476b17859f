# SPDX-License-Identifier: Apache-2.0
"""Follows a program of the stage `keras3` while its KerasTraining trains, on any backend.

`checkpoint convert` takes the legacy program's initial values to the program, and what the
program saves after every step back to the names of TPUEstimator.
"""

import contextlib
import dataclasses
import functools
import inspect
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

import tensorflow as tf

from tpu_estimator_embedding import checkpoint
from tpu_estimator_embedding.checkpoint.contents import PARAMETERS, CheckpointContents
from tpu_estimator_embedding.checkpoint.names import Names
from tpu_estimator_embedding.checkpoint.reading import read_checkpoint
from tpu_estimator_embedding.checkpoint.stored_tensor import StoredTensor
from tpu_estimator_embedding.migration.verify import evaluation
from tpu_estimator_embedding.migration.verify.batches import RecordedInput
from tpu_estimator_embedding.migration.verify.evaluation import TrainerPhase
from tpu_estimator_embedding.migration.verify.keras3_plan import keras3_plan_values
from tpu_estimator_embedding.migration.verify.life import (
    AGAIN,
    EVALUATION,
    PREDICTION,
    TRAINING,
    Life,
    after,
    steps_again,
)
from tpu_estimator_embedding.migration.verify.plan_values import of_tables
from tpu_estimator_embedding.migration.verify.recording import (
    INITIAL,
    KERAS3,
    READ_AHEAD,
    RecordedResult,
    RecordingSettings,
    TrainedError,
    limited_steps,
    step_name,
)
from tpu_estimator_embedding.migration.verify.start_values import start_difference
from tpu_estimator_embedding.runtime.interception import intercepted
from tpu_estimator_embedding.types import Structure

if TYPE_CHECKING:
    import keras  # type: ignore[import-untyped]
    import keras_rs  # type: ignore[import-untyped]

RUNTIME = "keras_training"  # the module that every program of this stage imports
_FORMATS = {"jax": "keras-rs-jax", "tensorflow": "keras-rs"}
_TEMPLATE, _START, _SAVED = "template", "start", "saved"
Result = TypeVar("Result")


class _Training(Protocol):
    """What this module uses of the program's `keras_training.KerasTraining`."""

    _features: "Mapping[str, keras_rs.layers.FeatureConfig]"

    @property
    def model(self) -> "keras.Model": ...

    @property
    def optimizer(self) -> "keras.optimizers.Optimizer": ...

    def build(self, input_fn: Callable[..., Structure]) -> None: ...

    def save(self, path: str) -> None: ...

    def restore(self, path: str) -> None: ...


class Keras3Run:
    """A program that trains with `keras_training`.

    Attributes:
        result: None until the program has trained.
    """

    def __init__(self, settings: RecordingSettings) -> None:
        self._settings = settings
        self._directory = pathlib.Path(settings.directory)
        self._reference = pathlib.Path(settings.reference or "")
        self._names: dict[str, str] = {}  # in a legacy checkpoint -> in one of Keras
        self._losses: list[float | None] = []
        self._life = Life()
        # The first call of `train`, its training and input.
        self._first: tuple[Callable[..., _Training], _Training, Callable[..., Structure]] | None
        self._first = None
        self._evaluated: dict[str, float] = {}
        self._predicted: list[Structure] = []
        self.result: RecordedResult | None = None

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Watches the trainings of the module, which was imported."""
        training = sys.modules[RUNTIME].KerasTraining
        with intercepted(training, {
                "__init__": self._construct, "train": self._train, "evaluate": self._evaluate,
                "predict": self._predict}, autograph=False):
            yield

    def _construct(self, original: Callable[..., None], training: _Training, *args: object,
                   **kwargs: object) -> None:
        original(training, *args, **{**kwargs, "save_checkpoints_steps": None,
                                     "model_dir": str(self._directory / "model")})

    def finish(self) -> None:
        """Completes the run, once the program has ended; trains again if it has not."""
        if self.result is None or self._first is None:
            return
        if AGAIN not in self._life.phases:
            try:
                self._train_again(*self._first)
            except Exception as error:  # of the program, whatever it raises
                self._add(differences=("second training: the migrated program fails: "
                                       f"{type(error).__name__}: {error}",))
        self._settle()
        first = len(self.result.losses)
        self.result = dataclasses.replace(self.result, again=tuple(self._losses[first:]),
                                          phases=tuple(self._life.phases.items()))

    def _add(self, differences: tuple[str, ...] = (), notes: tuple[str, ...] = ()) -> None:
        assert self.result is not None
        self.result = dataclasses.replace(
            self.result, differences=(*self.result.differences, *differences),
            notes=(*self.result.notes, *notes))

    def _settle(self) -> None:
        """Saves the values that the last phase has left."""
        if self._first is not None:
            self._save(self._first[1], after(list(self._life.phases)[-1]))

    def _evaluate(self, original: Callable[..., dict[str, float]], training: _Training,
                  input_fn: Callable[..., Structure], **kwargs: object) -> dict[str, float]:
        if self.result is None:
            return original(training, input_fn, **kwargs)
        self._check_model(training)
        if EVALUATION in self._life.phases:
            self._life.pass_over()
            return self._evaluated
        self._evaluated = self._phase(EVALUATION, evaluation.of_trainer, original, training,
                                      input_fn)
        self.result = dataclasses.replace(
            self.result, evaluation=evaluation.numbers(self._evaluated))
        return self._evaluated

    def _predict(self, original: Callable[..., Iterator[Structure]], training: _Training,
                 input_fn: Callable[..., Structure]) -> Iterator[Structure]:
        if self.result is None:
            return original(training, input_fn)
        self._check_model(training)
        if PREDICTION in self._life.phases:
            self._life.pass_over()
        else:
            self._predicted = self._phase(PREDICTION, evaluation.predicted_by_trainer, original,
                                          training, input_fn)
        return iter(self._predicted)

    def _check_model(self, training: _Training) -> None:
        """Ends the program where it goes on with another model than the one that has trained."""
        if self._first is not None and self._first[1] is not training:
            raise TrainedError

    def _phase(self, phase: str, run: Callable[..., TrainerPhase],
               original: Callable[..., object], training: _Training,
               input_fn: Callable[..., Structure]) -> Any:
        """Runs a phase on the batches of the legacy program; returns its results.

        Raises:
            TrainedError: there is none that the program could go on with.
        """
        self._settle()
        found = run(functools.partial(original, training), input_fn, self._settings)
        self._life.add(phase, len(self._losses))
        self._add(tuple(filter(None, [found.problem])), tuple(filter(None, [found.note])))
        if found.results is None:
            raise TrainedError
        return found.results

    def _train(self, original: Callable[..., _Training], training: _Training,
               input_fn: Callable[..., Structure], *, steps: int | None = None,
               max_steps: int | None = None) -> _Training:
        if steps is not None and max_steps is not None:  # it raises its own error
            return original(training, input_fn, steps=steps, max_steps=max_steps)
        self._check_model(training)
        if self.result is None:
            self._train_first(original, training, input_fn, limited_steps(
                self._settings.steps, {"steps": steps, "max_steps": max_steps}))
        elif AGAIN not in self._life.phases:
            self._train_again(original, training, input_fn)
        else:
            self._life.pass_over()
        return training

    def _train_first(self, original: Callable[..., _Training], training: _Training,
                     input_fn: Callable[..., Structure], count: int) -> None:
        legacy = RecordedResult.load(self._reference)
        if legacy.num_replicas > 1:
            raise NotImplementedError(
                f"The legacy program shares a batch among {legacy.num_replicas} replicas, each of "
                "which has its own loss; a program of the stage keras3 has one. verify compares "
                "them with num_shards=1 in the legacy program.")
        training.build(input_fn)
        plan = keras3_plan_values(training._features,
                                  functools.partial(_optimizer_of, training.optimizer))
        shapes = self._other_shapes(training, legacy)
        if shapes:
            self._end_untrained(plan, shapes, "of other shapes")
        try:
            notes, differences = self._set_start(training, legacy)
        except ValueError as error:  # slots of another optimizer cannot be converted
            if not _has_other_optimizer(legacy, plan):
                raise
            self._end_untrained(plan, (f"initial values: {error}",), "of another optimizer")
        recorded = RecordedInput(input_fn, self._settings, self._settings.steps + READ_AHEAD)
        import keras
        self._first = original, training, input_fn
        self._run_steps(original, training, _replayed(input_fn, recorded), count)
        self._life.add(TRAINING, len(self._losses))
        self.result = RecordedResult(
            tuple(self._losses), plan, tuple(recorded.inputs), tuple(recorded.digests), True,
            stage=KERAS3, tables=legacy.tables, differences=differences, notes=(
                f"the migrated program ran on Keras's backend {keras.backend.backend()}", *notes))

    def _train_again(self, original: Callable[..., _Training], training: _Training,
                     input_fn: Callable[..., Structure]) -> None:
        self._settle()
        self._life.add(AGAIN, len(self._losses))
        steps = steps_again(self._settings, self._settings.steps, None)
        if not steps:
            return
        recorded = RecordedInput(input_fn, evaluation.in_folder(self._settings, AGAIN),
                                 steps + READ_AHEAD)
        self._run_steps(original, training, _replayed(input_fn, recorded), steps)
        self._life.add(AGAIN, len(self._losses))

    def _run_steps(self, original: Callable[..., _Training], training: _Training,
                   input_fn: Callable[..., Structure], steps: int) -> None:
        import keras
        fit = functools.partial(self._fit, keras, training)
        with intercepted(keras.Model, {"fit": fit}, autograph=False):
            original(training, input_fn, steps=steps)

    def _end_untrained(self, plan: dict[str, str], differences: tuple[str, ...],
                       which: str) -> NoReturn:
        self.result = RecordedResult(
            (), plan, (), (), True, stage=KERAS3, differences=differences, notes=(
                f"the migrated program cannot start from values {which}, so it was not trained",))
        raise TrainedError

    # The start of both programs.

    def _other_shapes(self, training: _Training, legacy: RecordedResult) -> tuple[str, ...]:
        """Saves the program's own initial values; returns those of another shape, but for slots."""
        own = {feature.table.name for feature in training._features.values()}
        self._names = {**{variable: table for table, variable in legacy.tables.items()
                          if table in own and Names().of_table(variable) != table},
                       **dict(self._settings.names)}
        template = self._directory / _TEMPLATE
        training.save(str(template))
        shapes = [{name: list(tensor.shape) for name, tensor in _tensors(contents).items()}
                  for contents in (read_checkpoint(self._reference / INITIAL),
                                   read_checkpoint(template, None, Names(self._names)))]
        return tuple(f"shape of {name}: {shape}, migrated {shapes[1][name]}"
                     for name, shape in sorted(shapes[0].items())
                     if shapes[1].get(name, shape) != shape and not _is_slot(name, legacy)
                     and name not in {variable for key, variable in legacy.tables.items()
                                      if "/" in key})

    def _set_start(self, training: _Training, legacy: RecordedResult) -> tuple[tuple[str, ...],
                                                                               tuple[str, ...]]:
        """Lets the program start from the legacy one's values; returns notes and differences."""
        template, start = (self._directory / name for name in (_TEMPLATE, _START))
        done = checkpoint.convert(self._reference / INITIAL, start, _format(training),
                                  template=template, names=self._names)
        training.restore(str(start))
        differences = [f"initial value of {name}: {found}" for name, found in _start_differences(
            done.contents, read_checkpoint(template, None, Names(self._names)))]
        weights = {weight.path for weight in training.model.weights}
        differences += [f"variable {name!r} of the migrated program has no counterpart"
                        for name in done.kept if name in weights]
        notes = []
        for name in done.left_out:
            if name in legacy.of_hooks or _is_slot(name, legacy):
                notes.append(f"variable {name!r} has no counterpart")
            else:
                differences.append(f"variable {name!r} has no counterpart; name it with --names")
        return tuple(notes), tuple(differences)

    # Every step.

    def _fit(self, keras: ModuleType, training: _Training, original: Callable[..., Result],
             model: "keras.Model", *args: object,
             callbacks: "Iterable[keras.callbacks.Callback]" = (), **kwargs: object) -> Result:
        def on_train_batch_end(batch: int, logs: Mapping[str, float]) -> None:
            if keras.backend.backend() == "jax":
                model.jax_state_sync()  # the state is in the loop of `fit`
            self._losses.append(float(logs["loss"]))
            self._save(training, step_name(len(self._losses)))
            model.reset_metrics()  # so that the next loss is that of its step alone

        callback = keras.callbacks.LambdaCallback(on_train_batch_end=on_train_batch_end)
        return original(model, *args, callbacks=[*callbacks, callback], **kwargs)

    def _save(self, training: _Training, name: str) -> None:
        folder = self._directory / _SAVED
        folder.mkdir()
        training.save(str(folder / _SAVED))
        checkpoint.convert(folder / _SAVED, self._directory / name, "v1",
                           names=self._names)
        shutil.rmtree(folder)


def _replayed(input_fn: Callable[..., Structure],
              recorded: RecordedInput) -> Callable[..., Structure]:
    """Returns an input_fn with the legacy program's batches."""
    accepted = inspect.signature(input_fn).parameters

    def replayed(params: Structure, config: object, mode: str) -> Structure:
        given = {"params": params, "config": config, "mode": mode}
        own = input_fn(**{name: value for name, value in given.items() if name in accepted})
        if not isinstance(own, tf.data.Dataset):  # which the program refuses
            return own
        return recorded.input_fn(params, config, mode)

    return replayed


def _format(training: _Training) -> str:
    backend = sys.modules[type(training).__module__].BACKEND
    if backend not in _FORMATS:
        raise NotImplementedError(f"KERAS_BACKEND must be one of {', '.join(_FORMATS)}, got "
                                  f"{backend}.")
    return _FORMATS[backend]


def _optimizer_of(whole: "keras.optimizers.Optimizer",
                  table: str) -> "keras.optimizers.Optimizer":
    """Returns the optimizer of a table; of a program that has one for all variables, that one."""
    return getattr(whole, "_of_tables", {}).get(table, getattr(whole, "_dense", whole))


def _has_other_optimizer(legacy: RecordedResult, plan: dict[str, str]) -> bool:
    old, new = of_tables(legacy.plan, plan)
    return any(rule != new.get(path, rule) for path, rule in old.items()
               if path.endswith("optimizer.rule"))


def _is_slot(name: str, legacy: RecordedResult) -> bool:
    """Whether a variable belongs to the optimizer of dense variables."""
    return name.endswith("_power") or any(
        name.startswith(f"{other}/") for other in legacy.trainable)


def _tensors(contents: CheckpointContents) -> dict[str, StoredTensor]:
    """Returns name in a checkpoint of TPUEstimator -> table, slot or variable."""
    return {**{table.key(slot) if slot != PARAMETERS else name: tensor
               for name, table in contents.tables.items()
               for slot, tensor in table.tensors()}, **contents.variables}


def _start_differences(legacy: CheckpointContents,
                       own: CheckpointContents) -> Iterator[tuple[str, str]]:
    """Yields what has initial values that an equal initializer cannot produce."""
    tensors = [_tensors(contents) for contents in (legacy, own)]
    for name in sorted(tensors[0].keys() & tensors[1].keys()):
        if found := start_difference(*(one[name].read() for one in tensors)):
            yield name, found
