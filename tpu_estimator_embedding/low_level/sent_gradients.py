# SPDX-License-Identifier: Apache-2.0
"""Checks the gradients and the global step that a program sends."""

from collections.abc import Collection, Mapping

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import check_features
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor


def checked_step(plan: EmbeddingPlan, step: Tensor | int | None,
                 learning_rates: Collection[str]) -> Tensor:
    """Returns the step as a scalar tensor; 0 if it is None.

    Args:
        plan: the tables.
        step: scalar, or None.
        learning_rates: the tables whose learning rate is given.

    Raises:
        ValueError: if the step is None and the update of a table depends on it.
    """
    needing = [table.name for table in plan.tables if table.optimizer and (
        callable(table.optimizer.learning_rate) and table.name not in learning_rates
        or isinstance(table.optimizer.rule, FrequencyEstimator))]
    checks.check(step is not None or not needing, "step",
                 f"the global step, because updates of the tables {needing} depend on it",
                 step, "Pass tf.compat.v1.train.get_or_create_global_step().",
                 sentence="There are dynamic learning rates but step is None.")
    return tf.constant(0, tf.int64) if step is None else tf.convert_to_tensor(step)


def checked_gradients(plan: EmbeddingPlan, gradients: Mapping[str, Tensor | None],
                      batch_size: int) -> dict[str, Tensor]:
    """Returns feature name -> dense gradient, of the shape of the activation.

    Raises:
        ValueError: if a gradient is missing, belongs to an unknown feature, or has another
            shape or dtype.
    """
    try:
        check_features(plan, gradients)
    except ValueError as error:
        raise ValueError(f"feature_to_gradient_dict: {error}") from error
    return {feature.name: _checked_gradient(
        gradients[feature.name], f"feature_to_gradient_dict[{feature.name!r}]",
        activation_shape(plan, feature, batch_size)) for feature in plan.features}


def activation_shape(plan: EmbeddingPlan, feature: FeaturePlan, batch_size: int) -> list[int]:
    """Returns `[batch, dim]`, or `[batch, max_sequence_length, dim]` for a sequence."""
    length = [feature.max_sequence_length] if feature.max_sequence_length else []
    return [batch_size, *length, plan.table_by_name[feature.table].dimension]


def _checked_gradient(gradient: Tensor | None, argument: str, shape: list[int]) -> Tensor:
    rule = f"a float32 tensor of shape {shape}"
    checks.check(gradient is not None, argument, rule, gradient, "The loss does not depend on "
                 "this activation. Pass tf.zeros_like(activation): its ids get an update of a "
                 "zero gradient, as on a TPU.")
    gradient = tf.convert_to_tensor(gradient)
    checks.check(gradient.dtype == tf.float32 and gradient.shape.is_compatible_with(shape),
                 argument, rule, gradient)
    return tf.ensure_shape(gradient, shape)
