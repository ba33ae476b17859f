# SPDX-License-Identifier: Apache-2.0
"""Splits the stacked activations of a table by feature, and stacks their gradients.

Rows are sorted by replica, then by feature, in the order of the plan.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan, TablePlan
from tpu_estimator_embedding.types import Tensor

Stacked = Mapping[str, Tensor]  # table name -> activations of its features `[num_rows, dim]`


def split_activations(plan: EmbeddingPlan, stacked: Stacked,
                      batch_size: Tensor | int) -> dict[str, Tensor]:
    """Returns the activations of each feature of one replica.

    Args:
        plan: the tables and features.
        stacked: table name -> `[num_rows, dim]`.
        batch_size: samples in the step: an int if it is known, else a scalar tensor.

    Returns:
        Feature name -> `[batch, dim]`, or `[batch, max_sequence_length, dim]`.
    """
    activations = {}
    for table in plan.tables:
        features = plan.features_of(table.name)
        sizes = [batch_size * feature.rows_per_sample for feature in features]
        parts = tf.split(stacked[table.name], sizes) if len(features) > 1 else [
            stacked[table.name]]
        for feature, part in zip(features, parts, strict=True):
            activations[feature.name] = _shape_activation(part, feature, table, batch_size)
    return activations


def stack_gradients(plan: EmbeddingPlan,
                    replicas: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the gradients of the activations of each table: the inverse of splitting.

    Args:
        plan: the tables and features.
        replicas: for each replica, feature name -> gradient in the shape of its activation,
            or any other shape with as many elements.

    Returns:
        Table name -> `[num_rows, dim]`.
    """
    return {table.name: _concat([
        _as_rows(gradients[feature.name], table.dimension)
        for gradients in replicas for feature in plan.features_of(table.name)])
        for table in plan.tables}


def split_replicas(plan: EmbeddingPlan, stacked: Stacked, ids: StepIds,
                   num_replicas: int) -> list[Stacked]:
    """Returns the activations of each table for each replica.

    Args:
        plan: the tables and features.
        stacked: table name -> `[num_rows, dim]`.
        ids: the ids that were looked up.
        num_replicas: number of replicas.
    """
    if num_replicas == 1:
        return [stacked]
    counts = ids.rows_of_replicas(plan)
    parts = {name: tf.split(activations, counts[name], num=num_replicas)
             for name, activations in stacked.items()}
    return [{name: parts[name][replica] for name in parts} for replica in range(num_replicas)]


def _as_rows(gradient: Tensor, dimension: int) -> Tensor:
    """Returns a gradient as `[rows, dim]`; the same tensor if it has that shape."""
    is_matrix = gradient.shape.rank == 2 and gradient.shape[1] == dimension
    return gradient if is_matrix else tf.reshape(gradient, [-1, dimension])


def _concat(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else tf.concat(parts, 0)


def _shape_activation(part: Tensor, feature: FeaturePlan, table: TablePlan,
                      batch_size: Tensor | int) -> Tensor:
    if feature.max_sequence_length:
        part = tf.reshape(part, [-1, feature.max_sequence_length, table.dimension])
    num_samples = batch_size * feature.samples_per_unit if isinstance(batch_size, int) else None
    part.set_shape([num_samples, *part.shape[1:].as_list()])
    return part
