# SPDX-License-Identifier: Apache-2.0
"""One step of a model: look up, run the model_fn, capture gradients, update.

The names of the tables are known only when the model_fn has used its columns, and the
model_fn needs activations to use them. So the model is built on placeholders; then the
tables are created under their names, looked up, and the lookups put in the place of the
placeholders.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.tpu import tpu_function

from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    create_variables,
    split_activations,
)
from tpu_estimator_embedding.engine.variables import TableNames
from tpu_estimator_embedding.estimator.column_scopes import recorded_scopes
from tpu_estimator_embedding.estimator.gradient_capture import (
    DUMMY_VARIABLE_NAME,
    GradientCapture,
)
from tpu_estimator_embedding.estimator.step_input import StepInput
from tpu_estimator_embedding.estimator.table_names import check_all_used, name_tables
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class EngineStep(NamedTuple):
    """A step that is wired up.

    Attributes:
        spec: what the model_fn returned.
        engine: the tables that the model_fn used.
        names: table name -> names of its variables.
        update: the op that applies the embedding gradients; None unless training.
    """

    spec: Any
    engine: PartitionedEmbedding
    names: Mapping[str, TableNames]
    update: tf.Operation | None


def build_step(plan: EmbeddingPlan, step_input: StepInput, model_fn: Callable[[Any, Any], Any],
               *, from_columns: bool, training: bool) -> EngineStep:
    """Builds the graph of one step.

    Args:
        plan: the tables and features.
        step_input: what the step consumes.
        model_fn: called with features and labels; returns an estimator spec.
        from_columns: whether the tables are those of feature columns, which the scope of
            their first use names.
        training: whether to capture gradients and update the tables.

    Raises:
        RuntimeError: if the model_fn leaves a column unused in training, or computes no
            gradient of the activations.
    """
    stand_ins = {table.name: _stand_in(table) for table in plan.tables}
    capture = GradientCapture() if training and plan.tables else None
    activations = capture.tie(stand_ins) if capture else stand_ins
    with recorded_scopes() as scopes, tpu_function.tpu_shard_context(1):
        spec = model_fn(_with_activations(plan, step_input, activations), step_input.labels)
    names = name_tables(plan, scopes if from_columns else None)
    if training:
        check_all_used(plan, names)
    used = plan.restricted_to([feature.name for feature in plan.features
                               if feature.table in names])
    engine = PartitionedEmbedding(used, create_variables(used, names))
    step = _global_step()
    with tf.device("/device:CPU:0"):
        _connect(stand_ins, engine.lookup(step_input.ids), step)
        update = _update(engine, step_input, capture, step) if capture else None
    return EngineStep(spec, engine, names, update)


def _stand_in(table) -> Tensor:
    placeholder = tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
    return tf.identity(placeholder, name="activations")


def _with_activations(plan: EmbeddingPlan, step_input: StepInput,
                      stacked: Mapping[str, Tensor]) -> Any:
    if not plan.features:
        return step_input.features
    activations = split_activations(plan, stacked, step_input.batch_size)
    return {**step_input.features, **activations}


def _global_step() -> Tensor:
    """Returns the step as it is before the train op increments it."""
    return tf.identity(tf.compat.v1.train.get_or_create_global_step())


def _connect(stand_ins: Mapping[str, Tensor], looked_up: Mapping[str, Tensor],
             step: Tensor) -> None:
    # Everything that trains comes after the activations, so the step is read in time.
    with tf.control_dependencies([step]):
        for name, activations in looked_up.items():
            stand_ins[name].op._update_input(0, tf.identity(activations))


def _update(engine: PartitionedEmbedding, step_input: StepInput, capture: GradientCapture,
            step: Tensor) -> tf.Operation:
    capture.hide()
    if capture.gradients is None:
        raise RuntimeError(
            "model_fn must compute the gradients of its loss over all trainable variables, got "
            "no gradient of the embedding activations. Leave out the `var_list` of the "
            f"optimizer, or add the trainable variable {DUMMY_VARIABLE_NAME!r} to it.")
    with tf.name_scope("embedding_update"):
        return engine.apply_gradients(step_input.ids, capture.gradients, step)
