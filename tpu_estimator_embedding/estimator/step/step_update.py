# SPDX-License-Identifier: Apache-2.0
"""Who updates the tables and the model after a step: this process alone, or workers together."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIds, StepIdsOnServers
from tpu_estimator_embedding.estimator.cluster.synchronous_step import synchronize
from tpu_estimator_embedding.estimator.cluster.tasks import Workers
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import (
    EmbeddingStatisticsHook,
    update_tables,
)
from tpu_estimator_embedding.types import EstimatorSpec, Tensor


class TableGradients(NamedTuple):
    """What the tables are updated with.

    Attributes:
        ids: the ids of the step.
        gradients: their gradients, with the learning rates of the step.
    """

    ids: StepIds
    gradients: StepGradients


class BuiltUpdate(NamedTuple):
    """The ops of an update.

    Attributes:
        spec: the result of the model_fn, with the train_op to run.
        op: the op that updates the tables; None where the train_op does, or there are none.
        hooks: hooks that the session needs.
        is_measured: whether hooks write statistics of the update.
    """

    spec: EstimatorSpec
    op: tf.Operation | None
    hooks: tuple[tf.compat.v1.train.SessionRunHook, ...] = ()
    is_measured: bool = False


class StepUpdate(Protocol):
    """Builds the update of a step."""

    @property
    def num_workers(self) -> int:
        """How many processes compute the gradients of a step."""

    def build(self, engine: PartitionedEmbedding, spec: EstimatorSpec, step: Tensor,
              tables: TableGradients | None,
              statistics: Sequence[EmbeddingStatisticsHook]) -> BuiltUpdate:
        """Returns the update of a step.

        Args:
            engine: the tables.
            spec: the result of the model_fn.
            step: the global step before it is counted.
            tables: what they are updated with; None where there are none.
            statistics: hooks that measure the update.
        """


@dataclasses.dataclass(frozen=True)
class OwnUpdate:
    """Updates the tables in this process, alongside the model's train_op.

    Attributes:
        model_dir: the directory that hooks write statistics to; None if the chief writes for all.
    """

    model_dir: str | None = None

    @property
    def num_workers(self) -> int:
        """One."""
        return 1

    def build(self, engine: PartitionedEmbedding, spec: EstimatorSpec, step: Tensor,
              tables: TableGradients | None,
              statistics: Sequence[EmbeddingStatisticsHook]) -> BuiltUpdate:
        """Returns the update of a step: see `StepUpdate`."""
        if tables is None:
            return BuiltUpdate(spec, None)
        built = update_tables(engine, *tables, statistics, self.model_dir)
        return BuiltUpdate(spec, built.op, built.hooks, is_measured=bool(built.hooks))


@dataclasses.dataclass(frozen=True)
class SynchronousUpdate:
    """Updates tables and model with the gradients of all workers of a cluster.

    Attributes:
        workers: those that update together.
    """

    workers: Workers

    @property
    def num_workers(self) -> int:
        """Those of the cluster."""
        return self.workers.size

    def build(self, engine: PartitionedEmbedding, spec: EstimatorSpec, step: Tensor,
              tables: TableGradients | None,
              statistics: Sequence[EmbeddingStatisticsHook]) -> BuiltUpdate:
        """Returns the update of a step: see `StepUpdate`."""
        ids = gradients = None
        if tables is not None:
            _check_measures_nothing(statistics)
            ids, gradients = cast(StepIdsOnServers, tables.ids), tables.gradients
        together = synchronize(self.workers, engine, ids, gradients, spec.train_op, step)
        return BuiltUpdate(spec._replace(train_op=together.train_op), None, (together.hook,))


def _check_measures_nothing(hooks: Sequence[EmbeddingStatisticsHook]) -> None:
    checks.check_with_sentence(
        not hooks, "EmbeddingStatisticsHook cannot measure workers that train synchronously.",
        "Leave it and --statistics out, or train asynchronously.")
