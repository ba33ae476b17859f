# SPDX-License-Identifier: Apache-2.0
"""Captures the gradient of activations when the user's own optimizer computes gradients.

A model_fn may compute gradients anywhere. For every table there is a trainable dummy variable of
shape [1]. An identity makes the activations of each feature depend on it; the gradient function
of the identity stores the incoming gradient and returns zeros. So an optimizer that minimizes the
loss over all trainable variables computes it. Gradient clipping in the model's optimizer never
affects the embedding gradients. Losses of different features may be minimized separately, even
if the features share a table.

The optimizer also updates the dummies, with zeros. A step does not run these updates: with many
small tables they would be a sixth of its time.
"""

import warnings
from collections.abc import Collection, Mapping

import tensorflow as tf

from tpu_estimator_embedding.ops.captured_gradients import (
    DUMMY_COLLECTION,
    DUMMY_VARIABLE_NAME,
    CapturedGradients,
    create_dummy,
    hide_from_searches,
)
from tpu_estimator_embedding.ops.graph_rewrites import leave_out
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class GradientCapture:
    """The gradients of activations that a model_fn computes."""

    def __init__(self, plan: EmbeddingPlan) -> None:
        """Takes the tables and features."""
        self._plan = plan
        self._activations: dict[str, Tensor] = {}
        self._captured = CapturedGradients(self._check)

    def tie(self, activations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the same activations, whose gradients are captured and stopped.

        Args:
            activations: feature name -> its activation.
        """
        self._activations.update(activations)
        tied: dict[str, Tensor] = {}
        for table in self._plan.tables:
            features = [feature.name for feature in self._plan.features_of(table.name)]
            tied.update(self._captured.tie(
                {feature: activations[feature] for feature in features},
                dict.fromkeys(features, _dummy_value(table.name))))
        return tied

    def _check(self, feature: str, gradient: Tensor, is_second: bool) -> None:
        """Raises RuntimeError for a gradient that a step may not have, or have several times."""
        [table] = [each.table for each in self._plan.features if each.name == feature]
        if is_second:
            raise RuntimeError(
                "The gradients of embedding activations must be computed once per model_fn, "
                f"got a second computation for feature {feature!r} of table {table!r}. Compute "
                "them once and reuse them, or leave the variable "
                f"'{DUMMY_VARIABLE_NAME}_{table}' out of the var_list of all optimizers but one.")
        activation = self._activations[feature]
        context = gradient.op._get_control_flow_context()
        if gradient.graph is activation.graph and (
                context is activation.op._get_control_flow_context()):
            return
        place = context if gradient.graph is activation.graph else gradient.graph
        raise RuntimeError(
            "The gradients of embedding activations must be computed outside of tf.cond, "
            f"tf.while_loop and tf.function, got those of feature {feature!r} of table {table!r} "
            f"inside {getattr(place, 'name', 'another graph')!r}. Minimize in every step, and "
            "multiply the loss by 0 where nothing is to be learned.")

    def captured(self, needless: Collection[str] = ()) -> dict[str, Tensor]:
        """Returns the gradient of every feature's activation; zeros where there is none.

        Warns of tables that are updated with zeros: this freezes them under some optimizers only.

        Args:
            needless: tables that learn without gradients.
        """
        without = {feature.name: feature.table for feature in self._plan.features
                   if feature.name not in self._captured.by_feature}
        needed = {name: table for name, table in without.items() if table not in needless}
        if needed:
            warnings.warn(
                f"model_fn computes no gradient of the activations of features {sorted(needed)} of "
                f"tables {sorted(set(needed.values()))}; their rows are updated with zeros, as on "
                "a TPU. The activations are unused or behind tf.stop_gradient, or an optimizer's "
                f"`var_list` lacks the trainable variables '{DUMMY_VARIABLE_NAME}_*'. See "
                "docs/troubleshooting.rst for what zeros change.", stacklevel=2)
        zeros = {name: tf.zeros_like(self._activations[name]) for name in without}
        return {**self._captured.by_feature, **zeros}

    def hide(self) -> None:
        """Removes the dummies, and an optimizer's variables for them, from saved collections.

        Slots and moving averages of dummies become local variables, and steps leave out the updates
        of dummies. Call it after the model_fn.
        """
        keys = tf.compat.v1.GraphKeys
        graph = tf.compat.v1.get_default_graph()
        leave_out(_updates(graph.get_collection(DUMMY_COLLECTION)))
        for variable in graph.get_collection(keys.GLOBAL_VARIABLES):
            if DUMMY_VARIABLE_NAME in variable.op.name:
                graph.get_collection_ref(keys.GLOBAL_VARIABLES).remove(variable)
                graph.add_to_collection(keys.LOCAL_VARIABLES, variable)
        self._warn_of_averages(graph.get_collection(keys.MOVING_AVERAGE_VARIABLES))
        for key in (keys.TRAINABLE_VARIABLES, keys.MOVING_AVERAGE_VARIABLES,
                    keys.MODEL_VARIABLES):
            collection = graph.get_collection_ref(key)
            collection[:] = [variable for variable in collection
                             if DUMMY_VARIABLE_NAME not in variable.op.name]

    def _warn_of_averages(self, averaged: Collection[tf.Variable]) -> None:
        """Warns of tables that have no moving average although all trainable variables have."""
        tables = [table.name for table in self._plan.tables if any(
            variable.op.name == f"{DUMMY_VARIABLE_NAME}_{table.name}" for variable in averaged)]
        if tables:
            warnings.warn(
                f"The moving averages of the model leave out the tables {tables}, as on a TPU, "
                "where tables are not variables of the model: an evaluation with averages uses "
                "their last values. With use_tpu=False they have averages.", stacklevel=2)


def _updates(dummies: Collection[tf.Variable]) -> list[tf.Operation]:
    """Returns the ops by which TensorFlow's optimizers update the dummies."""
    return [op for dummy in dummies for op in dummy.handle.consumers()
            if op.type.startswith("ResourceApply") and op.inputs[0].name == dummy.handle.name]


def _dummy_value(table: str) -> Tensor:
    # Local, so that sessions initialize it and checkpoints do not have it.
    dummy = create_dummy(table, [tf.compat.v1.GraphKeys.LOCAL_VARIABLES])
    read = tf.compat.v1.get_default_graph().as_graph_element(dummy)  # that it was made with
    return hide_from_searches(read)
