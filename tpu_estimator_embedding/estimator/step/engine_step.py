# SPDX-License-Identifier: Apache-2.0
"""One step of a model: look up, run the model_fn, capture gradients, update.

The names of the tables are known only after the model_fn has used its columns, and the
model_fn needs activations to use them. So the model is built on placeholders; then the
tables are created under their names and looked up, and the lookups replace the placeholders.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import tensorflow as tf
from tensorflow.python.tpu import tpu_function
from tensorflow.python.training import training_util

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint.savers import teach_savers
from tpu_estimator_embedding.engine.partitioned_embedding import (
    PartitionedEmbedding,
    create_variables,
)
from tpu_estimator_embedding.engine.stacked_activations import (
    Stacked,
    split_activations,
    split_replicas,
    stack_gradients,
)
from tpu_estimator_embedding.engine.step import JoinableStepIds, StepIds, StepIdsOnServers
from tpu_estimator_embedding.engine.variables import TableNames
from tpu_estimator_embedding.estimator.cluster.synchronous_step import synchronize
from tpu_estimator_embedding.estimator.cluster.tasks import Workers
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import (
    EmbeddingStatisticsHook,
    statistics_hooks,
    summarize_always,
    update_tables,
)
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.replicas import replicate_step as replicas
from tpu_estimator_embedding.estimator.replicas.replicate_step import (
    over_all_replicas,
    replica_tensors,
)
from tpu_estimator_embedding.estimator.step import joined_tables
from tpu_estimator_embedding.estimator.step.gradient_capture import GradientCapture
from tpu_estimator_embedding.estimator.step.lookahead import Lookahead
from tpu_estimator_embedding.estimator.step.table_names import (
    check_all_used,
    name_tables,
    recorded_scopes,
)
from tpu_estimator_embedding.ops.graph_rewrites import (
    count_after,
    late_tensor,
    replace_uses,
    set_late_tensor,
)
from tpu_estimator_embedding.ops.nests import tensors_of
from tpu_estimator_embedding.optimizers.frequency_estimator import FrequencyEstimator
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


class EngineStep(NamedTuple):
    """A complete step.

    Attributes:
        spec: the result of the model_fn; tensors for the host are those of all replicas.
        engine: the tables that the model_fn used.
        names: table name -> names of its variables.
        update: the op that applies the embedding gradients; None unless training.
        hooks: hooks that the session needs in addition.
        inputs: the activations, features and labels of the first replica.
    """

    spec: Any
    engine: PartitionedEmbedding
    names: Mapping[str, TableNames]
    update: tf.Operation | None
    hooks: tuple[tf.compat.v1.train.SessionRunHook, ...]
    inputs: tuple[Tensor, ...]


def build_step(plan: EmbeddingPlan, prepared: StepInput, model_fn: Callable[[Any, Any], Any],
               *, from_columns: bool, training: bool,
               checkpoint_num_hosts: int | None = None,
               servers: Sequence[str] = (), workers: Workers | None = None,
               statistics: Sequence[EmbeddingStatisticsHook] = (),
               model_dir: str | None = None) -> EngineStep:
    """Builds the graph of one step.

    Args:
        plan: the tables and features.
        prepared: the input of the step; that of the next step, when pipelined.
        model_fn: called with features and labels; returns an estimator spec.
        from_columns: whether the tables are those of feature columns, named by the scope of
            their first use.
        training: whether to capture gradients and update the tables.
        checkpoint_num_hosts: as in `TableSlice`.
        servers: as in `create_variables`.
        workers: those that update together; None where this process updates on its own.
        statistics: hooks that measure updates; the model_fn may return more of them.
        model_dir: the directory that these hooks write to; None if the chief writes for all.

    Raises:
        RuntimeError: if the model_fn leaves a column unused in training, or computes no
            gradient of the activations.
        ValueError: if several replicas train without a cross-replica sum.
    """
    step = tf.identity(tf.compat.v1.train.get_or_create_global_step())
    lookahead = Lookahead(plan, prepared) if training and plan.pipelined else None
    step_input = lookahead.step_input if lookahead else prepared
    num_replicas = len(step_input.replicas)
    first = (split_replicas(plan, lookahead.stacked, step_input.ids, num_replicas)[0] if lookahead
             else {table.name: _placeholder(table) for table in plan.tables})
    capture = GradientCapture(plan) if training and plan.tables else None
    spec, scopes = _call_model_fn(model_fn, plan, step_input, first, capture,
                                  workers.size if workers else 1)
    if capture:
        capture.hide()
    if training:
        _read_before_counted(step)
    names = name_tables(plan, scopes if from_columns else None)
    if training:
        check_all_used(plan, names)
    used = plan.restricted_to([feature.name for feature in plan.features
                               if feature.table in names])
    teach_savers()
    engine = PartitionedEmbedding(plan, create_variables(used, names, checkpoint_num_hosts,
                                                         servers))
    joins = not (lookahead or servers or workers) and num_replicas == 1
    joined = _lookup_joined(engine, step_input.ids, first) if joins else None
    with tf.device("/device:CPU:0"):
        if joined:
            stacked = joined_tables.columns(plan, joined.tensor, joined.tables)
        else:
            stacked = lookahead.stacked if lookahead else engine.lookup(step_input.ids)
        looked_up = [joined.tensor] if joined else list(stacked.values())
        by_replica = split_replicas(plan, stacked, step_input.ids, num_replicas)
    if not lookahead:
        _connect(first, by_replica[0])
    gradients: Stacked = stack_gradients(plan, [capture.captured(
        _learning_without_gradients(plan))]) if capture else {}
    inputs = [tuple(tensors_of((dict(activations), replica))) for activations, replica in
              zip([first, *by_replica[1:]], step_input.replicas, strict=True)]
    spec, gradients = _replicate(spec, gradients, inputs, training)
    if not capture:
        if not workers or not training:
            return EngineStep(spec, engine, names, None, (), inputs[0])
        together = synchronize(workers, engine, None, None, spec.train_op, step)
        return EngineStep(spec._replace(train_op=together.train_op), engine, names, None,
                          (together.hook,), inputs[0])
    with tf.device("/device:CPU:0"):
        lookup = lookahead.lookup(engine, prepared) if lookahead else None
        # A gradient may not depend on the activations, so the update waits for lookups.
        with (tf.name_scope("embedding_update"),
              tf.control_dependencies([lookup] if lookahead else looked_up)):
            step_gradients = engine.step_gradients(gradients, step)
            if joined:
                step_gradients = step_gradients._replace(
                    joined=joined_tables.find_joined_gradient(plan, joined, gradients))
            measuring = [*statistics, *statistics_hooks(getattr(spec, "training_hooks", ()))]
            if workers:
                _check_measures_nothing(measuring)
                together = synchronize(workers, engine, cast(StepIdsOnServers, step_input.ids),
                                       step_gradients, spec.train_op, step)
                spec, update = spec._replace(train_op=together.train_op), None
            else:
                update = update_tables(engine, step_input.ids, step_gradients, measuring,
                                       model_dir)
    summarize_always(engine, step_gradients, is_measured=bool(measuring) and model_dir is not None)
    hooks = [lookahead.hook(prepared)] if lookahead else []
    return EngineStep(spec, engine, names, update,
                      (*hooks, together.hook) if workers else tuple(hooks), inputs[0])


def _lookup_joined(engine: PartitionedEmbedding, ids: StepIds, activations: Stacked
                   ) -> joined_tables.Concatenation | None:
    """Writes lookups directly into the model's concatenation of activations, if there is one."""
    found = joined_tables.find_concatenation(engine.plan, activations) if (
        joined_tables.may_join(engine.plan) and ids.can_join) else None
    if found is None:
        return None
    with tf.device("/device:CPU:0"):
        joined = engine.lookup_joined(cast(JoinableStepIds, ids), found.tables)
    replace_uses(found.tensor, joined)
    return found._replace(tensor=joined)


def _check_measures_nothing(hooks: Sequence[EmbeddingStatisticsHook]) -> None:
    checks.check(not hooks, "EmbeddingStatisticsHook", "left out where workers train "
                 "synchronously", [type(hook).__name__ for hook in hooks],
                 "Leave --statistics out, or train asynchronously.")


def _placeholder(table: TablePlan) -> Tensor:
    return late_tensor(tf.TensorSpec([None, table.dimension]), name="activations")


def _call_model_fn(model_fn: Callable[[Any, Any], Any], plan: EmbeddingPlan,
                   step_input: StepInput, stacked: Stacked, capture: GradientCapture | None,
                   num_workers: int) -> tuple[Any, Mapping[str, str]]:
    features, labels, batch_size = step_input.replicas[0]
    if plan.features:
        activations = split_activations(plan, stacked, batch_size)
        features = {**features, **(capture.tie(activations) if capture else activations)}
    num_replicas = len(step_input.replicas) * num_workers
    with (recorded_scopes() as scopes, tpu_function.tpu_shard_context(num_replicas),
          _resource_variables()):
        return model_fn(features, labels), scopes


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


def _read_before_counted(step: Tensor) -> None:
    """Makes the increment of the step wait until the engine, the model and hooks have read it.

    A hook or a host call reads the step in the run that increments it. Without an order, the
    steps of summaries would be random.
    """
    consumers = tf.compat.v1.train.get_global_step().handle.consumers()
    reads = [op for op in consumers if op.type == "ReadVariableOp" and not op.control_inputs]
    reads += [step.op, training_util._get_or_create_global_step_read().op]
    count_after(reads)


def _connect(placeholders: Stacked, activations: Stacked) -> None:
    for name, values in activations.items():
        set_late_tensor(placeholders[name], values)


def _replicate(spec: Any, gradients: Stacked, inputs: Sequence[Sequence[Tensor]], training: bool
               ) -> tuple[Any, Stacked]:
    """Returns the spec of all replicas, and their gradients, concatenated along axis 0."""
    if len(inputs) == 1:
        return spec, gradients
    if training and not replicas.has_cross_replica_sum():
        raise ValueError("CrossShardOptimizer must be used for model training on TPUs. model_fn "
                         "must sum its gradients over replicas, got no cross-replica sum. Wrap its "
                         "optimizer in tf.compat.v1.tpu.CrossShardOptimizer.")
    wanted = tf.nest.map_structure(tf.convert_to_tensor, (dict(gradients), replica_tensors(spec)))
    copies = [tf.nest.pack_sequence_as(wanted, copy)
              for copy in replicas.replicate(tf.nest.flatten(wanted), inputs)]
    total = {name: tf.concat([copy[0][name] for copy in copies], 0) for name in gradients}
    return over_all_replicas(spec, [copy[1] for copy in copies]), total
