# SPDX-License-Identifier: Apache-2.0
"""Looks up and updates tables in functions that a program may export."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import tensorflow as tf

from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.exportable_functions import ExportableFunctions
from tpu_estimator_embedding.engine.measures import MeasureRecorder
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import Replicas, StepGradients, StepIds
from tpu_estimator_embedding.engine.step_ids import can_be_native, prepare_replicas
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

_Inputs = TypeVar("_Inputs")
_Results = TypeVar("_Results")
_Kept = TypeVar("_Kept")


class ExportableEmbedding:
    """An engine that keeps its compiled ops out of SavedModels.

    Attributes:
        engine: the tables.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables],
                 functions: ExportableFunctions, to_replicas: Callable[[Any], Replicas],
                 recorder: MeasureRecorder | None = None):
        """Creates an engine on existing variables.

        Args:
            plan: the tables and features.
            variables: table name -> its variables.
            functions: the nested functions of the trackable object with the variables.
            to_replicas: converts a nest of tensors to the ids and batch size of every replica.
            recorder: measures updates, or None.
        """
        self.engine = PartitionedEmbedding(plan, variables, recorder)
        self._functions, self._to_replicas = functions, to_replicas

    def lookup(self, inputs: object, *, training: bool,
               is_for_export: bool = True) -> tuple[dict[str, Tensor], StepIds]:
        """Prepares ids and looks them up.

        Args:
            inputs: a nest of tensors for `to_replicas`.
            training: whether gradients may follow.
            is_for_export: whether to avoid compiled ops in the graph of a session.

        Returns:
            Table name -> `[num_rows, dim]` float32, and the ids of the step for `update`.
        """
        def run(inputs: object, portable: bool) -> tuple[dict[str, Tensor], StepIds]:
            ids = self._prepare(inputs, training, portable)
            return self.engine.lookup(ids), ids

        return self.call(run, inputs, is_for_export=is_for_export)

    def update(self, inputs: object, ids: StepIds | None, step_gradients: StepGradients, *,
               is_for_export: bool = True) -> None:
        """Updates every row that was looked up.

        Args:
            inputs: the inputs of `lookup`, or those of all replicas.
            ids: the ids that it returned; None if the inputs belong to several lookups.
            step_gradients: the result of `engine.step_gradients`.
            is_for_export: see `lookup`.
        """
        def run(given: Any, portable: bool) -> tuple[tuple[()], tuple[()]]:
            inputs, ids, step_gradients = given
            if ids is None or portable:
                ids = self._prepare(inputs, True, portable)
            self.engine.update(ids, step_gradients)
            return (), ()

        self.call(run, (inputs, ids, step_gradients), is_for_export=is_for_export)

    def prepare_for_update(self, inputs: object) -> StepIds:
        """Returns the prepared ids of `inputs` for a delayed update, which is not exported."""
        return self._prepare(inputs, True, False)

    def apply(self, delayed: DelayedUpdate) -> Tensor:
        """Applies a delayed update, if there is one; returns a tensor to wait for.

        A SavedModel has none: what saves an object applies its updates before.
        """
        applied, _ = self._functions.call(
            lambda _: (delayed.apply(self.engine), ()), lambda _: (tf.constant(False), ()), (),
            [*self._handles(), delayed.exported.resource_handle], is_for_export=False)
        return applied

    def _prepare(self, inputs: object, training: bool, portable: bool) -> StepIds:
        return prepare_replicas(self.engine.plan, self._to_replicas(inputs), training=training,
                                portable=portable, uniform=True)

    def call(self, run: Callable[[_Inputs, bool], tuple[_Results, _Kept]], inputs: _Inputs, *,
             is_for_export: bool, handles: Sequence[Tensor] = (),
             key: Hashable = None) -> tuple[_Results, _Kept]:
        """Calls a function in which the engine may be used.

        Args:
            run: maps a nest of tensors, and whether only TensorFlow's own ops may be used, to
                results and to values that only compiled ops use.
            inputs: the nest of tensors.
            is_for_export: see `lookup`.
            handles: those of what it uses in addition to tables.
            key: see `ExportableFunctions.call`.
        """
        if not can_be_native(self.engine.plan):
            return run(inputs, False)
        return self._functions.call(
            lambda given: run(given, False), lambda given: run(given, True), inputs,
            [*self._handles(), *handles], is_for_export=is_for_export, key=key)

    def _handles(self) -> list[Tensor]:
        recorder = self.engine.recorder
        handles = {id(part): part.handle for table in self.engine.variables.values()
                   for parts in (table.parts, *table.slots.values()) for part in parts}
        return [*handles.values(), *(recorder.handles if recorder else ())]
