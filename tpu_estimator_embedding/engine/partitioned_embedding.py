# SPDX-License-Identifier: Apache-2.0
"""The engine: looks up rows of partitioned tables and applies fused optimizer updates.

    enqueued features ─ prepare_ids ─▶ prepared ids ─ lookup ─▶ stacked activations
    prepared ids, stacked gradients ─ apply_gradients ─▶ rows and slots, updated in place

Compiled ops do this if they are available, else TensorFlow's own ops, with the same results.

All activations of a table are one tensor: those of its features, in the order of the
plan, concatenated along axis 0. `split_activations` splits them. The same code runs in sessions,
in `tf.function` and in eager execution.

>>> from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
>>> from tpu_estimator_embedding.engine.step_ids import prepare_ids
>>> from tpu_estimator_embedding.engine.variables import create_variables, default_names
>>> from tpu_estimator_embedding.optimizers.adagrad import Adagrad
>>> from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
>>> from tpu_estimator_embedding.plan.embedding_plan import FeaturePlan, TablePlan
>>> plan = EmbeddingPlan.build(
...     [TablePlan("words", 10, 2, tf.ones_initializer(), "sum", RowOptimizer(Adagrad(), 0.5))],
...     [FeaturePlan("title", "words")])
>>> engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
>>> data = EnqueueData.from_sparse_tensor(tf.sparse.from_dense([[3, 4], [3, 0]]))
>>> ids = prepare_ids(plan, {"title": data}, batch_size=2, training=True)
>>> activations = engine.lookup(ids)
>>> activations["words"].numpy().tolist()
[[2.0, 2.0], [1.0, 1.0]]
>>> _ = engine.apply_gradients(ids, activations, step=0)
>>> print(engine.variables["words"].parts[0].numpy()[3].round(3))
[0.503 0.503]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.saved_model import save_context

from tpu_estimator_embedding.engine.measures import Marks, MeasureRecorder, StepMeasures
from tpu_estimator_embedding.engine.step import JoinableStepIds, StepGradients, StepIds
from tpu_estimator_embedding.engine.step_functions import MULTIPLIER, RATE, scalar, values_at
from tpu_estimator_embedding.engine.variables import TableVariables
from tpu_estimator_embedding.ops.assertion import VALUE, assert_that
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class PartitionedEmbedding:
    """Tables with the optimizers that update them.

    Attributes:
        plan: the tables and features.
        variables: table name -> its variables; tables without variables are not looked up.
        recorder: measures updates, or None.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables],
                 recorder: MeasureRecorder | None = None):
        self.plan = plan
        self.variables = variables
        self.recorder = recorder

    def lookup(self, ids: StepIds) -> dict[str, Tensor]:
        """Returns the combined rows of every table, all features concatenated along axis 0.

        Args:
            ids: the ids of the step.

        Returns:
            Table name -> `[num_rows, dim]` float32.
        """
        return ids.lookup(self.plan, self.variables)

    def lookup_joined(self, ids: JoinableStepIds, names: Sequence[str]) -> Tensor:
        """Returns the activations of tables as one tensor, concatenated along axis 1.

        Args:
            ids: the ids of the step; `ids.can_join` is true.
            names: the tables, in the order of their columns, with equal numbers of activations.
        """
        return ids.lookup_joined(self.plan, self.variables, names)

    def apply_gradients(self, ids: StepIds, gradients: Mapping[str, Tensor],
                        step: Tensor) -> tf.Operation | None:
        """Updates every row that `ids` looked up, once, with the sum of its gradients.

        In a graph, make it depend on the lookup of the same ids, with
        `tf.control_dependencies`. Otherwise a lookup whose gradient is constant, as that of a
        linear loss, may run after the update of the same step.

        Args:
            ids: the ids of the step, made with `training=True`.
            gradients: table name -> gradient `[num_rows, dim]` of the stacked activations.
            step: scalar, the global step before it is incremented.

        Returns:
            The op after which all tables are updated; None in eager execution.

        Raises:
            RuntimeError: if a table has no optimizer, or the ids were not made for training.
        """
        return self.update(ids, self.step_gradients(gradients, step))

    def step_gradients(self, gradients: Mapping[str, Tensor], step: Tensor,
                       learning_rates: Mapping[str, Tensor] | None = None) -> StepGradients:
        """Evaluates learning rates and multipliers now, so that the update can run later.

        Args:
            gradients, step: see `apply_gradients`.
            learning_rates: table name -> scalar float32 that replaces the rate of the table.

        Raises:
            RuntimeError: if a table has no optimizer.
            tf.errors.InvalidArgumentError: if an optimizer divides by a learning rate that is not
                above 0.
        """
        self._check_has_optimizers()
        multipliers = {table.name: multiplier for table in self.plan.tables
                       if (multiplier := self.plan.multiplier_of(table))}
        rates: dict[str, Any] = {table.name: table.training_optimizer.learning_rate
                                 for table in self.plan.tables}
        rates |= {name: scalar(rate, name, RATE) for name, rate in (learning_rates or {}).items()}
        rates |= values_at({name: rate for name, rate in rates.items() if callable(rate)}, step,
                           RATE)
        if checks := _rate_checks(self.plan, rates):
            with tf.control_dependencies(checks):  # before any table or slot is updated
                gradients = {name: tf.identity(value) for name, value in gradients.items()}
        return StepGradients(gradients, rates, values_at(multipliers, step, MULTIPLIER), step)

    def update(self, ids: StepIds, step_gradients: StepGradients) -> tf.Operation | None:
        """Updates tables like `apply_gradients`, with the result of `step_gradients`."""
        _check_for_training(ids)
        if self.recorder and not save_context.in_save_context():  # an export's are not read
            return self.recorder.record(self.measured_update(
                ids, step_gradients, self.recorder.marks, self.recorder.is_due.read_value()))
        writes = ids.update(self.plan, self.variables, step_gradients)
        return None if tf.executing_eagerly() else tf.group(*writes)

    def measured_update(self, ids: StepIds, step_gradients: StepGradients, marks: Marks,
                        measures: Tensor) -> StepMeasures:
        """Updates tables exactly like `update`, and measures the update.

        Args:
            ids, step_gradients: see `update`.
            marks: the marks of the tables; those of the rows of `ids` are set.
            measures: scalar bool; if False, the result is empty.

        Returns:
            The measures; they are available after all updates.
        """
        _check_for_training(ids)
        return ids.measured_update(self.plan, self.variables, step_gradients, marks, measures)

    def _check_has_optimizers(self) -> None:
        if without := self.plan.tables_without_optimizer:
            raise RuntimeError(f"`apply_gradients` must have an optimizer for every table, got "
                               f"none for {without}. Build the plan for training.")


def _check_for_training(ids: StepIds) -> None:
    if not ids.are_for_training:
        raise RuntimeError("`ids` must be made for training, got ids made for inference. "
                           "Call prepare_ids(..., training=True).")


def _rate_checks(plan: EmbeddingPlan,
                 rates: Mapping[str, Tensor | float]) -> list[tf.Operation]:
    """Returns a check for each distinct learning rate that a rule divides by."""
    dividing: dict[int, TablePlan] = {}
    for table in plan.tables:
        rate = rates[table.name]
        is_known = isinstance(rate, float) and rate > 0
        if table.training_optimizer.rule.divides_by_learning_rate and not is_known:
            dividing.setdefault(id(rate), table)
    return [check for table in dividing.values() for rate in [tf.convert_to_tensor(
        rates[table.name], tf.float32)] for check in assert_that(
            tf.greater(rate, 0), f"lr is not a positive scalar: {VALUE}. "
            f"{type(table.training_optimizer.rule).__name__} divides by the learning rate of table "
            f"{table.name!r}. Let the schedule begin above 0, or set "
            "multiply_linear_by_learning_rate=True.", rate)]
