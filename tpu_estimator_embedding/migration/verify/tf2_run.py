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
import functools
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
)
from tpu_estimator_embedding.migration.verify import (
    activations,
    evaluation,
    keras_rs_tables,
    start_values,
)
from tpu_estimator_embedding.migration.verify.counterparts import Counterparts
from tpu_estimator_embedding.migration.verify.fed_datasets import Feed
from tpu_estimator_embedding.migration.verify.plan_values import plan_values
from tpu_estimator_embedding.migration.verify.reference import Reference
from tpu_estimator_embedding.migration.verify.seen_variables import SeenVariables
from tpu_estimator_embedding.migration.verify.settings import (
    TF2,
    RunResult,
    Settings,
    step_name,
)
from tpu_estimator_embedding.migration.verify.step_timeout import StepTimeout
from tpu_estimator_embedding.migration.verify.watched_tables import (
    WatchedTables,
    call,
    watching,
    wrapped,
)


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

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._directory = pathlib.Path(settings.directory)
        self._reference = Reference(settings.reference or "")
        self._tables: list[WatchedTables] = []
        self._seen = SeenVariables()
        self._feed = Feed(self._reference.batches, self._asked)
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
        self.result: RunResult | None = None

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Watches the program's tables, variables, gradients and function calls."""
        with (watching(self._tables), self._seen.seeing(), self._feed.feeding(),
              keras_rs_tables.watching(self._tables),
              wrapped(tf.GradientTape, "gradient", self._gradient),
              wrapped(type(tf.function(lambda: 0)), "__call__", self._call_function)):
            yield

    @contextlib.contextmanager
    def watching_trainer(self, module: str) -> Iterator[None]:
        """Lets a program with a Trainer evaluate after training, once."""
        trainer = getattr(sys.modules[module], self.trainers[module])
        with contextlib.ExitStack() as stack:
            stack.enter_context(wrapped(trainer, "train", self._train))
            if "evaluate" in vars(trainer):
                stack.enter_context(wrapped(trainer, "evaluate", self._evaluate))
            yield

    def _train(self, original: Any, trainer: Any, *args: Any, **kwargs: Any) -> Any:
        self._check_open()
        try:
            return original(trainer, *args, **kwargs)
        except Exception:
            if self.result is None:
                raise
            return trainer  # which has the values after the last step

    def _evaluate(self, original: Any, trainer: Any, input_fn: Any, *args: Any,
                  **kwargs: Any) -> Any:
        if not self._has_trained() and not self.losses:
            with self._feed.paused():
                return original(trainer, input_fn, *args, **kwargs)
        self.finish()
        if self.result is not None and self._counterparts and (
                not self._counterparts.is_pipelined):
            with self._feed.paused():
                found = evaluation.of_trainer(functools.partial(original, trainer), input_fn,
                                              self._settings)
            self.result = dataclasses.replace(
                self.result, **({"notes": (*self.result.notes, found)} if isinstance(found, str)
                                else {"evaluation": found}))
        raise StepsDoneError("verify has seen the evaluation that it compares.")

    def finish(self) -> None:
        """Saves the values of the last step, if the program ended by itself."""
        self._timeout.stop()
        if self.result is None and self._has_trained():
            self._close()
        if self.result is None and self.losses:
            self._end()

    def _gradient(self, original: Any, tape: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
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

    def _call_function(self, original: Any, *args: Any, **kwargs: Any) -> Any:
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
        activations.save(self._directory, step, {
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
        self.result = RunResult(
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
            if found := start_values.difference(legacy, own):
                yield f"initial value of {name}: {found}"
