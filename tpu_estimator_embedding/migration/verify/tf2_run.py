# SPDX-License-Identifier: Apache-2.0
"""Follows a TF2 program while it trains, in its own loop or in `Model.fit`.

The program's first step is a trial, which creates all remaining variables. Then every variable is
reset: tables, slots and dense variables to the legacy program's initial values, the others to
their own. After each step, values are saved under their names in a checkpoint of TPUEstimator:
before the program gets the next batch or, if a `tf.function` requests the batch, as in
`Model.fit`, when the function returns.
"""

import contextlib
import dataclasses
import faulthandler
import functools
import inspect
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
)
from tpu_estimator_embedding.migration.verify import evaluation, recording
from tpu_estimator_embedding.migration.verify.counterparts import (
    Counterparts,
    Reference,
    SeenVariables,
)
from tpu_estimator_embedding.migration.verify.fed_datasets import DatasetFeed
from tpu_estimator_embedding.migration.verify.plan_values import plan_values
from tpu_estimator_embedding.migration.verify.recording import (
    TF2,
    RecordedResult,
    RecordingSettings,
    step_name,
)
from tpu_estimator_embedding.migration.verify.watched_tables import (
    WatchedTables,
    call,
    watching,
    watching_keras_rs,
    wrapped,
)
from tpu_estimator_embedding.types import Structure

Result = TypeVar("Result")
Trainer = TypeVar("Trainer")

STATUS = 3  # of a process that a step has taken too long in


class StepTimeout:
    """Ends the process where a step takes longer than `seconds`; 0 means no limit.

    The stacks of all threads and the reason go to stderr.
    """

    def __init__(self, program: str, seconds: float) -> None:
        self._program, self._seconds = program, seconds
        self._timer: threading.Timer | None = None

    def start_step(self, step: int) -> None:
        """Gives a step its time, counted from now."""
        self.stop()
        if self._seconds:
            self._timer = threading.Timer(self._seconds, self._end, [step])
            self._timer.daemon = True
            self._timer.start()

    def stop(self) -> None:
        """Ends the count: no step is running."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, step: int) -> None:
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        print(f"{self._program} has not ended step {step} {self._seconds:g} s after it asked for "
              "a batch. verify follows one process that takes a batch from a tf.data.Dataset, "
              "trains one step on it and asks for the next one; a strategy must be a "
              "MirroredStrategy or OneDeviceStrategy. Where each thread waits is in the log, which "
              "--keep DIR keeps. Where a step needs longer, say so: --step-timeout SECONDS.",
              file=sys.stderr, flush=True)
        os._exit(STATUS)


def _add_trial(arguments: dict[str, int]) -> None:
    """Adds the trial to the steps of `Model.fit`, which counts them by itself."""
    for name in ("steps", "max_steps"):
        if arguments.get(name) is not None:
            arguments[name] += 1


class StepsDoneError(RuntimeError):
    """All steps are done, or cannot be compared; it ends the program."""


class TF2Run:
    """A program that trains tables without an Estimator.

    Attributes:
        result: None until all steps are done, or `finish` was called.
        trainers: module -> class of `tpu_estimator_embedding.trainer` that trains.
    """

    trainers = {"tpu_estimator_embedding.trainer.trainer": "Trainer",
                "tpu_estimator_embedding.trainer.keras_trainer": "KerasTrainer"}

    def __init__(self, settings: RecordingSettings) -> None:
        self._settings = settings
        self._directory = pathlib.Path(settings.directory)
        self._reference = Reference(settings.reference or "")
        self._tables: list[WatchedTables] = []
        self._seen = SeenVariables()
        self._feed = DatasetFeed(self._reference.batches, self._asked)
        self._timeout = StepTimeout(settings.program, settings.step_timeout)
        self._depth = 0  # of calls of tf.functions
        self._is_fed_inside = False  # whether such a call requests batches
        self._counterparts: Counterparts | None = None
        self._updates = 0  # that were made before the batch that is trained on
        self._loss: float | None = None
        self._late: dict[str, np.ndarray] | None = None  # of the step before, without tables
        self._own: dict[WatchedTables, dict[str, np.ndarray]] = {}  # start values
        self.losses: list[float | None] = []
        self.problem = ""
        self.result: RecordedResult | None = None

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Watches the program's tables, variables, gradients and function calls."""
        with (watching(self._tables), self._seen.seeing(), self._feed.feeding(),
              watching_keras_rs(self._tables),
              wrapped(tf.GradientTape, "gradient", self._gradient),
              wrapped(type(tf.function(lambda: 0)), "__call__", self._call_function)):
            yield

    @contextlib.contextmanager
    def watching_trainer(self, module: str) -> Iterator[None]:
        """Lets a program with a Trainer evaluate after training, once."""
        trainer = getattr(sys.modules[module], self.trainers[module])
        with contextlib.ExitStack() as stack:
            is_fit = trainer.__name__ == "KerasTrainer"
            stack.enter_context(wrapped(trainer, "train", functools.partial(self._train, is_fit)))
            if "evaluate" in vars(trainer):
                stack.enter_context(wrapped(trainer, "evaluate", self._evaluate))
            yield

    def _train(self, is_fit: bool, original: Callable[..., Trainer], trainer: Trainer,
               *args: object, **kwargs: object) -> Trainer:
        self._check_open()
        given = inspect.signature(original).bind(trainer, *args, **kwargs)
        if is_fit and self._counterparts is None:
            _add_trial(given.arguments)
        try:
            return original(*given.args, **given.kwargs)
        except Exception:
            if self.result is None:
                raise
            return trainer  # which has the values after the last step

    def _evaluate(self, original: Callable[..., dict[str, float]], trainer: object,
                  input_fn: Callable[..., tf.data.Dataset], *args: object,
                  **kwargs: object) -> dict[str, float]:
        if not self._has_trained() and not self.losses:
            with self._feed.paused():
                return original(trainer, input_fn, *args, **kwargs)
        self.finish()
        if self.result is not None and self._counterparts:
            self.result = self._evaluated(self.result, functools.partial(original, trainer),
                                          input_fn, self._counterparts.is_pipelined)
        raise StepsDoneError("verify has seen the evaluation that it compares.")

    def _evaluated(self, result: RecordedResult, evaluate: Callable[..., dict[str, float]],
                   input_fn: Callable[..., tf.data.Dataset],
                   is_pipelined: bool) -> RecordedResult:
        """Returns the result with those of an evaluation; one that fails is a difference."""
        if is_pipelined:
            return dataclasses.replace(result, notes=(
                *result.notes, "evaluations of pipelined tables are not compared"))
        with self._feed.paused():
            found = evaluation.of_trainer(evaluate, input_fn, self._settings)
        return dataclasses.replace(
            result, evaluation=found.results,
            differences=(*result.differences, *filter(None, [found.problem])),
            notes=(*result.notes, *filter(None, [found.note])))

    def finish(self) -> None:
        """Saves the values of the last step, if the program ended by itself."""
        self._timeout.stop()
        if self.result is None and self._has_trained():
            self._close()
        if self.result is None and self.losses:
            self._end()

    def _gradient(self, original: Callable[..., Structure], tape: tf.GradientTape,
                  target: Structure, *args: object, **kwargs: object) -> Structure:
        if tf.is_tensor(target) and target.shape.rank == 0:
            with tape.stop_recording() if tape._recording else contextlib.nullcontext():
                call(self._note_loss, target)
        return original(tape, target, *args, **kwargs)

    def _note_loss(self, value: np.ndarray) -> None:
        self._loss = float(value)

    def _has_trained(self) -> bool:
        return self._made() > self._updates

    def _made(self) -> int:
        return max((tables.updates // tables.num_replicas for tables in self._tables), default=0)

    def _call_function(self, original: Callable[..., Result], *args: object,
                       **kwargs: object) -> Result:
        if not self._depth:
            self._note_starts()
        self._depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            self._depth -= 1
        if not self._depth and self._is_fed_inside and self._has_trained():
            self._close()
            self._check_open()
        return result

    def _asked(self) -> int:
        """Returns the number of completed steps, when the program requests the next batch."""
        self._check_open()
        self._timeout.start_step(len(self.losses) + 1)
        self._is_fed_inside = self._depth > 0  # variables may be in use by now
        if self._has_trained() and not self._is_fed_inside:
            self._close()
            self._check_open()
        self._note_starts()
        return len(self.losses)

    def _note_starts(self) -> None:
        """Notes the values before the first step; a function that asks may be in that step."""
        if self._counterparts is not None or self._has_trained():
            return
        if self._depth:
            self._seen.note_new_starts()
        else:
            self._seen.note_starts()
            self._own.clear()
        for tables in self._tables:
            values = {name: variable.numpy() for name, variable in tables.variables().items()}
            self._own[tables] = {**values, **self._own.get(tables, {})}

    def _check_open(self) -> None:
        if self.result is not None:
            raise StepsDoneError("verify has seen all steps that it compares.")

    def _close(self) -> None:
        """Saves the values after the completed step."""
        self._timeout.stop()
        made, self._updates = self._made() - self._updates, self._made()
        if made > 1:
            self.problem = (f"the migrated program made {made} steps between two batches: run one "
                            "step for each batch, with steps_per_execution=1")
            self._end()
        elif self._counterparts is None:
            self._set_back()
        else:
            self._close_step()

    def _set_back(self) -> None:
        self._counterparts = Counterparts(self._reference, self._tables, self._seen,
                                          dict(self._settings.names))
        self._counterparts.set_back()

    def _close_step(self) -> None:
        assert self._counterparts is not None
        prompt, late = self._counterparts.values()
        has_late = bool(self._counterparts.is_pipelined)
        step = len(self.losses) + 1
        if has_late and self._late is not None:
            self._save(step - 1, {**self._late, **late})
        if has_late and step > self._settings.steps:
            self._end()
            return
        self._late = prompt if has_late else None
        self.losses.append(self._loss)
        recording.save_activations(self._directory, step, {
            name: value for tables in self._tables for name, value in tables.trained.items()})
        if not has_late:
            self._save(step, {**prompt, **late})
            if step == self._settings.steps:
                self._end()

    def _save(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        assert self._counterparts is not None
        layouts = {name: TableLayout("div", 1, len(values[name]))
                   for name in self._reference.tables if name in values}
        tensors = {**values, TABLE_LAYOUTS_KEY: np.array(format_table_layouts(layouts))}
        with tf.device("/cpu:0"):
            tf.raw_ops.SaveV2(prefix=str(self._directory / step_name(step)),
                              tensor_names=list(tensors), shape_and_slices=[""] * len(tensors),
                              tensors=list(map(tf.constant, tensors.values())))

    def _end(self) -> None:
        if self._late is not None:  # whose tables nothing has completed
            complete = len(list(self._directory.glob("step-*.index")))
            del self.losses[complete:]
        found = self._counterparts
        count = len(self._reference.result.digests[0])
        own = self._feed.own_batches(count)
        notes = [] if self._feed.is_recorded else [
            "the migrated program's batches have another structure, so it was fed its own"]
        self.result = RecordedResult(
            tuple(self.losses), self._plan(), self._reference.result.inputs,
            (own.digests()[:count] if self._feed.is_recorded
             else self._reference.result.digests[0],), True,
            stage=TF2, tables=self._reference.result.tables,
            notes=(*notes, *(found.notes if found else ())),
            differences=tuple(filter(None, [self.problem, *(found.missing if found else ()),
                                            *self._start_differences()])))

    def _plan(self) -> dict[str, str]:
        values: dict[str, str] = {}
        for tables in self._tables:
            if tables.plan is not None:
                values.update(plan_values(tables.plan, evaluate=False))
        return values

    def _start_differences(self) -> Iterator[str]:
        if self._counterparts is None:
            return
        tables = {name: value for one, values in self._own.items() if one.updates
                  for name, value in values.items()}
        for name, own in self._counterparts.starts(tables).items():
            legacy = {**self._reference.tables, **self._reference.variables}[name]
            if found := start_difference(legacy, own):
                yield f"initial value of {name}: {found}"


_STANDARD_ERRORS = 6.0
_FEWEST = 8  # with fewer values, random ones are not compared


def start_difference(legacy: np.ndarray, migrated: np.ndarray) -> str:
    """Returns how two initial values differ; empty if they do not.

    >>> import numpy as np
    >>> draw = np.random.default_rng(1).normal
    >>> start_difference(draw(0.0, 0.1, 1000), draw(0.0, 0.1, 1000))
    ''
    >>> start_difference(draw(0.0, 0.1, 1000), draw(0.0, 0.2, 1000))
    'standard deviation 0.0973, migrated 0.205'
    >>> start_difference(np.zeros(3), np.ones(3))
    'mean 0, migrated 1'
    >>> start_difference(np.zeros(3), draw(0.0, 0.1, 3))
    'constant 0, migrated random'
    """
    if legacy.shape != migrated.shape or legacy.dtype.kind != "f" or not legacy.size:
        return ""
    a, b = legacy.astype(np.float64).ravel(), migrated.astype(np.float64).ravel()
    if a.size > 1 and bool(np.ptp(a)) != bool(np.ptp(b)):
        return f"{_described(a)}, migrated {_described(b)}"
    if np.ptp(a) and a.size < _FEWEST:
        return ""
    noise = (a.std() + b.std()) / np.sqrt(a.size)
    if abs(a.mean() - b.mean()) > _STANDARD_ERRORS * noise:
        return f"mean {a.mean():.3g}, migrated {b.mean():.3g}"
    if abs(a.std() - b.std()) > _STANDARD_ERRORS * noise / 2:
        return f"standard deviation {a.std():.3g}, migrated {b.std():.3g}"
    return ""


def _described(values: np.ndarray) -> str:
    return "random" if np.ptp(values) else f"constant {values[0]:.3g}"
