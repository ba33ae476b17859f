# SPDX-License-Identifier: Apache-2.0
"""The engine: looks rows up in partitioned tables and applies fused optimizer updates.

    enqueued features ─ shard_ids ─▶ ShardedIds ─ lookup ─▶ stacked activations
    stacked gradients ─ sum_duplicates ─▶ RowGradients ─ RowOptimizer ─▶ rows, slots ─ write

All activations of a table are one tensor: those of its features, in the order of the
plan, under one another. `split_activations` takes them apart. The same code runs in
sessions, in `tf.function` and eagerly.

>>> from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
>>> from tpu_estimator_embedding.optimizers.adagrad import Adagrad
>>> from tpu_estimator_embedding.optimizers.row_optimizer import RowOptimizer
>>> from tpu_estimator_embedding.plan.embedding_plan import FeaturePlan
>>> plan = EmbeddingPlan.build(
...     [TablePlan("words", 10, 2, tf.ones_initializer(), "sum", RowOptimizer(Adagrad(), 0.5))],
...     [FeaturePlan("title", "words")])
>>> engine = PartitionedEmbedding(plan, create_variables(plan, default_names(plan)))
>>> data = EnqueueData.from_sparse_tensor(tf.sparse.from_dense([[3, 4], [3, 0]]))
>>> ids = shard_ids(plan, {"title": data}, batch_size=2, training=True)
>>> activations = engine.lookup(ids)
>>> activations["words"].numpy().tolist()
[[2.0, 2.0], [1.0, 1.0]]
>>> _ = engine.apply_gradients(ids, activations, step=0)
>>> print(engine.variables["words"].parts[0].numpy()[3].round(3))
[0.503 0.503]
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.engine.core_by_core import core_by_core
from tpu_estimator_embedding.engine.sharded_ids import HostIds, ShardedIds, shard_ids
from tpu_estimator_embedding.engine.update_rows import update_rows
from tpu_estimator_embedding.engine.variables import (
    TableVariables,
    create_variables,
    default_names,
)
from tpu_estimator_embedding.ops.gradients import sum_duplicates
from tpu_estimator_embedding.ops.lookup import lookup
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.plan.partition_strategy import ids_of_rows
from tpu_estimator_embedding.types import Tensor

__all__ = ["PartitionedEmbedding", "create_variables", "default_names", "shard_ids",
           "split_activations"]


class PartitionedEmbedding:
    """Tables with the optimizers that update them.

    Attributes:
        plan: what the tables are.
        variables: table name -> its variables.
    """

    def __init__(self, plan: EmbeddingPlan, variables: Mapping[str, TableVariables]):
        self.plan = plan
        self.variables = variables

    def lookup(self, ids: Mapping[str, ShardedIds]) -> dict[str, Tensor]:
        """Returns the combined rows of every table, all features under one another.

        Args:
            ids: table name -> ids of the step.

        Returns:
            Table name -> `[num_rows, dim]` float32.
        """
        return {table.name: self._lookup_table(table, ids[table.name])
                for table in self.plan.tables}

    def apply_gradients(self, ids: Mapping[str, ShardedIds], gradients: Mapping[str, Tensor],
                        step: Tensor) -> tf.Operation | None:
        """Updates every row that `ids` looked up, once, with the sum of its gradients.

        In a graph, make it wait for the lookup of the same ids, with
        `tf.control_dependencies`: gradients that are constant, as of a linear loss or behind
        tf.stop_gradient, do not, and the step would see its own update.

        Args:
            ids: table name -> ids of the step, made with `training=True`.
            gradients: table name -> gradient `[num_rows, dim]` of the stacked activations.
            step: scalar, the global step before it is incremented.

        Returns:
            The op that has updated everything; None when executing eagerly.

        Raises:
            RuntimeError: if a table has no optimizer, or the ids were not made for training.
        """
        self._check_can_train(ids)
        multiplier = self._gradient_multiplier(step)
        learning_rates = _evaluate_learning_rates(self.plan, step)
        writes = []
        for table in self.plan.tables:
            gradient = gradients[table.name]
            if multiplier is not None:
                gradient *= multiplier
            writes += self._update_table(table, ids[table.name], gradient,
                                         learning_rates[table.name], step)
        return None if tf.executing_eagerly() else tf.group(*writes)

    def _lookup_table(self, table: TablePlan, ids: ShardedIds) -> Tensor:
        num_rows = ids.num_rows
        sums = [lookup(part, host.ids, host.rows, host.weights, num_rows, table.quantization)
                for part, host in zip(self.variables[table.name].parts, ids.hosts, strict=True)]
        total = sums[0] if len(sums) == 1 else tf.add_n(sums)
        return total if ids.row_scales is None else total * ids.row_scales[:, tf.newaxis]

    def _update_table(self, table: TablePlan, ids: ShardedIds, gradient: Tensor,
                      learning_rate: Tensor, step: Tensor) -> list[tf.Operation]:
        if ids.row_scales is not None:
            gradient *= ids.row_scales[:, tf.newaxis]
        variables = self.variables[table.name]
        writes = []
        for host, part in enumerate(variables.parts):
            slots = {name: parts[host] for name, parts in variables.slots.items()}
            updates: list[tf.Operation] = []
            for round_ids in self._rounds(table, ids, host):
                with tf.control_dependencies(updates):
                    row_gradients = sum_duplicates(
                        gradient, round_ids.rows, round_ids.weights, round_ids.unique_ids,
                        round_ids.positions)
                    updates = update_rows(table.training_optimizer, part, slots, row_gradients,
                                          learning_rate, step)
            writes += updates
        return writes

    def _rounds(self, table: TablePlan, ids: ShardedIds, host: int) -> list[HostIds]:
        """Returns what to update at once: everything, or one core's share after another."""
        num_cores = tf.compat.dimension_value(ids.row_counts.shape[0])
        if table.training_optimizer.use_gradient_accumulation or num_cores == 1:
            return [ids.hosts[host]]
        row_ids = ids_of_rows(ids.hosts[host].unique_ids, host, table.vocabulary_size,
                              self.plan.num_hosts, self.plan.partition_strategy)
        return core_by_core(ids.hosts[host], row_ids % num_cores, ids.row_counts)

    def _gradient_multiplier(self, step: Tensor) -> Tensor | None:
        if self.plan.gradient_multiplier_fn is None:
            return None
        return tf.cast(self.plan.gradient_multiplier_fn(step), tf.float32)

    def _check_can_train(self, ids: Mapping[str, ShardedIds]) -> None:
        without = [table.name for table in self.plan.tables if table.optimizer is None]
        if without:
            raise RuntimeError(f"`apply_gradients` must have an optimizer for every table, got "
                               f"none for {without}. Build the plan for training.")
        if any(host.unique_ids is None for table in ids.values() for host in table.hosts):
            raise RuntimeError("`ids` must be made for training, got ids made for inference. "
                               "Call shard_ids(..., training=True).")


def split_activations(plan: EmbeddingPlan, stacked: Mapping[str, Tensor],
                      batch_size: Tensor) -> dict[str, Tensor]:
    """Returns the activations of each feature.

    Args:
        plan: the tables and features.
        stacked: table name -> `[num_rows, dim]`.
        batch_size: samples in the step: an int where it is known, else a scalar tensor.

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


def _shape_activation(part: Tensor, feature, table: TablePlan, batch_size: Tensor) -> Tensor:
    if feature.max_sequence_length:
        part = tf.reshape(part, [-1, feature.max_sequence_length, table.dimension])
    part.set_shape([batch_size if isinstance(batch_size, int) else None, *part.shape[1:].as_list()])
    return part


def _evaluate_learning_rates(plan: EmbeddingPlan, step: Tensor) -> dict[str, Tensor | float]:
    """Calls every distinct learning-rate function once."""
    by_function: dict[int, Tensor] = {}
    rates = {}
    for table in plan.tables:
        rate = table.training_optimizer.learning_rate
        if callable(rate) and id(rate) not in by_function:
            by_function[id(rate)] = tf.cast(rate(step), tf.float32)
        rates[table.name] = by_function[id(rate)] if callable(rate) else rate
    return rates
