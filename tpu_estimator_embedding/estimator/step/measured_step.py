# SPDX-License-Identifier: Apache-2.0
"""The update of a training step, with statistics if hooks request them."""

from collections.abc import Mapping, Sequence

import tensorflow as tf
from tensorflow.python.ops import summary_op_util

from tpu_estimator_embedding.engine.measures import create_marks, find_trained_rows
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIds
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import (
    EmbeddingStatisticsHook,
    MeasuredStep,
)
from tpu_estimator_embedding.types import Tensor

PREFIX = "embedding/"


def update_tables(engine: PartitionedEmbedding, ids: StepIds, gradients: StepGradients,
                  hooks: Sequence[EmbeddingStatisticsHook], model_dir: str | None
                  ) -> tf.Operation | None:
    """Builds the update of a step.

    Args:
        engine: the tables.
        ids: of the step.
        gradients: what `engine.step_gradients` returned.
        hooks: hooks that receive the measures of the step.
        model_dir: the default directory that they write to; None in a task that leaves
            statistics to the chief of its cluster.
    """
    if model_dir is None:
        for hook in hooks:
            hook.leave_to_chief()
    if not hooks or model_dir is None:
        return engine.update(ids, gradients)
    with tf.control_dependencies(None):  # only the step waits for its input
        marks = create_marks(engine.variables)
        trained = tf.group(*find_trained_rows(engine.plan, engine.variables, marks))
    are_due = [tf.compat.v1.placeholder_with_default(False, []) for _ in hooks]
    measures = engine.measured_update(ids, gradients, marks, tf.reduce_any(tf.stack(are_due)))
    for hook, is_due in zip(hooks, are_due, strict=True):
        hook.measure(MeasuredStep(engine.plan, measures, is_due, trained), model_dir)
    return tf.group(*(host.sums for host in measures.hosts))


def summarize_always(engine: PartitionedEmbedding, gradients: StepGradients, *,
                     is_measured: bool) -> None:
    """Adds the summaries that cost time only in steps that write summaries.

    They are the multiplier and the learning rate of every table, and the global norm of the
    gradients of all activations, before the multiplier. If hooks write statistics, these
    include the first two.
    """
    with tf.name_scope(""):
        for name, values in (("multiplier", gradients.multipliers),
                             ("learning_rate", gradients.learning_rates)):
            if engine.plan.tables and not is_measured:
                _summarize({f"{PREFIX}{table.name}/{name}": values.get(table.name, 1.0)
                            for table in engine.plan.tables})
        tf.compat.v1.summary.scalar(f"{PREFIX}global_gradient_norm", tf.linalg.global_norm(
            list(gradients.gradients.values())))


def _summarize(values: Mapping[str, Tensor | float]) -> None:
    """Adds scalar summaries as `tf.compat.v1.summary.scalar` does, all by one op."""
    tags = []
    for name in values:
        with summary_op_util.summary_scope(name) as (tag, _):
            tags.append(tag)
    summary = tf.raw_ops.ScalarSummary(tags=tags, values=tf.stack(
        [tf.cast(value, tf.float32) if tf.is_tensor(value) else value
         for value in values.values()]))
    tf.compat.v1.add_to_collection(tf.compat.v1.GraphKeys.SUMMARIES, summary)
