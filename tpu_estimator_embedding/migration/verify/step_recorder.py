# SPDX-License-Identifier: Apache-2.0
"""Records the losses of a TF2 program, and the values of its variables after each step.

The program's first step is a trial, which creates all remaining variables. Then every variable is
reset: tables, slots and dense variables to the legacy program's initial values, the others to
their own. After each step, values are saved under their names in a checkpoint of TPUEstimator.
"""

import pathlib
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from tpu_estimator_embedding.checkpoint.table_layouts import (
    TABLE_LAYOUTS_KEY,
    TableLayout,
    format_table_layouts,
)
from tpu_estimator_embedding.migration.verify import recording
from tpu_estimator_embedding.migration.verify.counterparts import (
    Counterparts,
    Reference,
    SeenVariables,
)
from tpu_estimator_embedding.migration.verify.life import after
from tpu_estimator_embedding.migration.verify.plan_values import plan_values
from tpu_estimator_embedding.migration.verify.recording import RecordingSettings, step_name
from tpu_estimator_embedding.migration.verify.start_values import start_difference
from tpu_estimator_embedding.migration.verify.watched_tables import WatchedTables, stored


class StepRecorder:
    """The steps of a program, from its trial on.

    Attributes:
        tables: the program's, in the order of their creation.
        seen: the variables that the program has created.
        counterparts: variables by their names in the legacy program; None before the trial.
        losses: of the recorded steps.
        problem: why steps cannot be recorded, or "".
    """

    def __init__(self, settings: RecordingSettings, reference: Reference) -> None:
        self._settings = settings
        self._directory = pathlib.Path(settings.directory)
        self._reference = reference
        self._updates = 0  # that were made before the batch that is trained on
        self._loss: float | None = None
        self._late: dict[str, np.ndarray] | None = None  # of the step before, without tables
        self._own: dict[WatchedTables, dict[str, np.ndarray]] = {}  # start values
        self.tables: list[WatchedTables] = []
        self.seen = SeenVariables()
        self.counterparts: Counterparts | None = None
        self.losses: list[float | None] = []
        self.problem = ""

    def note_loss(self, value: np.ndarray) -> None:
        """Notes the loss of the step that the program computes."""
        self._loss = float(value)

    def has_trained(self) -> bool:
        """Whether the program has updated tables since the last step was recorded."""
        return self._made() > self._updates

    def note_starts(self, in_function: bool) -> None:
        """Notes the values before the first step; a function that asks may be in that step."""
        if self.counterparts is not None or self.has_trained():
            return
        if in_function:
            self.seen.note_new_starts()
        else:
            self.seen.note_starts()
            self._own.clear()
        for tables in self.tables:
            with tf.init_scope():  # the first call may be while a function is traced
                values = stored(tables.variables())
            self._own[tables] = {**values, **self._own.get(tables, {})}

    def record(self, is_first_training: bool) -> bool:
        """Records the completed step; returns whether it was the last one of a first training."""
        made, self._updates = self._made() - self._updates, self._made()
        if made > 1:
            self.problem = (f"the migrated program made {made} steps between two batches: run one "
                            "step for each batch, with steps_per_execution=1")
            return True
        if self.counterparts is None:
            self.counterparts = Counterparts(self._reference, self.tables, self.seen,
                                             dict(self._settings.names))
            self.counterparts.set_back()
            return False
        return self._record(self.counterparts, is_first_training)

    def _record(self, counterparts: Counterparts, is_first_training: bool) -> bool:
        prompt, late = counterparts.values()
        has_late = bool(counterparts.is_pipelined)
        step = len(self.losses) + 1
        if has_late and self._late is not None:
            self._save(step_name(step - 1), {**self._late, **late})
        if has_late and step > self._settings.steps and is_first_training:
            return True
        self._late = prompt if has_late else None
        self.losses.append(self._loss)
        recording.save_activations(self._directory, step, {
            name: value for tables in self.tables for name, value in tables.trained.items()})
        if not has_late:
            self._save(step_name(step), {**prompt, **late})
        return not has_late and step == self._settings.steps

    def complete(self) -> None:
        """Saves the last step of a Trainer, which has applied the update of pipelined tables."""
        if self._late is not None and self.counterparts is not None:
            _, late = self.counterparts.values()
            self._save(step_name(len(self.losses)), {**self._late, **late})
            self._late = None

    def drop_incomplete(self) -> None:
        """Drops the losses of steps that lack the update of pipelined tables."""
        if self._late is not None:
            del self.losses[len(list(self._directory.glob("step-*.index"))):]

    def save_after(self, phase: str) -> None:
        """Saves the values that a phase has left."""
        if self.counterparts is not None:
            prompt, late = self.counterparts.values()
            self._save(after(phase), {**prompt, **late})

    def plan(self) -> dict[str, str]:
        """Returns the tables, features and optimizers of the program, path -> value."""
        values: dict[str, str] = {}
        for tables in self.tables:
            values.update(plan_values(tables.plan, evaluate=False))
        return values

    def start_differences(self) -> Iterator[str]:
        """Yields what has initial values that an equal initializer cannot produce."""
        if self.counterparts is None:
            return
        tables = {name: value for one, values in self._own.items() if one.updates
                  for name, value in values.items()}
        for name, own in self.counterparts.starts(tables).items():
            legacy = {**self._reference.tables, **self._reference.variables}[name]
            if found := start_difference(legacy, own):
                yield f"initial value of {name}: {found}"

    def _made(self) -> int:
        return max((tables.updates // tables.num_replicas for tables in self.tables), default=0)

    def _save(self, name: str, values: Mapping[str, np.ndarray]) -> None:
        layouts = {name: TableLayout("div", 1, len(values[name]))
                   for name in self._reference.tables if name in values}
        tensors = {**values, TABLE_LAYOUTS_KEY: np.array(format_table_layouts(layouts))}
        with tf.device("/cpu:0"):
            tf.raw_ops.SaveV2(prefix=str(self._directory / name),
                              tensor_names=list(tensors), shape_and_slices=[""] * len(tensors),
                              tensors=list(map(tf.constant, tensors.values())))
