# SPDX-License-Identifier: Apache-2.0
"""Builds the model of a TPUEstimator with the engine: an EstimatorSpec, from a step's input."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.checkpoint.program_savers import add_tables
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.cluster.tasks import Workers
from tpu_estimator_embedding.estimator.estimator_call import ModelInput
from tpu_estimator_embedding.estimator.estimator_spec import (
    call_model_fn,
    check_is_spec,
    describe_start,
    log_hooks,
    log_start,
    to_estimator_spec,
)
from tpu_estimator_embedding.estimator.hooks.input_end import logging_without_input
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.hooks.saved_input import warn_of_saved_input
from tpu_estimator_embedding.estimator.input.machine_context import MachineContext
from tpu_estimator_embedding.estimator.replicas.replicate_step import replica_tensors
from tpu_estimator_embedding.estimator.restore import (
    ModelWarmStart,
    WarmStartSettings,
    saver_of_tables,
    tell_of_unused_slots,
    value_by_id,
    warm_start_tables,
    without_tables,
)
from tpu_estimator_embedding.estimator.step.captured_tensors import (
    check_host_is_given,
    check_input_is_given,
)
from tpu_estimator_embedding.estimator.step.engine_step import EngineStep, build_step
from tpu_estimator_embedding.estimator.step.step_update import (
    OwnUpdate,
    StepUpdate,
    SynchronousUpdate,
)
from tpu_estimator_embedding.ops.nests import tensors_of
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure

_Hooks = list[tf.compat.v1.train.SessionRunHook]


@dataclasses.dataclass(frozen=True)
class EngineModel:
    """A model_fn, and what its graphs have in common.

    Attributes:
        model_fn: that of the program.
        context: batch sizes and replicas.
        is_chief: whether this process writes statistics for all of its cluster.
        model_dir: the directory of checkpoints and summaries.
        from_columns: whether tables are those of feature columns.
        stored: the tables and features, as one process holds them.
        checkpoint_num_hosts: see `TPUEstimator`.
        servers: devices of the parameter servers that hold the tables in training.
        workers: those that train synchronously; None where each updates by itself.
        eval_on_tpu: see `TPUEstimator`.
        log_every_n_steps: how often training logs loss and speed; None means never.
        use_step: called with each step that this process will run.
    """

    model_fn: Callable[..., EstimatorSpec]
    context: MachineContext
    is_chief: bool
    model_dir: str
    from_columns: bool
    stored: EmbeddingPlan
    checkpoint_num_hosts: int | None
    servers: Sequence[str]
    workers: Workers | None
    eval_on_tpu: bool
    log_every_n_steps: int | None
    use_step: Callable[[EngineStep], None]

    def build(self, inputs: ModelInput, config: RunConfig, params: Structure, *,
              is_for_tpu: bool) -> upstream.model_fn.EstimatorSpec:
        """Calls the model_fn with activations as features, as a model expects on a TPU.

        Args:
            inputs: what the model is built from.
            config: the RunConfig for the model_fn.
            params: the parameters for the model_fn.
            is_for_tpu: whether it is exported under the tags of a TPU.
        """
        call = inputs.call
        added_params = ({"use_tpu": is_for_tpu or bool(call.plan.tables)} if call.is_export
                        else self._added_params(call.mode))

        def model_fn(features: Structure, labels: Structure) -> EstimatorSpec:
            spec = call_model_fn(self.model_fn, features, labels, call.mode, config, params,
                                 added_params)
            check_is_spec(spec, call.mode,
                          allow_estimator_spec=call.is_export or not self.eval_on_tpu)
            return spec

        spec = self._spec(inputs, model_fn)
        saver = saver_of_tables(call.plan, spec.scaffold, is_export=call.is_export,
                                training=call.training, loads_tables=call.loads_tables)
        return spec if saver is None else spec._replace(scaffold=tf.compat.v1.train.Scaffold(
            saver=saver, copy_from_scaffold=spec.scaffold))

    def _added_params(self, mode: str) -> dict[str, object]:
        with self.context.with_mode(mode) as ctx:
            return {"use_tpu": True, "batch_size": ctx.batch_size_for_model_fn,
                    "context": upstream.tpu_context.TPUContext(ctx, call_from_input_fn=False)}

    def _spec(self, inputs: ModelInput, model_fn: Callable[[Structure, Structure], EstimatorSpec]
              ) -> upstream.model_fn.EstimatorSpec:
        call = inputs.call
        num_replicas = len(inputs.step.replicas)
        log_start(describe_start(call.mode, call.plan, num_replicas, portable=call.is_export),
                  call.plan)
        graph = tf.compat.v1.get_default_graph()
        num_ops = len(graph.get_operations())
        step = build_step(call.plan, inputs.step, model_fn, self._updating(call.training),
                          training=call.training, from_columns=self.from_columns,
                          checkpoint_num_hosts=self.checkpoint_num_hosts,
                          servers=self.servers if call.training else (),
                          statistics=call.statistics)
        if not call.is_export:
            check_input_is_given(num_ops, tensors_of(inputs.step))
            self.use_step(step)
        warm_start = self._warm_start(step, call.warm_start)
        num_ops = len(graph.get_operations())
        spec = to_estimator_spec(step.spec)
        add_tables(step.tables_by_name(), spec.scaffold,
                   (*spec.training_hooks, *spec.training_chief_hooks, *spec.evaluation_hooks,
                    *spec.prediction_hooks), self.model_dir)
        if call.training:
            warn_of_saved_input(spec.training_hooks)
        if num_replicas > 1:
            check_host_is_given(num_ops, tensors_of(replica_tensors(step.spec)), step.inputs)
        spec = spec._replace(
            training_hooks=logging_without_input(spec.training_hooks),
            evaluation_hooks=[*warm_start, *logging_without_input(spec.evaluation_hooks)],
            prediction_hooks=[*warm_start, *logging_without_input(spec.prediction_hooks)])
        return self._with_update(spec, step, warm_start, call.length) if call.training else spec

    def _updating(self, training: bool) -> StepUpdate:
        if training and self.workers:
            return SynchronousUpdate(self.workers)
        return OwnUpdate(self.model_dir if self.is_chief else None)

    def _warm_start(self, step: EngineStep, settings: WarmStartSettings | None) -> _Hooks:
        """Starts tables from a checkpoint; returns the hook that starts the model's variables."""
        if not settings:
            return []
        warm_start_tables(settings, step.names, step.engine.variables, self._former_value)
        # TensorFlow does the rest, and would reject the names of tables.
        return [ModelWarmStart(without_tables(settings, step.names))]

    def _former_value(self, checkpoint: str, name: str) -> Any:
        return value_by_id(checkpoint, name, self.stored, self.checkpoint_num_hosts)

    def _with_update(self, spec: upstream.model_fn.EstimatorSpec, step: EngineStep,
                     warm_start: _Hooks, length: LoopLength) -> upstream.model_fn.EstimatorSpec:
        tell_of_unused_slots(self.model_dir, step.names)
        updates = [op for op in (spec.train_op, step.update) if op is not None]
        with tf.control_dependencies(updates):
            steps_done = tf.identity(tf.compat.v1.train.get_global_step().read_value())
        with self.context.with_mode(upstream.model_fn.ModeKeys.TRAIN) as ctx:
            logging = log_hooks(spec.loss, steps_done, ctx.global_batch_size,
                                self.log_every_n_steps, length, self.model_dir)
        return spec._replace(train_op=tf.group(*updates), training_hooks=(
            *warm_start, *step.hooks, *spec.training_hooks, *logging))
