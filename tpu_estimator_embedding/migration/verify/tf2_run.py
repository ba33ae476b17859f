# SPDX-License-Identifier: Apache-2.0
"""Follows a TF2 program while it trains, in its own loop or in `Model.fit`.

A step is recorded before the program gets the next batch or, if a `tf.function` requests the batch,
as in `Model.fit`, when the function returns.

A Trainer is followed further, through its evaluation, prediction and second training. Each phase
starts with saving the values that the one before has left.
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
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.migration.verify import evaluation
from tpu_estimator_embedding.migration.verify.batches import RecordedBatches
from tpu_estimator_embedding.migration.verify.counterparts import Reference
from tpu_estimator_embedding.migration.verify.evaluation import TrainerPhase
from tpu_estimator_embedding.migration.verify.fed_datasets import DatasetFeed
from tpu_estimator_embedding.migration.verify.life import (
    AGAIN,
    EVALUATION,
    PREDICTION,
    TRAINING,
    Life,
    steps_again,
)
from tpu_estimator_embedding.migration.verify.recording import (
    BATCHES,
    TF2,
    RecordedResult,
    RecordingSettings,
    TrainedError,
    limited_steps,
)
from tpu_estimator_embedding.migration.verify.step_recorder import StepRecorder
from tpu_estimator_embedding.migration.verify.watched_tables import call, watching
from tpu_estimator_embedding.runtime.interception import intercepted
from tpu_estimator_embedding.types import Structure

Result = TypeVar("Result")
Trainer = TypeVar("Trainer")

STATUS = 3  # of a process that a step has taken too long in


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
        self._reference = Reference(settings.reference or "")
        self._steps = StepRecorder(settings, self._reference)
        self._feed = DatasetFeed(self._reference.batches, self._asked)
        self._timeout = StepTimeout(settings.program, settings.step_timeout)
        self._depth = 0  # of calls of tf.functions
        self._is_fed_inside = False  # whether such a call requests batches
        self._life = Life()
        # Of a Trainer: whether `fit` trains, and its first call of `train`.
        self._first: tuple[bool, functools.partial[Any]] | None = None
        self._before = self._last = 0  # steps before and after a second training
        self._is_bounded = False  # whether a training ends by itself
        self._left = 0  # how often it may still ask for a batch after its last step
        self._evaluated: dict[str, float] = {}
        self._predicted: list[Structure] = []
        self.result: RecordedResult | None = None

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Watches the program's tables, variables, gradients and function calls."""
        with (watching(self._steps.tables), self._steps.seen.seeing(), self._feed.feeding(),
              intercepted(tf.GradientTape, {"gradient": self._gradient}, autograph=False),
              intercepted(type(tf.function(lambda: 0)), {"__call__": self._call_function},
                          autograph=False)):
            yield

    @contextlib.contextmanager
    def watch_trainer(self, module: str) -> Iterator[None]:
        """Follows a program with a Trainer."""
        trainer = getattr(sys.modules[module], self.trainers[module])
        is_fit = trainer.__name__ == "KerasTrainer"
        calls: dict[str, Callable[..., object]] = {
            "__init__": self._construct, "train": functools.partial(self._train, is_fit),
            "evaluate": self._evaluate, "predict": self._predict,
            "export_saved_model": self._export}
        own = {method: call for method, call in calls.items() if method in vars(trainer)}
        with intercepted(trainer, own, autograph=False):
            yield

    def _construct(self, original: Callable[..., None], trainer: object, *args: object,
                   **kwargs: object) -> None:
        """Lets a Trainer start from nothing, and leave nothing behind."""
        given = inspect.signature(original).bind(trainer, *args, **kwargs).arguments
        given.update(model_dir=os.path.join(self._settings.directory, "model"),
                     save_checkpoints_steps=None, save_checkpoints_secs=None)
        original(**given)

    def _train(self, is_fit: bool, original: Callable[..., Trainer], trainer: Trainer,
               *args: object, **kwargs: object) -> Trainer:
        given = inspect.signature(original).bind(trainer, *args, **kwargs).arguments
        call: functools.partial[Any] = functools.partial(original, **given)
        self._check_model(trainer)
        if self.result is None:
            self._first = self._first or (is_fit, call)
            self._train_first(is_fit, call)
        elif AGAIN not in self._life.phases:
            self._train_again(is_fit, call)
        else:
            self._life.pass_over()
        return trainer

    def _train_first(self, is_fit: bool, call: functools.partial[Any]) -> None:
        """Trains the steps that are still to be compared, as far as the call has them."""
        done = len(self._steps.losses)
        own = limited_steps(self._settings.steps - done, {
            "steps": call.keywords.get("steps"),
            "max_steps": (call.keywords.get("max_steps") or sys.maxsize) - done})
        self._bounded(is_fit, call, own)
        if len(self._steps.losses) == self._settings.steps and self.result is None:
            self._end()

    def _train_again(self, is_fit: bool, call: Callable[..., object]) -> None:
        self._settle()
        self._life.add(AGAIN, len(self._steps.losses))
        folder = pathlib.Path(self._settings.reference or "", AGAIN, BATCHES, "0.pickle")
        steps = steps_again(self._settings, self._settings.steps, None)
        if not steps or not folder.exists() or self._steps.counterparts is None:
            return
        self._before, self._last = len(self._steps.losses), len(self._steps.losses) + steps
        self._feed.use(RecordedBatches.load(folder))
        self._bounded(is_fit, call, steps)
        self._life.add(AGAIN, len(self._steps.losses))

    def _bounded(self, is_fit: bool, call: Callable[..., object], steps: int) -> None:
        """Trains some steps, and completes the last one."""
        if steps <= 0:
            return
        trial = is_fit and self._steps.counterparts is None  # `fit` counts its steps by itself
        self._is_bounded, self._left = True, 2
        try:
            call(steps=steps + trial, max_steps=None)
        except Exception as error:
            if StepsDoneError.__name__ not in f"{type(error).__name__}: {error}":
                raise
        finally:
            self._is_bounded = False
        self._timeout.stop()
        if self._steps.has_trained():
            self._close()
        self._steps.complete()

    def _evaluate(self, original: Callable[..., dict[str, float]], trainer: object,
                  input_fn: Callable[..., tf.data.Dataset], *args: object,
                  **kwargs: object) -> dict[str, float]:
        if not self._steps.has_trained() and not self._steps.losses:
            with self._feed.paused():
                return original(trainer, input_fn, *args, **kwargs)
        self._check_model(trainer)
        if EVALUATION in self._life.phases:
            self._life.pass_over()
            return self._evaluated
        found = self._phase(EVALUATION, evaluation.of_trainer, original, trainer, input_fn)
        self._evaluated = found.results
        assert self.result is not None
        self.result = dataclasses.replace(self.result, evaluation=evaluation.numbers(found.results))
        return self._evaluated

    def _predict(self, original: Callable[..., Iterator[Structure]], trainer: object,
                 input_fn: Callable[..., tf.data.Dataset], *args: object,
                 **kwargs: object) -> Iterator[Structure]:
        if not self._steps.has_trained() and not self._steps.losses:
            with self._feed.paused():
                return iter(list(original(trainer, input_fn, *args, **kwargs)))
        self._check_model(trainer)
        if PREDICTION in self._life.phases:
            self._life.pass_over()
        else:
            given = inspect.signature(original).bind(trainer, input_fn, *args, **kwargs).arguments
            given = {name: value for name, value in given.items()
                     if name in ("predict_keys", "yield_single_examples")}
            self._predicted = self._phase(
                PREDICTION, evaluation.predicted_by_trainer,
                functools.partial(original, **given), trainer, input_fn).results
        return iter(self._predicted)

    def _export(self, original: Callable[..., bytes], trainer: object, *args: object,
                **kwargs: object) -> bytes:
        """Ends the program, as an export of the legacy program does, which writes files."""
        if not self._steps.has_trained() and not self._steps.losses:
            return original(trainer, *args, **kwargs)
        self._finish_training()
        raise TrainedError

    def _check_model(self, trainer: object) -> None:
        """Ends the program where it goes on with another Trainer than the one that has trained."""
        if self._first is not None and self._first[1].keywords["self"] is not trainer:
            raise TrainedError

    def _phase(self, phase: str, run: Callable[..., TrainerPhase],
               original: Callable[..., object], trainer: object,
               input_fn: Callable[..., tf.data.Dataset]) -> TrainerPhase:
        """Runs a phase on the batches of the legacy program, and notes what was not compared.

        Raises:
            TrainedError: there is no result that the program could go on with.
        """
        self._finish_training()
        self._settle()
        if self.result is None or self._steps.counterparts is None:
            raise TrainedError
        with self._feed.paused():
            found = run(functools.partial(original, trainer), input_fn, self._settings)
        self._life.add(phase, len(self._steps.losses))
        self.result = dataclasses.replace(
            self.result, differences=(*self.result.differences, *filter(None, [found.problem])),
            notes=(*self.result.notes, *filter(None, [found.note])))
        if found.results is None:
            raise TrainedError
        return found

    def finish(self) -> None:
        """Completes the run, once the program has ended; trains again if it has not."""
        self._finish_training()
        if self.result is None:
            return
        if self._first is not None and AGAIN not in self._life.phases:
            try:
                self._train_again(*self._first)
            except Exception as error:  # of the program, whatever it raises
                self.result = dataclasses.replace(self.result, differences=(
                    *self.result.differences, "second training: the migrated program fails: "
                    f"{type(error).__name__}: {error}"))
        self._settle()
        losses = self._steps.losses
        first = min(len(losses), self._settings.steps)
        self.result = dataclasses.replace(
            self.result, losses=tuple(losses[:first]), again=tuple(losses[first:]),
            phases=tuple(self._life.phases.items()))

    def _finish_training(self) -> None:
        """Saves the values of the last step, if the program ended by itself."""
        self._timeout.stop()
        if self.result is None and self._steps.has_trained():
            self._close()
        if self.result is None and self._steps.losses:
            self._end()

    def _settle(self) -> None:
        """Saves the values that the last phase has left."""
        if self._life.phases and self._first is not None:
            self._steps.save_after(list(self._life.phases)[-1])

    def _gradient(self, original: Callable[..., Structure], tape: tf.GradientTape,
                  target: Structure, *args: object, **kwargs: object) -> Structure:
        if tf.is_tensor(target) and target.shape.rank == 0:
            with tape.stop_recording() if tape._recording else contextlib.nullcontext():
                call(self._steps.note_loss, target)
        return original(tape, target, *args, **kwargs)

    def _call_function(self, original: Callable[..., Result], *args: object,
                       **kwargs: object) -> Result:
        if not self._depth:
            self._steps.note_starts(in_function=False)
        self._depth += 1
        try:
            result = original(*args, **kwargs)
        finally:
            self._depth -= 1
        if not self._depth and self._is_fed_inside and self._steps.has_trained():
            self._close()
            self._check_open()
        return result

    def _asked(self) -> int:
        """Returns the number of completed steps, when the program requests the next batch."""
        self._check_open()
        self._timeout.start_step(len(self._steps.losses) + 1)
        self._is_fed_inside = self._depth > 0  # variables may be in use by now
        if self._steps.has_trained() and not self._is_fed_inside:
            self._close()
            self._check_open()
        self._steps.note_starts(in_function=self._depth > 0)
        return len(self._steps.losses) - self._before

    def _check_open(self) -> None:
        is_done = len(self._steps.losses) >= self._last if self._before else self.result is not None
        if not is_done:
            return
        if not self._is_bounded or not self._left:
            raise StepsDoneError("verify has seen all steps that it compares.")
        self._left -= 1

    def _close(self) -> None:
        """Records the completed step."""
        self._timeout.stop()
        if self._steps.record(is_first_training=not self._before):
            self._end()

    def _end(self) -> None:
        self._life.add(TRAINING, len(self._steps.losses))
        self._steps.drop_incomplete()
        found = self._steps.counterparts
        count = len(self._reference.result.digests[0])
        own = self._feed.own_batches(count)
        notes = [] if self._feed.is_recorded else [
            "the migrated program's batches have another structure, so it was fed its own"]
        self.result = RecordedResult(
            tuple(self._steps.losses), self._steps.plan(), self._reference.result.inputs,
            (own.digests()[:count] if self._feed.is_recorded
             else self._reference.result.digests[0],), True,
            stage=TF2, tables=self._reference.result.tables,
            notes=(*notes, *(found.notes if found else ())),
            differences=tuple(filter(None, [self._steps.problem, *(found.missing if found else ()),
                                            *self._steps.start_differences()])))


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
              "MirroredStrategy or OneDeviceStrategy. If a step needs longer, pass --step-timeout "
              "SECONDS. The log, which --keep DIR keeps, shows where each thread waits.",
              file=sys.stderr, flush=True)
        os._exit(STATUS)
