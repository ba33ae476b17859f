# SPDX-License-Identifier: Apache-2.0
"""Statistics of tables during training: the part of the graph that measures, and the hook."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.ops import summary_op_util

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.measures import StepMeasures, create_marks, find_trained_rows
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIds
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.statistics.summaries import to_line, to_summary
from tpu_estimator_embedding.statistics.table_statistics import summarize
from tpu_estimator_embedding.types import Tensor

_PREFIX = "embedding/"  # of the names of summaries


class MeasuredStep(NamedTuple):
    """The part of a training graph that measures statistics.

    Attributes:
        plan: the tables.
        measures: what the step measures, where `is_due` is fed True.
        is_due: scalar bool placeholder, False by default.
        find_trained_rows: the op that marks the rows whose slots show that they were trained.
    """

    plan: EmbeddingPlan
    measures: StepMeasures
    is_due: Tensor
    find_trained_rows: tf.Operation


class EmbeddingStatisticsHook(tf.compat.v1.train.SessionRunHook):
    """Writes statistics of every table for TensorBoard, and logs one line per measured step.

    Pass it to `TPUEstimator.train(hooks=...)`, or in the training_hooks of a TPUEstimatorSpec.
    Per table: the gradient multiplier and the learning rate of the step, the norm of the summed
    gradients before and after clipping, the fraction of rows clipped, the norm of the update and
    its size relative to the rows, distinct and all ids of the step, ids dropped as padding,
    the fraction of rows ever trained, the most frequent rows, and a histogram of the norms of
    the rows of the step. The hook does not affect tables and slots.

    Trained rows are those whose slots differ from their initial values, and those trained since
    the start; for tables without slots only the latter. In a cluster the chief records
    its own steps' statistics; in other tasks the hook does nothing.

    Args:
        every_n_steps: measures global steps that are a multiple of it.
        output_dir: directory of the event files; None means the model's directory.

    Raises:
        TypeError: if output_dir is no path.
        ValueError: if every_n_steps is not a positive int, or output_dir a file.
    """

    def __init__(self, every_n_steps: int = 100, output_dir: str | None = None):
        checks.check_positive_int("every_n_steps", every_n_steps)
        checks.check_can_be_directory("output_dir", output_dir)
        self._every_n_steps, self._output_dir = every_n_steps, output_dir

    def begin(self) -> None:
        """Refuses a session that does not measure.

        Raises:
            RuntimeError: always; where steps are measured, `StepStatistics` takes its place.
        """
        raise RuntimeError(
            "EmbeddingStatisticsHook must be given to TPUEstimator.train(hooks=...) or in "
            "training_hooks, of an estimator with use_tpu=True and an embedding_config_spec.")


class StepStatistics(tf.compat.v1.train.SessionRunHook):
    """Writes the statistics of one session's steps, as an `EmbeddingStatisticsHook` asks for."""

    def __init__(self, step: MeasuredStep, every_n_steps: int, output_dir: str):
        """Makes the hook.

        Args:
            step: the part of the graph that measures.
            every_n_steps: measures global steps that are a multiple of it.
            output_dir: directory of the event files.
        """
        self._step, self._every_n_steps, self._output_dir = step, every_n_steps, output_dir
        self._last = self._intervals = 0
        self._is_due = False

    def begin(self) -> None:
        """Opens the event file."""
        self._global_step = tf.compat.v1.train.get_global_step()
        self._writer = tf.compat.v1.summary.FileWriterCache.get(self._output_dir)

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Marks the rows that were trained before the checkpoint."""
        self._last, _ = session.run([self._global_step, self._step.find_trained_rows])
        self._intervals = self._last // self._every_n_steps

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Requests measures if the step is due."""
        # Other workers of a cluster may take the very step that is a multiple.
        self._is_due = (self._last + 1) // self._every_n_steps > self._intervals
        fetches = {"step": self._global_step}
        if not self._is_due:
            return tf.compat.v1.train.SessionRunArgs(fetches)
        return tf.compat.v1.train.SessionRunArgs(
            {**fetches, "measures": self._step.measures}, feed_dict={self._step.is_due: True})

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Writes and logs the statistics of a measured step."""
        # The fetched step may be read before it is incremented; workers of a cluster increment
        # it, too.
        self._last = max(self._last + 1, int(run_values.results["step"]))
        if not self._is_due:
            return
        self._intervals = self._last // self._every_n_steps
        statistics = summarize(self._step.plan, run_values.results["measures"])
        self._writer.add_summary(to_summary(statistics), self._last)
        self._writer.flush()
        tf.compat.v1.logging.info("tpu_estimator_embedding: %s", to_line(statistics, self._last))


def with_statistics(hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None,
                    plan: EmbeddingPlan, every_n_steps: int | None
                    ) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks, plus one that measures unless they do, if a number of steps is given."""
    hooks = list(hooks or ())
    if every_n_steps and plan.tables and not split_statistics(hooks, plan).measuring:
        hooks.append(EmbeddingStatisticsHook(every_n_steps))
    return hooks


class SplitHooks(NamedTuple):
    """The hooks of a training, or of a model.

    Attributes:
        measuring: those that want measures of the steps, in whose place a step has its own.
        others: those of the session.
    """

    measuring: list[EmbeddingStatisticsHook]
    others: list[tf.compat.v1.train.SessionRunHook]


def split_statistics(hooks: Iterable[tf.compat.v1.train.SessionRunHook],
                     plan: EmbeddingPlan) -> SplitHooks:
    """Takes the hooks that measure steps out of others.

    Without tables nothing is measured: they are others, too, and refuse the session.
    """
    split = SplitHooks([], [])
    for hook in hooks:
        if plan.tables and isinstance(hook, EmbeddingStatisticsHook):
            split.measuring.append(hook)
        else:
            split.others.append(hook)
    return split


class TablesUpdate(NamedTuple):
    """The update of the tables in a step.

    Attributes:
        op: the op that updates them.
        hooks: what the session needs to write statistics of it.
    """

    op: tf.Operation | None
    hooks: tuple[StepStatistics, ...] = ()


def update_tables(engine: PartitionedEmbedding, ids: StepIds, gradients: StepGradients,
                  hooks: Sequence[EmbeddingStatisticsHook], model_dir: str | None
                  ) -> TablesUpdate:
    """Builds the update of a step.

    Args:
        engine: the tables.
        ids: of the step.
        gradients: what `engine.step_gradients` returned.
        hooks: hooks that want the measures of the step.
        model_dir: the default directory that they write to; None in a task that leaves
            statistics to the chief of its cluster.
    """
    if not hooks or model_dir is None:
        return TablesUpdate(engine.update(ids, gradients))
    with tf.control_dependencies(None):  # only the step waits for its input
        marks = create_marks(engine.variables)
        trained = tf.group(*find_trained_rows(engine.plan, engine.variables, marks))
    are_due = [tf.compat.v1.placeholder_with_default(False, []) for _ in hooks]
    measures = engine.measured_update(ids, gradients, marks, tf.reduce_any(tf.stack(are_due)))
    return TablesUpdate(
        tf.group(*(host.sums for host in measures.hosts)),
        tuple(StepStatistics(MeasuredStep(engine.plan, measures, is_due, trained),
                             hook._every_n_steps, hook._output_dir or model_dir)
              for hook, is_due in zip(hooks, are_due, strict=True)))


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
                _summarize({f"{_PREFIX}{table.name}/{name}": values.get(table.name, 1.0)
                            for table in engine.plan.tables})
        tf.compat.v1.summary.scalar(f"{_PREFIX}global_gradient_norm", tf.linalg.global_norm(
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
