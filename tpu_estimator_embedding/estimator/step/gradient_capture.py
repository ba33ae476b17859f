# SPDX-License-Identifier: Apache-2.0
"""Captures the gradient of activations when the user's own optimizer computes gradients.

A model_fn may compute gradients anywhere. For every table there is a trainable dummy variable of
shape [1]. An identity makes the activations of each feature depend on it; the gradient function
of the identity stores the incoming gradient and returns zeros. So an optimizer that minimizes the
loss over all trainable variables computes it. Gradient clipping in the model's optimizer never
affects the embedding gradients. Losses of different features may be minimized separately, even
if the features share a table.
"""

import warnings
from collections.abc import Collection, Mapping

import tensorflow as tf

from tpu_estimator_embedding.ops.gradient_tap import hide_from_searches, tap_graph_gradient
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor

# TensorFlow's name, followed by the table's; programs put these into a `var_list`.
DUMMY_VARIABLE_NAME = "tpu_embedding_dummy_table_variable"

# TensorFlow's name of the graph collection of all of them.
DUMMY_COLLECTION = "tpu_embedding_dummy_table_variables"


class GradientCapture:
    """Ties the activations of features to dummy variables and remembers their gradients."""

    def __init__(self, plan: EmbeddingPlan) -> None:
        """Takes the tables and features."""
        self._plan = plan
        self._activations: dict[str, Tensor] = {}
        self._gradients: dict[str, Tensor] = {}

    def tie(self, activations: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the same activations, whose gradients are captured and stopped.

        Args:
            activations: feature name -> its activation.
        """
        self._activations.update(activations)
        return {feature.name: self._tie(value, feature, activations[feature.name])
                for table in self._plan.tables for value in [_dummy_value(table.name)]
                for feature in self._plan.features_of(table.name)}

    def _tie(self, dummy: Tensor, feature: FeaturePlan, activation: Tensor) -> Tensor:
        return tap_graph_gradient(dummy, activation,
                                  lambda gradient: self._keep(feature, gradient))

    def _keep(self, feature: FeaturePlan, gradient: Tensor) -> None:
        if feature.name in self._gradients:
            raise RuntimeError(
                "The gradients of embedding activations must be computed once per model_fn, "
                f"got a second computation for feature {feature.name!r} of table "
                f"{feature.table!r}. Compute gradients over all trainable variables once and "
                f"reuse them, or leave the variable '{DUMMY_VARIABLE_NAME}_{feature.table}' out "
                "of the var_list of all optimizers but one.")
        self._check_place(feature, gradient)
        self._gradients[feature.name] = gradient

    def _check_place(self, feature: FeaturePlan, gradient: Tensor) -> None:
        """Raises RuntimeError for a gradient that a step may not have, or have several times."""
        activation = self._activations[feature.name]
        context = gradient.op._get_control_flow_context()
        if gradient.graph is activation.graph and (
                context is activation.op._get_control_flow_context()):
            return
        place = context if gradient.graph is activation.graph else gradient.graph
        raise RuntimeError(
            "The gradients of embedding activations must be computed outside of tf.cond, "
            f"tf.while_loop and tf.function, got those of feature {feature.name!r} of table "
            f"{feature.table!r} inside {getattr(place, 'name', 'another graph')!r}. Minimize in "
            "every step, and multiply the loss by a tensor that is 0 where nothing is to be "
            "learned.")

    def captured(self, needless: Collection[str] = ()) -> dict[str, Tensor]:
        """Returns the gradient of every feature's activation.

        Args:
            needless: tables that learn without gradients.

        Raises:
            RuntimeError: if the model_fn computed none of the gradients that tables need.
        """
        without = {feature.name: feature.table for feature in self._plan.features
                   if feature.name not in self._gradients}
        needed = {name: table for name, table in without.items() if table not in needless}
        if needed and not self._gradients:
            raise RuntimeError(
                "model_fn must compute the gradients of its loss over all trainable variables, "
                "got no gradient of the embedding activations. Leave out the `var_list` of the "
                f"optimizer, or add the trainable variables '{DUMMY_VARIABLE_NAME}_*' to it.")
        if needed:
            warnings.warn(f"model_fn computes no gradient of the activations of features "
                          f"{sorted(needed)} of tables {sorted(set(needed.values()))}; their "
                          "rows are updated with zeros, as on a TPU.", stacklevel=2)
        zeros = {name: tf.zeros_like(self._activations[name]) for name in without}
        return {**self._gradients, **zeros}

    def hide(self) -> None:
        """Removes the dummies, and an optimizer's variables for them, from saved collections.

        Slots and moving averages of dummies become local variables. Call it after the
        model_fn.
        """
        keys = tf.compat.v1.GraphKeys
        graph = tf.compat.v1.get_default_graph()
        for variable in graph.get_collection(keys.GLOBAL_VARIABLES):
            if DUMMY_VARIABLE_NAME in variable.op.name:
                graph.get_collection_ref(keys.GLOBAL_VARIABLES).remove(variable)
                graph.add_to_collection(keys.LOCAL_VARIABLES, variable)
        for key in (keys.TRAINABLE_VARIABLES, keys.MOVING_AVERAGE_VARIABLES,
                    keys.MODEL_VARIABLES):
            collection = graph.get_collection_ref(key)
            collection[:] = [variable for variable in collection
                             if DUMMY_VARIABLE_NAME not in variable.op.name]


def _dummy_value(table: str) -> Tensor:
    dummy = _create_dummy(table)
    read = tf.compat.v1.get_default_graph().as_graph_element(dummy)  # that it was made with
    return hide_from_searches(read)


def _create_dummy(table: str) -> tf.Variable:
    # Trainable, so that it gets a gradient; local, to stay out of checkpoints.
    return tf.compat.v1.get_variable(
        f"{DUMMY_VARIABLE_NAME}_{table}", [1], tf.float32, use_resource=True, trainable=True,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES, DUMMY_COLLECTION])
