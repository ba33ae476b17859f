# SPDX-License-Identifier: Apache-2.0
"""Splits activations by replica and feature, and checks their gradients."""

import warnings
from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.stacked_activations import Stacked, split_activations
from tpu_estimator_embedding.mid_level.input.row_layout import RowLayout
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor


def split(plan: EmbeddingPlan, stacked: Stacked, layout: RowLayout,
          num_replicas: int) -> list[dict[str, Tensor]]:
    """Returns, for each replica, the activations of each feature.

    Args:
        plan: the tables and features, with the sequence lengths of the layout.
        stacked: table name -> `[num_rows, dim]`.
        layout: the shapes of the features.
        num_replicas: number of replicas that share the batch.

    Returns:
        For each replica, path -> float32 of the shape in the layout followed by dim.
    """
    parts = {table: tf.split(values, num_replicas) if num_replicas > 1 else [values]
             for table, values in stacked.items()}
    replicas = []
    for replica in range(num_replicas):
        activations = split_activations(plan, {table: parts[table][replica] for table in parts},
                                        layout.batch_size)
        replicas.append({
            feature.name: tf.reshape(activations[feature.name], activation_shape(
                plan, feature, layout)) for feature in plan.features})
    return replicas


def activation_shape(plan: EmbeddingPlan, feature: FeaturePlan,
                     layout: RowLayout) -> list[int | None]:
    """Returns the shape of a feature's activations, including the table's dimension."""
    return [*layout.shapes[feature.name].dims, plan.table_by_name[feature.table].dimension]


def gradient_or_zeros(path: str, gradient: Tensor | tf.IndexedSlices | None,
                      shape: Sequence[int | None]) -> Tensor:
    """Returns a gradient of a feature's activations as float32; zeros for None.

    Raises:
        ValueError: if it is not a Tensor, or has another shape.
    """
    if gradient is None:
        warnings.warn(f"The gradient of feature {path!r} is None: its rows are updated with a "
                      "gradient of zeros.", stacklevel=3)
        return tf.zeros(shape)
    what = f"gradient of feature {path!r}"
    checks.check(isinstance(gradient, tf.Tensor), what, "a Tensor or None",
                 type(gradient).__name__, "Use tf.convert_to_tensor.",
                 sentence=f"found non-tensor type: {type(gradient)} at path {path}.")
    checks.check_with_sentence(gradient.shape.is_compatible_with(shape), "Found gradient of shape "
                      f"{gradient.shape} at path {path}. Expected shape {shape}.",
                      "A gradient has the shape of its activation.")
    return tf.cast(tf.ensure_shape(gradient, shape), tf.float32)
