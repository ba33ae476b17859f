# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator without a TPU."""

import contextlib
import copy
import dataclasses
import functools
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import tensorflow as tf

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.checkpoint.model_directory import (
    translate_state_errors,
    warn_of_unnamed_checkpoints,
)
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.compat import legacy_keras, upstream
from tpu_estimator_embedding.compat.stubs import tpu_ops
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.estimator import export
from tpu_estimator_embedding.estimator.cluster.cluster_config import ClusterConfig, chosen_config
from tpu_estimator_embedding.estimator.cluster.servers import meet_servers
from tpu_estimator_embedding.estimator.cluster.tasks import (
    check_is_trainer,
    cluster_of,
    prepare_for_server,
    with_device_filters,
    workers_of,
)
from tpu_estimator_embedding.estimator.embedding_config_spec import (
    EmbeddingConfigSpec,
    can_train,
    check_spec,
    own_spec,
    spec_to_plan,
)
from tpu_estimator_embedding.estimator.engine_model import EngineModel
from tpu_estimator_embedding.estimator.estimator_call import (
    EstimatorCall,
    ModelGraph,
    ModelInput,
)
from tpu_estimator_embedding.estimator.estimator_spec import (
    ModeKeys,
    check_are_numbers,
    check_eval_steps,
    check_input_fn_and_hooks,
    check_train_steps,
    log_start,
    params_for,
)
from tpu_estimator_embedding.estimator.evaluation import (
    Evaluation,
    EvaluationOps,
    evaluate,
    evaluation_ops,
    has_end,
    predictions,
    samples,
    stop_hooks,
)
from tpu_estimator_embedding.estimator.export import EXPORT_FOR_TPU
from tpu_estimator_embedding.estimator.hooks import training_hooks
from tpu_estimator_embedding.estimator.hooks.embedding_statistics import (
    split_statistics,
    with_statistics,
)
from tpu_estimator_embedding.estimator.hooks.input_end import logging_without_input, ops_of_input
from tpu_estimator_embedding.estimator.hooks.interrupts import StopOnSignal
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength, length_in_training
from tpu_estimator_embedding.estimator.hooks.saved_input import warn_of_saved_input
from tpu_estimator_embedding.estimator.hooks.session_start import (
    log_slow_start,
    pause_gc_until_started,
)
from tpu_estimator_embedding.estimator.input.feeding import InputFeed, feed_steps
from tpu_estimator_embedding.estimator.input.input_reader import call_input_fn
from tpu_estimator_embedding.estimator.input.machine_context import (
    MachineContext,
    check_can_honour,
    check_config,
    check_partition_dims,
    without_num_shards,
)
from tpu_estimator_embedding.estimator.input.step_input import (
    StepInput,
    received_input,
    translate_id_errors,
)
from tpu_estimator_embedding.estimator.restore import (
    ModelWarmStart,
    WarmStartSettings,
    translate_read_errors,
    translate_restore_errors,
    value_by_id,
)
from tpu_estimator_embedding.estimator.step.captured_tensors import leave_out_summaries_of_input
from tpu_estimator_embedding.estimator.step.engine_step import EngineStep
from tpu_estimator_embedding.estimator.step.step_read import add_step_read
from tpu_estimator_embedding.estimator.training import Training, stop_hook_in_place, train
from tpu_estimator_embedding.ops.nests import own_containers
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure, Tensor

_NO_TABLES = EmbeddingPlan((), ())

# Methods of Estimator that train() and so on do not call -> the method of which they are parts.
_NOT_CALLED = {
    "_train_model_default": "_train_model", "_train_with_estimator_spec": "_train_model",
    "_call_model_fn_eval": "_actual_eval", "_evaluate_build_graph": "_actual_eval",
    "_evaluate_run": "_actual_eval", "_add_meta_graph_for_mode": "_export_all_saved_models"}
_EXPORT_API_V1 = upstream.tpu_estimator.ExportSavedModelApiVersion.V1


class _ReceivedInput(NamedTuple):
    """What Estimator reads of the result of an input_receiver_fn."""

    features: ModelInput
    receiver_tensors: Structure
    receiver_tensors_alternatives: Mapping[str, Structure] | None


class TPUEstimator(upstream.tpu_estimator.TPUEstimator):
    """`tf.compat.v1.estimator.tpu.TPUEstimator` on whatever devices there are.

    With `use_tpu=True`, the embeddings of `embedding_config_spec` are looked up and trained
    by this package's engine with the numerics of the TPU's, in train, evaluate, predict and
    export; `params['use_tpu']` is True in all of them. With `use_tpu=False` it behaves as in
    TensorFlow: columns are ordinary variables that the model's optimizer trains.

    The constructor's arguments are TensorFlow's, in the same order, followed by four more:

    Args:
        num_hosts: parts into which every table is split, each a separate variable; 1 if None.
            If TF_CONFIG has parameter servers, training has one part on each. Checkpoints
            restore with any other number, and with the other partition_strategy.
        checkpoint_num_hosts: hosts that wrote a checkpoint without a record of them, on a TPU
            or by an earlier version of this package. Only `mod` needs it.
        cluster_config: a `ClusterConfig`: whether the workers of a cluster update together.
            By default what `run --synchronous` says, else each updates independently.
        async_checkpoints: whether training goes on while a checkpoint is written, which see
            `docs/checkpoints_estimator.rst`. By default what `run --async-checkpoints` says, else
            steps wait.
        checkpoint_at_start: whether a training saves when its session begins, as TensorFlow does.
            With False it does not save what initializers or the checkpoint that it restored have
            just given. By default what `run --no-checkpoint-at-start` says, else True.

    Raises:
        ValueError: in upstream's cases, except those that only make sense on a TPU:
            `num_shards=1` with an embedding_config_spec, `mod` with eval_on_tpu=False,
            dynamic shapes, and `evaluate(steps=None)` are allowed. Also if the config has a
            distribution strategy.
    """

    # Upstream's: what Estimator calls, and the argument `warm_start_from`.
    _model_fn: Callable[..., EstimatorSpec]
    _warm_start_settings: WarmStartSettings | None

    def __init__(self, model_fn: Callable[..., EstimatorSpec] | None = None,
                 model_dir: str | None = None, config: upstream.tpu_config.RunConfig | None = None,
                 params: Structure = None, use_tpu: bool = True,
                 train_batch_size: int | None = None, eval_batch_size: int | None = None,
                 predict_batch_size: int | None = None, batch_axis: Sequence[int] | None = None,
                 eval_on_tpu: bool = True, export_to_tpu: bool = True, export_to_cpu: bool = True,
                 warm_start_from: str | WarmStartSettings | None = None,
                 embedding_config_spec: EmbeddingConfigSpec | None = None,
                 export_saved_model_api_version: object = _EXPORT_API_V1, *,
                 num_hosts: int | None = None, checkpoint_num_hosts: int | None = None,
                 cluster_config: ClusterConfig | None = None,
                 async_checkpoints: bool | None = None, checkpoint_at_start: bool | None = None):
        _check_arguments(
            config, model_dir, embedding_config_spec,
            flags={"use_tpu": use_tpu, "eval_on_tpu": eval_on_tpu, "export_to_tpu": export_to_tpu,
                   "export_to_cpu": export_to_cpu},
            hosts={"num_hosts": num_hosts, "checkpoint_num_hosts": checkpoint_num_hosts})
        if use_tpu:
            check_can_honour(config)
        config = with_device_filters(copy.deepcopy(config))
        batch_axis = None if batch_axis is None else list(batch_axis)
        embedding_config_spec = embedding_config_spec and own_spec(embedding_config_spec)
        self._use_engine = use_tpu
        self._spec = embedding_config_spec
        self._tensor_core_columns = (
            embedding_config_spec and embedding_config_spec.tensor_core_feature_columns) or ()
        self._num_hosts = num_hosts
        self._cluster = cluster_of(config if use_tpu else None)
        self._cluster.num_hosts(num_hosts)
        self._checkpoint_num_hosts = checkpoint_num_hosts
        self._workers = workers_of(config if use_tpu else None, chosen_config(cluster_config))
        settings.TABLES_IN_PLACE.read()  # refuses an unknown value before a training
        self._saving = training_hooks.saving_choice(async_checkpoints, checkpoint_at_start)
        self._user_model_fn: Any = model_fn
        self._batch_axis = batch_axis
        self._log_steps = getattr(config, "log_step_count_steps", None)
        super().__init__(
            model_fn=model_fn, model_dir=model_dir, config=without_num_shards(config),
            params=params_for(model_fn, params), use_tpu=use_tpu, train_batch_size=train_batch_size,
            eval_batch_size=eval_batch_size, predict_batch_size=predict_batch_size,
            batch_axis=batch_axis, eval_on_tpu=use_tpu or eval_on_tpu,
            export_to_tpu=export_to_tpu, export_to_cpu=export_to_cpu,
            warm_start_from=warm_start_from, embedding_config_spec=embedding_config_spec,
            export_saved_model_api_version=export_saved_model_api_version)
        self._config: Any = self._config.replace(tpu_config=config.tpu_config)
        self._ctx: Any = MachineContext.instead_of(self._ctx, self._config, eval_on_tpu)
        self._eval_on_tpu = eval_on_tpu
        self._warm_start_settings = own_containers(self._warm_start_settings)
        self._stop = StopOnSignal()
        self._model_fn = self._built_by(self._model_fn)
        prepare_for_server(self._config)
        if use_tpu:  # invalid specs fail here; a missing optimizer fails when training
            self._plan(training=(embedding_config_spec is not None
                                 and can_train(embedding_config_spec)))

    def train(self, input_fn: Callable[..., Structure],
              hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
              steps: int | None = None, max_steps: int | None = None,
              saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None = None
              ) -> Self:
        """Trains as `Estimator.train`; every batch of the input is trained on once.

        With the engine, a run of the session is a loop of `iterations_per_loop` steps, as on a
        TPU: hooks are called once per loop, around its last step; checkpoints and summaries
        are written after the loop in which they are due. Training stops at `max_steps` exactly.

        Ctrl-C and SIGTERM stop after the current step, and a checkpoint is saved. A program's
        own handlers stay in place, and signals are handled in the main thread only.
        """
        check_is_trainer(self._config)
        check_input_fn_and_hooks(input_fn, hooks)
        hooks = list(hooks or ())  # an iterator is read once
        check_are_numbers({"Train steps": steps, "Train max_steps": max_steps})
        if self._use_engine:
            check_train_steps(steps, max_steps)
        warn_of_unnamed_checkpoints(self.model_dir)
        if not self._use_engine:
            with _record_layouts(), self._translate_restore_errors():
                return super().train(input_fn, hooks, steps, max_steps, saving_listeners)
        warn_of_saved_input(hooks)
        plan = self._plan(training=True)
        if self._cluster.servers:
            meet_servers(self._config, plan)
        with (_record_layouts(), self._translate_restore_errors(), translate_id_errors(),
              pause_gc_until_started() as resume_gc,
              log_slow_start(plan) as slow_start,
              self._stop.defer_signals()):
            hooks = with_statistics(hooks, plan, settings.STATISTICS.read())
            return super().train(input_fn, [slow_start, resume_gc, *self._hooks(hooks), self._stop],
                                 steps, max_steps, saving_listeners)

    def evaluate(self, input_fn: Callable[..., Structure], steps: int | None = None,
                 hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                 checkpoint_path: str | None = None,
                 name: str | None = None) -> dict[str, Any]:
        """Evaluates as `Estimator.evaluate`, all steps in one run of the session.

        `steps=None` evaluates the whole input, a step in each run.
        """
        check_input_fn_and_hooks(input_fn, hooks)
        check_are_numbers({"Eval steps": steps})
        if checkpoint_path is None:
            warn_of_unnamed_checkpoints(self.model_dir)
        with (_record_layouts(), self._translate_restore_errors(checkpoint_path),
              translate_id_errors(), translate_read_errors(),
              pause_gc_until_started() as resume_gc, self._stop.obey_signals_at_once()):
            return super().evaluate(input_fn, steps, [resume_gc, *self._hooks(hooks)],
                                    checkpoint_path, name)

    def predict(self, input_fn: Callable[..., Structure],
                predict_keys: Sequence[str] | str | None = None,
                hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                checkpoint_path: str | None = None,
                yield_single_examples: bool = True) -> Iterator[Structure]:
        """Predicts as `Estimator.predict`, every sample of the input once and in order."""
        check_input_fn_and_hooks(input_fn, hooks)
        if checkpoint_path is None:
            warn_of_unnamed_checkpoints(self.model_dir)
        with (_record_layouts(), self._translate_restore_errors(checkpoint_path),
              translate_id_errors(), translate_read_errors(),
              tf.Graph().as_default() as tf_graph):
            hooks = upstream.estimator._check_hooks_type(self._hooks(hooks))
            checkpoint_path = self._checkpoint_or_latest(checkpoint_path, "predict")
            tf.compat.v1.random.set_random_seed(self._config.tf_random_seed)
            self._create_and_assert_global_step(tf_graph)
            graph = self._build(input_fn, self._call(ModeKeys.PREDICT, checkpoint_path))
            fetches = self._extract_keys(graph.spec.predictions, predict_keys)
            for batch in predictions(graph, fetches, hooks, self._config.master,
                                     self._session_config, checkpoint_path):
                if yield_single_examples:
                    yield from samples(batch)
                else:
                    yield batch
        tf.compat.v1.logging.info("prediction_loop marked as finished")  # as of other loops

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint; None if there is none."""
        with translate_state_errors(self.model_dir):
            return super().latest_checkpoint()

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the latest checkpoint."""
        with translate_state_errors(self.model_dir):
            return [name for name in super().get_variable_names() if name != TABLE_LAYOUTS_KEY]

    def get_variable_value(self, name: str) -> Any:
        """Returns the value of a variable; row i of a table or slot is that of id i."""
        if self.latest_checkpoint() is None:
            with translate_state_errors(self.model_dir):
                return super().get_variable_value(name)  # raises its error
        return value_by_id(self.model_dir, name, self._plan(training=False),
                           self._checkpoint_num_hosts)

    def _translate_restore_errors(self, checkpoint_path: str | None = None
                           ) -> contextlib.AbstractContextManager[None]:
        return translate_restore_errors(
            self.model_dir, None if checkpoint_path else self._warm_start_settings,
            checkpoint_path)

    def _hooks(self, hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None
               ) -> list[tf.compat.v1.train.SessionRunHook]:
        return logging_without_input(hooks) if self._use_engine else list(hooks or [])

    def _plan(self, *, training: bool) -> EmbeddingPlan:
        """Returns the plan of the spec."""
        if not self._spec:
            return _NO_TABLES
        return spec_to_plan(self._spec, training=training, num_hosts=self._hosts(training))

    def _hosts(self, training: bool) -> int:
        return self._cluster.num_hosts(self._num_hosts) if training else self._num_hosts or 1

    def _assert_members_are_not_overridden(self) -> None:
        """Lets subclasses, whatever they are called, override all that is called here."""
        for name, instead in _NOT_CALLED.items():
            checks.check_with_sentence(
                getattr(type(self), name) is getattr(TPUEstimator, name),
                "Subclasses of Estimator cannot override members of Estimator. "
                f"{type(self)} does override {[name]}.", f"Override `{instead}`, which is called.")

    # Training and evaluation, each from an input_fn to the end of the session.

    def _train_model(self, input_fn: Callable[..., Structure],
                     hooks: Sequence[tf.compat.v1.train.SessionRunHook],
                     saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener]
                     ) -> Any:
        if self._train_distribution:
            return super()._train_model(input_fn, hooks, saving_listeners)
        call = self._call(ModeKeys.TRAIN, tf.train.latest_checkpoint(self.model_dir))
        statistics, hooks = split_statistics(stop_hook_in_place(hooks), call.plan)
        call = dataclasses.replace(call, statistics=tuple(statistics))
        with tf.Graph().as_default() as tf_graph, tf_graph.device(self._device_fn):
            tf.compat.v1.random.set_random_seed(self._config.tf_random_seed)
            self._create_and_assert_global_step(tf_graph)
            add_step_read(tf_graph)
            return train(Training(
                graph=self._build(input_fn, call), hooks=hooks, listeners=saving_listeners,
                config=self._config, session_config=self._session_config,
                model_dir=self.model_dir, saving=self._saving, servers=self._cluster.servers,
                is_synchronous=bool(self._workers), length=call.length,
                is_stopping=lambda: self._stop.received is not None))

    def _actual_eval(self, input_fn: Callable[..., Structure], strategy: Any = None,
                     steps: int | None = None,
                     hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                     checkpoint_path: str | None = None,
                     name: str | None = None) -> dict[str, Any]:
        if strategy:
            return super()._actual_eval(input_fn, strategy, steps, hooks, checkpoint_path, name)
        hooks = upstream.estimator._check_hooks_type(hooks)
        stop = self._convert_eval_steps_to_hooks(steps)
        checkpoint_path = self._checkpoint_or_latest(checkpoint_path, "evaluate")
        with tf.Graph().as_default():
            graph = self._evaluated_graph(input_fn, checkpoint_path, to_the_end=steps is None)
            return self._run_evaluation(evaluation_ops(graph, [*hooks, *stop]), graph.input_ops,
                                        checkpoint_path, self.eval_dir(name))

    def _evaluated_graph(self, input_fn: Callable[..., Structure], checkpoint_path: str | None, *,
                         to_the_end: bool) -> ModelGraph:
        tf.compat.v1.random.set_random_seed(self._config.tf_random_seed)
        self._create_and_assert_global_step(tf.compat.v1.get_default_graph())
        return self._build(input_fn, self._call(ModeKeys.EVAL, checkpoint_path,
                                                to_the_end=to_the_end))

    def _run_evaluation(self, ops: EvaluationOps, input_ops: Collection[str] | None,
                        checkpoint_path: str | None, output_dir: str) -> dict[str, Any]:
        has_loops = self._use_engine and has_end(ops.hooks)
        return evaluate(Evaluation(
            ops, input_ops, self._config.evaluation_master, self._session_config,
            checkpoint_path, output_dir,
            LoopLength(settings.STEPS_PER_RUN.read() if has_loops else 1)))

    # TensorFlow's hooks that evaluate in a training call these three.

    def _convert_eval_steps_to_hooks(self, steps: int | None
                                     ) -> list[tf.compat.v1.train.SessionRunHook]:
        check_eval_steps(steps, with_engine=self._use_engine)
        return stop_hooks(steps)

    def _evaluate_build_graph(self, input_fn: Callable[..., Structure],
                              hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                              checkpoint_path: str | None = None) -> EvaluationOps:
        hooks = hooks or ()
        graph = self._evaluated_graph(input_fn, checkpoint_path, to_the_end=not has_end(hooks))
        return evaluation_ops(graph, hooks)

    def _evaluate_run(self, checkpoint_path: str | None, scaffold: tf.compat.v1.train.Scaffold,
                      update_op: tf.Operation, eval_dict: Mapping[str, Tensor],
                      all_hooks: Sequence[tf.compat.v1.train.SessionRunHook],
                      output_dir: str) -> dict[str, Any]:
        return self._run_evaluation(EvaluationOps(scaffold, update_op, eval_dict, all_hooks), None,
                                    checkpoint_path, output_dir)

    def _checkpoint_or_latest(self, checkpoint_path: str | None, purpose: str) -> str | None:
        found = checkpoint_path or tf.train.latest_checkpoint(self.model_dir)
        if not found:
            tf.compat.v1.logging.info(
                "Could not find trained model in model_dir: %s, running initialization to %s.",
                self.model_dir, purpose)
        return found

    def _call(self, mode: str, checkpoint_path: str | None, **options: Any) -> EstimatorCall:
        """Returns what a call does in a session that restores a checkpoint, or None."""
        plan = self._plan(training=mode == ModeKeys.TRAIN) if self._use_engine else _NO_TABLES
        return self._with_settings(mode, plan, warm_start=None if checkpoint_path else
                                   self._warm_start_settings, **options)

    def _with_settings(self, mode: str, plan: EmbeddingPlan, **options: Any) -> EstimatorCall:
        """Returns what a call does, as the environment says when it starts."""
        if self._use_engine:
            options["loads_tables"] = settings.TABLES_IN_PLACE.read() == "off"
        if self._use_engine or mode == ModeKeys.TRAIN:
            options["length"] = self._loop_length()
        return EstimatorCall(mode, plan, **options)

    def _loop_length(self) -> LoopLength:
        if self._cluster.servers:  # whose workers share the steps: others count them as well
            return LoopLength(steps=1)
        return length_in_training(self._config.tpu_config.iterations_per_loop,
                                  settings.STEPS_PER_RUN.read())

    # From input_fn to the input of a step.

    def _build(self, input_fn: Callable[..., Structure], call: EstimatorCall) -> ModelGraph:
        """Builds input and model in the default graph."""
        if self._use_engine:
            step, feed, hooks = self._fed_input(input_fn, call)
            # Estimator calls `_model_fn`, and so what `_built_by` made.
            spec = self._call_model_fn(ModelInput(call, step), None, call.mode, self.config)
            return ModelGraph(spec, [feed, *hooks], feed)
        with ops_of_input() as input_ops:
            features, labels, hooks = self._read(input_fn, call.mode)
        spec = self._call_model_fn(features, labels, call.mode, self.config)
        if call.warm_start:
            ModelWarmStart(call.warm_start).begin()
        return ModelGraph(spec, list(hooks), None, input_ops)

    def _read(self, input_fn: Callable[..., Structure], mode: str
              ) -> tuple[Structure, Structure, list[tf.compat.v1.train.SessionRunHook]]:
        """Returns features, labels and hooks, by the methods that a subclass may override.

        With the engine, features are a function of a `TPUContext` that reads them, as on a TPU.
        """
        if mode != ModeKeys.PREDICT:
            return self._get_features_and_labels_from_input_fn(input_fn, mode)
        features, hooks = self._get_features_from_input_fn(input_fn, mode)
        return features, None, hooks

    def _fed_input(self, input_fn: Callable[..., Structure], call: EstimatorCall
                   ) -> tuple[StepInput, InputFeed,
                              list[tf.compat.v1.train.SessionRunHook]]:
        """Returns the input of a step that an input_fn feeds, its feed, and the input's hooks."""
        def read(context: upstream.tpu_context.TPUContext
                 ) -> tuple[Structure, list[tf.compat.v1.train.SessionRunHook]]:
            # New for every call, so that each has its own params and config.
            function, _, hooks = self._read(input_fn, call.mode)
            return function(context), hooks

        device = self._cluster.this_task if call.training else ""
        with self._ctx.with_mode(call.mode) as ctx, tf.device(device or THIS_PROCESS):
            results = call_input_fn(ctx, read)
            step, feed = feed_steps(
                call.plan, ctx, [result for result, _ in results], training=call.training,
                has_servers=bool(self._cluster.servers), batch_axis=self._batch_axis,
                tensor_core_columns=self._tensor_core_columns,
                is_stopping=self._stop.stops_waiting, sums_only=bool(self._workers),
                to_the_end=call.to_the_end)
        leave_out_summaries_of_input()
        check_partition_dims(self._config.tpu_config, step.replicas[0].features,
                             step.replicas[0].labels)
        return (step.without_labels() if call.mode == ModeKeys.PREDICT else step, feed,
                [hook for _, hooks in results for hook in hooks])

    def _received_input(self, receiver_fn: Callable[[], Any], mode: str) -> "_ReceivedInput":
        """Returns the input of a graph to export, as an input_receiver_fn receives it."""
        receiver = _received(receiver_fn)
        training = mode == ModeKeys.TRAIN
        plan = self._plan(training=training)
        if isinstance(receiver.features, dict):  # embedding features may be missing
            plan = plan.restricted_to(receiver.features)
        step = received_input(
            plan, receiver.features, getattr(receiver, "labels", None), training=training,
            columns=(self._spec and self._spec.feature_columns) or (),
            tensor_core_columns=self._tensor_core_columns)
        return _ReceivedInput(
            ModelInput(self._with_settings(mode, plan, is_export=True), step),
            receiver.receiver_tensors, getattr(receiver, "receiver_tensors_alternatives", None))

    # From the input of a step to what Estimator runs.

    def _built_by(self, without_engine: Callable[..., EstimatorSpec]
                  ) -> Callable[..., EstimatorSpec]:
        """Returns the model_fn that Estimator calls, given the one that it calls on a CPU."""

        def built(features: Structure, labels: Structure, mode: str, config: RunConfig,
                  params: Structure) -> EstimatorSpec:
            is_for_tpu = mode == EXPORT_FOR_TPU
            mode = ModeKeys.PREDICT if is_for_tpu else mode
            with (legacy_keras.seed_initializers(self._config.tf_random_seed),
                  tpu_ops.stubs_installed()):  # model_fn may sum over replicas
                if self._use_engine:
                    checks.check_type(
                        ModelInput, "features", "the input that train(), evaluate(), predict() "
                        "and export_saved_model() of the TPUEstimator build", features,
                        "To extend a model, wrap the model_fn that the constructor takes.")
                    return self._engine_model().build(features, config, params,
                                                      is_for_tpu=is_for_tpu)
                log_start(f"{mode} without the embedding engine (use_tpu=False): tables of "
                          "embedding columns are variables of the model")
                features, labels = own_containers((features, labels))
                return without_engine(features, labels, mode, config, params)

        return built

    def _with_model_fn(self, model_fn: Callable[..., EstimatorSpec]) -> "TPUEstimator":
        """Returns a copy with another model_fn, with the engine, on the same directory."""
        changed = copy.copy(self)
        changed._user_model_fn = model_fn
        changed._model_fn = changed._built_by(model_fn)
        return changed

    def _engine_model(self) -> EngineModel:
        """Returns the model_fn of the program, and what its graphs have in common."""
        return EngineModel(
            self._user_model_fn, context=self._ctx, is_chief=self._config.is_chief,
            model_dir=self.model_dir, from_columns=bool(self._spec and self._spec.feature_columns),
            stored=self._plan(training=False), checkpoint_num_hosts=self._checkpoint_num_hosts,
            servers=self._cluster.servers, workers=self._workers, eval_on_tpu=self._eval_on_tpu,
            log_every_n_steps=self._log_steps, use_step=self._use_step)

    def _use_step(self, step: EngineStep) -> None:
        """Is called with a step that this process will run, for tools that record it."""

    def _export_all_saved_models(
            self, export_dir_base: str,
            input_receiver_fn_map: Mapping[str, Callable[[], Any]],
            assets_extra: Mapping[str, str] | None = None, as_text: bool = False,
            checkpoint_path: str | None = None, strip_default_attrs: bool = True) -> bytes:
        checks.check_can_be_directory("export_dir_base", export_dir_base)
        if not checkpoint_path:
            with translate_state_errors(self.model_dir):
                checkpoint_path = tf.train.latest_checkpoint(self.model_dir)
                if not checkpoint_path:
                    raise ValueError(f"Couldn't find trained model at {self.model_dir}. Call "
                                     "train() before, or pass `checkpoint_path`.")
        receivers = {
            mode: functools.partial(self._received_input, receiver_fn, mode) if self._use_engine
            else functools.partial(_received, receiver_fn)
            for mode, receiver_fn in input_receiver_fn_map.items()}
        with _record_layouts(), self._translate_restore_errors(checkpoint_path):
            return export.write(
                export.Export(export_dir_base, receivers, checkpoint_path, assets_extra, as_text,
                              strip_default_attrs, for_cpu=self._export_to_cpu,
                              for_tpu=self._export_to_tpu),
                functools.partial(upstream.estimator.Estimator._add_meta_graph_for_mode, self))


def _check_arguments(config: upstream.tpu_config.RunConfig | None, model_dir: str | None,
                     embedding_config_spec: EmbeddingConfigSpec | None, *,
                     flags: Mapping[str, object], hosts: Mapping[str, int | None]) -> None:
    """Checks arguments of the constructor, before anything is made of them.

    Args:
        config, model_dir, embedding_config_spec: the arguments of these names.
        flags: name -> value of the arguments that are bools.
        hosts: name -> value of the arguments that are numbers of hosts.
    """
    check_config(config)
    for name, flag in flags.items():  # a text of a flag, such as "False", is true
        checks.check_one_of(name, (True, False, None), flag)
    for name, number in hosts.items():
        if number is not None:
            checks.check_positive_int(name, number)
    checks.check_type((str, os.PathLike, type(None)), "model_dir", "a string or a path object",
                      model_dir)
    checks.check_can_hold_checkpoints("model_dir", model_dir or getattr(config, "model_dir", None))
    check_spec(embedding_config_spec)


def _record_layouts() -> contextlib.AbstractContextManager[None]:
    """Lets Savers record and check the layouts of tables; `install()` does so permanently."""
    return patch.applied(patch_table.SAVERS)


def _received(receiver_fn: Callable[[], Any]) -> Any:
    receiver = receiver_fn()
    checks.check(hasattr(receiver, "features") and hasattr(receiver, "receiver_tensors"),
                 "result of the input receiver function",
                 "a ServingInputReceiver or SupervisedInputReceiver", receiver)
    return receiver
