# SPDX-License-Identifier: Apache-2.0
"""One step of a model: look up, run the model_fn, capture gradients, update.

The names of the tables are known only after the model_fn has used its columns, and the
model_fn needs activations to use them. So the model is built on activations without values; then
the tables are created under their names and looked up, and the lookups become these values.

Where activations come from is decided by a `StepLookup`, who updates by a `StepUpdate`.
Both are chosen once.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.tpu import tpu_function
from tensorflow.python.training import training_util

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.stacked_activations import (
    Stacked,
    split_activations,
    stack_gradients,
)
from tpu_estimator_embedding.engine.variables import TableNames, create_variables
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import (
    EmbeddingStatisticsHook,
    split_statistics,
    summarize_always,
)
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.replicas.graph_copy import writes_of_core
from tpu_estimator_embedding.estimator.replicas.replicate_step import (
    has_cross_replica_sum,
    over_all_replicas,
    replica_tensors,
    replicate,
)
from tpu_estimator_embedding.estimator.step import joined_tables
from tpu_estimator_embedding.estimator.step.gradient_capture import GradientCapture
from tpu_estimator_embedding.estimator.step.joined_gradients import find_joined_gradient
from tpu_estimator_embedding.estimator.step.lookahead import Lookahead
from tpu_estimator_embedding.estimator.step.step_lookup import LookedUp, LookupInStep, StepLookup
from tpu_estimator_embedding.estimator.step.step_update import (
    BuiltUpdate,
    StepUpdate,
    TableGradients,
)
from tpu_estimator_embedding.estimator.step.table_names import (
    check_all_used,
    name_tables,
    record_scopes,
)
from tpu_estimator_embedding.ops import core_values
from tpu_estimator_embedding.ops.graph_rewrites import count_after
from tpu_estimator_embedding.ops.graph_walk import ops_run_by
from tpu_estimator_embedding.ops.nests import tensors_of
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import EstimatorSpec, Structure, Tensor


class EngineStep(NamedTuple):
    """A complete step.

    Attributes:
        spec: the result of the model_fn; tensors for the host are those of all replicas.
        engine: the tables that the model_fn used.
        names: table name -> names of its variables.
        activations: feature name -> its activations in the first replica.
        update: the op that applies the embedding gradients; None unless training.
        hooks: hooks that the session needs in addition.
        inputs: the activations, features and labels of the first replica.
    """

    spec: EstimatorSpec
    engine: PartitionedEmbedding
    names: Mapping[str, TableNames]
    activations: Mapping[str, Tensor]
    update: tf.Operation | None
    hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    inputs: tuple[Tensor, ...]

    def tables_by_name(self) -> dict[str, list[tf.Variable]]:
        """Returns name of a table or slot in checkpoints -> its parts."""
        tables = {}
        for table, variables in self.engine.variables.items():
            names = self.names[table]
            tables[names.table] = variables.parts
            for slot, parts in variables.slots.items():
                tables[names.slots[slot]] = parts
        return tables


def build_step(plan: EmbeddingPlan, prepared: StepInput,
               model_fn: Callable[[Structure, Structure], EstimatorSpec], updating: StepUpdate, *,
               from_columns: bool, training: bool, checkpoint_num_hosts: int | None = None,
               servers: Sequence[str] = (),
               statistics: Sequence[EmbeddingStatisticsHook] = ()) -> EngineStep:
    """Builds the graph of one step.

    Args:
        plan: the tables and features.
        prepared: the input of the step; that of the next step, when pipelined.
        model_fn: called with features and labels; returns an estimator spec.
        updating: who updates; for training.
        from_columns: whether the tables are those of feature columns, named by the scope of
            their first use.
        training: whether to capture gradients and update the tables.
        checkpoint_num_hosts: as in `TableSlice`.
        servers: as in `create_variables`.
        statistics: hooks that measure the update; the model_fn may return more of them.

    Raises:
        RuntimeError: if the model_fn leaves a column unused in training.
        ValueError: if several replicas train without a cross-replica sum.
    """
    step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
    lookup = _choose_lookup(plan, prepared, training)
    capture = GradientCapture(plan) if training and plan.tables else None
    model = _model_on_activations(model_fn, plan, lookup, capture, updating.num_workers)
    if training:
        _read_before_counted(step, model.spec.train_op)
    names = name_tables(plan, model.scopes if from_columns else None)
    if training:
        check_all_used(plan, names)
    used = plan.restricted_to([feature.name for feature in plan.features
                               if feature.table in names])
    engine = PartitionedEmbedding(plan, create_variables(used, names, checkpoint_num_hosts,
                                                         servers))
    looked_up = lookup.lookup(engine)
    gradients: Stacked = stack_gradients(plan, [capture.captured(
        _learning_without_gradients(plan))]) if capture else {}
    inputs = [tuple(tensors_of((dict(activations), replica))) for activations, replica in
              zip(looked_up.replicas, lookup.step_input.replicas, strict=True)]
    spec, gradients = _replicate(model.spec, gradients, inputs,
                                 lookup.step_input.counted, training)
    update = BuiltUpdate(spec, None)
    if training:
        of_model, others = split_statistics(spec.training_hooks, plan)
        if of_model:
            spec = spec._replace(training_hooks=tuple(others))
        update = _update(updating, engine, lookup.step_input, looked_up, gradients, spec, step,
                         [*statistics, *of_model])
    return EngineStep(update.spec, engine, names, model.activations, update.op,
                      (*looked_up.hooks, *update.hooks), inputs[0])


def _choose_lookup(plan: EmbeddingPlan, prepared: StepInput, training: bool) -> StepLookup:
    if training and plan.pipelined:
        return Lookahead(plan, prepared)
    if len(prepared.replicas) == 1 and joined_tables.may_join(plan) and prepared.ids.can_join:
        return joined_tables.JoinedLookup(plan, prepared)
    return LookupInStep(plan, prepared)


class _Model(NamedTuple):
    """What a call of model_fn made.

    Attributes:
        spec: its result.
        activations: feature name -> the activations that it got.
        scopes: see `record_scopes`.
    """

    spec: EstimatorSpec
    activations: Mapping[str, Tensor]
    scopes: Mapping[str, str]


def _model_on_activations(model_fn: Callable[[Structure, Structure], EstimatorSpec],
                          plan: EmbeddingPlan, lookup: StepLookup,
                          capture: GradientCapture | None, num_workers: int) -> _Model:
    replicas = lookup.step_input.replicas
    features, labels, batch_size = replicas[0]
    activations: dict[str, Tensor] = {}
    if plan.features:
        activations = split_activations(plan, lookup.first, batch_size)
        features = {**features, **(capture.tie(activations) if capture else activations)}
    with (record_scopes() as scopes, core_values.CoreContext(),
          tpu_function.tpu_shard_context(len(replicas) * num_workers), _resource_variables()):
        spec = model_fn(features, labels)
    if capture:
        capture.hide()
    return _Model(spec, activations, scopes)


def _update(updating: StepUpdate, engine: PartitionedEmbedding, step_input: StepInput,
            looked_up: LookedUp, gradients: Stacked, spec: EstimatorSpec,
            step: Tensor, statistics: Sequence[EmbeddingStatisticsHook]) -> BuiltUpdate:
    if not gradients:
        return updating.build(engine, spec, step, None, statistics)
    # A gradient may not depend on the activations, so the update waits for lookups.
    with (tf.device(THIS_PROCESS), tf.name_scope("embedding_update"),
          tf.control_dependencies(looked_up.before_update)):
        step_gradients = engine.step_gradients(gradients, step)
        if looked_up.joined:
            step_gradients = step_gradients._replace(joined=find_joined_gradient(
                engine.plan, looked_up.joined.tables, gradients))
        built = updating.build(engine, spec, step, TableGradients(step_input.ids, step_gradients),
                               statistics)
    summarize_always(engine, step_gradients, is_measured=built.is_measured)
    return built


@contextlib.contextmanager
def _resource_variables() -> Iterator[None]:
    """Creates resource variables, as in a TPU's computation, whatever the program's default.

    Reading a reference variable races with updates of other gradients.
    """
    scope = tf.compat.v1.get_variable_scope()
    default = scope.use_resource
    scope.set_use_resource(True)
    try:
        yield
    finally:
        scope.set_use_resource(default)


def _learning_without_gradients(plan: EmbeddingPlan) -> list[str]:
    return [table.name for table in plan.tables
            if isinstance(table.training_optimizer.rule, FrequencyEstimator)]


def _read_before_counted(step: Tensor, train_op: Tensor | tf.Operation) -> None:
    """Makes the increment of the step wait until the engine, the model and hooks have read it.

    A hook or a host call reads the step in the run that increments it. Without an order, the
    steps of summaries would be random.
    """
    consumers = tf.compat.v1.train.get_global_step().handle.consumers()
    reads = [op for op in consumers if op.type == "ReadVariableOp" and not op.control_inputs]
    reads += [step.op, training_util._get_or_create_global_step_read().op]
    count_after(reads, train_op)


def _replicate(spec: EstimatorSpec, gradients: Stacked, inputs: Sequence[Sequence[Tensor]],
               counted: Tensor | None, training: bool) -> tuple[EstimatorSpec, Stacked]:
    """Returns the spec of all replicas, and their gradients, concatenated along axis 0."""
    if len(inputs) == 1:
        return spec, gradients
    if training and not has_cross_replica_sum():
        raise ValueError("CrossShardOptimizer must be used for model training on TPUs. model_fn "
                         "must sum its gradients over replicas, got no cross-replica sum. Wrap its "
                         "optimizer in tf.compat.v1.tpu.CrossShardOptimizer.")
    wanted = tf.nest.map_structure(tf.convert_to_tensor, (dict(gradients), replica_tensors(spec)))
    writes = writes_of_core(ops_run_by([spec.train_op])) if training else []
    flat = [*tf.nest.flatten(wanted), *writes]
    by_replica = replicate(flat, inputs)
    copies = [tf.nest.pack_sequence_as(wanted, copy[:len(flat) - len(writes)])
              for copy in by_replica]
    if writes:
        copied = [op for copy in by_replica[1:] for op in copy[len(flat) - len(writes):]]
        spec = type(spec)(**{**spec._asdict(), "train_op": tf.group(spec.train_op, *copied)})
    total = {name: tf.concat([copy[0][name] for copy in copies], 0) for name in gradients}
    return over_all_replicas(spec, [copy[1] for copy in copies], counted), total
