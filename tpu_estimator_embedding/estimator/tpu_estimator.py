# SPDX-License-Identifier: Apache-2.0
"""TPUEstimator without a TPU."""

import contextlib
import copy
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.checkpoint import in_place_choice
from tpu_estimator_embedding.checkpoint.model_directory import (
    explained_state,
    warn_of_unnamed_checkpoints,
)
from tpu_estimator_embedding.checkpoint.savers import teach_savers
from tpu_estimator_embedding.checkpoint.table_layouts import TABLE_LAYOUTS_KEY
from tpu_estimator_embedding.compat import legacy_keras, upstream
from tpu_estimator_embedding.compat.stubs import tpu_ops
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.estimator.cluster.cluster_config import ClusterConfig, chosen_config
from tpu_estimator_embedding.estimator.cluster.servers import meet_servers
from tpu_estimator_embedding.estimator.cluster.tasks import (
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
from tpu_estimator_embedding.estimator.estimator_spec import (
    ModeKeys,
    call_model_fn,
    check_are_numbers,
    check_is_spec,
    describe_start,
    log_hooks,
    log_start,
    params_for,
    to_estimator_spec,
)
from tpu_estimator_embedding.estimator.hooks import embedding_statistics, saving_choice
from tpu_estimator_embedding.estimator.hooks.input_end import (
    OnlyInputEnds,
    logging_without_input,
    ops_of_input,
)
from tpu_estimator_embedding.estimator.hooks.interrupts import StopOnSignal
from tpu_estimator_embedding.estimator.hooks.session_start import (
    collecting_once_started,
    telling_of_slow_start,
)
from tpu_estimator_embedding.estimator.input.feeding import feed_steps
from tpu_estimator_embedding.estimator.input.machine_context import (
    MachineContext,
    check_can_honour,
    check_config,
    check_partition_dims,
    without_num_shards,
)
from tpu_estimator_embedding.estimator.input.step_input import (
    ModelInput,
    explained_ids,
    received_input,
)
from tpu_estimator_embedding.estimator.looping_estimator import LoopingEstimator
from tpu_estimator_embedding.estimator.replicas.replicate_step import replica_tensors
from tpu_estimator_embedding.estimator.restore import (
    WarmStartSettings,
    explained_reads,
    explained_restore,
    saver_in_place,
    tell_of_unused_slots,
    value_by_id,
    warm_start_tables,
    without_tables,
)
from tpu_estimator_embedding.estimator.step.captured_tensors import (
    check_host_is_given,
    check_input_is_given,
    leave_out_summaries_of_input,
)
from tpu_estimator_embedding.estimator.step.engine_step import EngineStep, build_step
from tpu_estimator_embedding.estimator.step.step_update import (
    OwnUpdate,
    StepUpdate,
    SynchronousUpdate,
)
from tpu_estimator_embedding.ops.nests import own_containers, tensors_of
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import EstimatorSpec, RunConfig, Structure

# A mode for Estimator's own methods; the model_fn gets PREDICT.
EXPORT_FOR_TPU = "export for a TPU"

_TPU_TAGS = [tf.saved_model.SERVING, tf.saved_model.TPU]
_NO_TABLES = EmbeddingPlan((), ())
_EXPORT_API_V1 = upstream.tpu_estimator.ExportSavedModelApiVersion.V1


class _ReceivedInput(NamedTuple):
    """What Estimator reads of the result of an input_receiver_fn."""

    features: ModelInput
    receiver_tensors: Structure
    receiver_tensors_alternatives: Mapping[str, Structure] | None


class TPUEstimator(LoopingEstimator):
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
            By default what `run --synchronous` says, else each updates on its own.
        async_checkpoints: whether training goes on while a checkpoint is written, which see
            `docs/checkpoints.rst`. By default what `run --async-checkpoints` says, else steps wait.
        checkpoint_at_start: whether a training saves when its session begins, as TensorFlow does.
            With False it does not save what initializers or the checkpoint that it restored have
            just given. By default what `run --no-checkpoint-at-start` says, else True.

    Raises:
        ValueError: in upstream's cases, except those that only make sense on a TPU:
            `num_shards=1` with an embedding_config_spec, `mod` with eval_on_tpu=False,
            dynamic shapes, and `evaluate(steps=None)` are allowed. Also if the config has a
            distribution strategy.
    """

    # Upstream's: the part that Estimator warm-starts.
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
        check_config(config)
        config = copy.deepcopy(config)
        batch_axis = None if batch_axis is None else list(batch_axis)
        # A text of a flag, such as "False", is true.
        checks.check_one_of("use_tpu", (True, False, None), use_tpu)
        for name, flag in (("eval_on_tpu", eval_on_tpu), ("export_to_tpu", export_to_tpu),
                           ("export_to_cpu", export_to_cpu)):
            checks.check_one_of(name, (True, False, None), flag)
        if num_hosts is not None:
            checks.check_positive_int("num_hosts", num_hosts)
        if checkpoint_num_hosts is not None:
            checks.check_positive_int("checkpoint_num_hosts", checkpoint_num_hosts)
        checks.check_type((str, os.PathLike, type(None)), "model_dir", "a string or a path object",
                          model_dir)
        checks.check_can_be_directory("model_dir", model_dir or getattr(config, "model_dir", None))
        check_spec(embedding_config_spec)
        embedding_config_spec = embedding_config_spec and own_spec(embedding_config_spec)
        if use_tpu:
            check_can_honour(config)
        config = with_device_filters(config)
        self._use_engine = use_tpu
        self._spec = embedding_config_spec
        self._tensor_core_columns = (
            embedding_config_spec and embedding_config_spec.tensor_core_feature_columns) or ()
        self._num_hosts = num_hosts
        self._cluster = cluster_of(config if use_tpu else None)
        self._cluster.num_hosts(num_hosts)
        self._checkpoint_num_hosts = checkpoint_num_hosts
        self._workers = workers_of(config if use_tpu else None, chosen_config(cluster_config))
        in_place_choice.choice()  # refuses an unknown value before a training, not after it
        self._saving = saving_choice.chosen(async_checkpoints, checkpoint_at_start)
        self._plans: dict[bool, EmbeddingPlan] = {}  # keyed by whether it is for training
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
        self._ctx = MachineContext(self._config, train_batch_size, eval_batch_size,
                                   predict_batch_size, use_tpu, eval_on_tpu,
                                   embedding_config_spec)
        self._eval_on_tpu = eval_on_tpu
        self._warm_start_settings = own_containers(self._warm_start_settings)
        self._all_warm_start_settings = self._warm_start_settings
        self._stop = StopOnSignal()
        prepare_for_server(self._config)
        # Hooks of the current training.
        self._statistics: list[embedding_statistics.EmbeddingStatisticsHook] = []
        self._export_dirs: set[str] = set()  # that the current export writes
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
        check_are_numbers({"Train steps": steps, "Train max_steps": max_steps})
        warn_of_unnamed_checkpoints(self.model_dir)
        if not self._use_engine:
            with self._explained_restore():
                return super().train(input_fn, hooks, steps, max_steps, saving_listeners)
        if self._cluster.servers:
            meet_servers(self._config, self._plan(training=True))
        with (self._explained_restore(), explained_ids(),
              collecting_once_started() as collect,
              telling_of_slow_start(self._plan(training=True)) as slow_start,
              self._stop.noting_signals()):
            hooks = embedding_statistics.with_statistics(hooks, self._plan(training=True))
            self._statistics = embedding_statistics.statistics_hooks(hooks)
            return super().train(input_fn, [slow_start, collect, *self._hooks(hooks), self._stop],
                                 steps, max_steps, saving_listeners)

    def evaluate(self, input_fn: Callable[..., Structure], steps: int | None = None,
                 hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                 checkpoint_path: str | None = None,
                 name: str | None = None) -> dict[str, Any]:
        """Evaluates as `Estimator.evaluate`, all steps in one run of the session.

        `steps=None` evaluates the whole input, a step in each run.
        """
        check_are_numbers({"Eval steps": steps})
        if checkpoint_path is None:
            warn_of_unnamed_checkpoints(self.model_dir)
        with (self._explained_restore(checkpoint_path), explained_ids(), explained_reads(),
              collecting_once_started() as collect, self._stop.obeying_at_once()):
            return super().evaluate(input_fn, steps, [collect, *self._hooks(hooks)],
                                    checkpoint_path, name)

    def predict(self, input_fn: Callable[..., Structure],
                predict_keys: Sequence[str] | str | None = None,
                hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None = None,
                checkpoint_path: str | None = None,
                yield_single_examples: bool = True) -> Iterator[Structure]:
        """Predicts as `Estimator.predict`, every sample of the input once and in order."""
        if checkpoint_path is None:
            warn_of_unnamed_checkpoints(self.model_dir)
        with explained_ids(), explained_reads():
            yield from super().predict(input_fn, predict_keys, self._hooks(hooks),
                                       checkpoint_path, yield_single_examples)

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest checkpoint; None if there is none."""
        with explained_state(self.model_dir):
            return super().latest_checkpoint()

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the latest checkpoint."""
        with explained_state(self.model_dir):
            return [name for name in super().get_variable_names() if name != TABLE_LAYOUTS_KEY]

    def get_variable_value(self, name: str) -> Any:
        """Returns the value of a variable; row i of a table or slot is that of id i."""
        if self.latest_checkpoint() is None:
            with explained_state(self.model_dir):
                return super().get_variable_value(name)  # raises its error
        return value_by_id(self.model_dir, name, self._plan(training=False),
                           self._checkpoint_num_hosts)

    def _explained_restore(self, checkpoint_path: str | None = None
                           ) -> contextlib.AbstractContextManager[None]:
        return explained_restore(self.model_dir,
                                 None if checkpoint_path else self._all_warm_start_settings)

    def _hooks(self, hooks: Sequence[tf.compat.v1.train.SessionRunHook] | None
               ) -> list[tf.compat.v1.train.SessionRunHook]:
        return logging_without_input(hooks) if self._use_engine else list(hooks or [])

    def _plan(self, *, training: bool) -> EmbeddingPlan:
        """Returns the plan of the spec, built when it is first needed and kept."""
        if not self._spec:
            return _NO_TABLES
        if training not in self._plans:
            self._plans[training] = spec_to_plan(self._spec, training=training,
                                                 num_hosts=self._hosts(training))
        return self._plans[training]

    def _hosts(self, training: bool) -> int:
        return self._cluster.num_hosts(self._num_hosts) if training else self._num_hosts or 1

    def _assert_members_are_not_overridden(self) -> None:
        """Lets subclasses override what they like, whatever they are called."""

    # From input_fn to the input of a step.

    def _get_features_and_labels_from_input_fn(
            self, input_fn: Callable[..., Structure],
            mode: str) -> tuple[Structure, Structure, list[tf.compat.v1.train.SessionRunHook]]:
        if not self._use_engine:
            with ops_of_input() as input_ops:
                features, labels, hooks = super()._get_features_and_labels_from_input_fn(
                    input_fn, mode)
            return features, labels, [*hooks, OnlyInputEnds(input_ops)]
        inputs, hooks = self._fed_input(input_fn, mode)
        return inputs, None, hooks

    def _get_features_from_input_fn(
            self, input_fn: Callable[..., Structure],
            mode: str) -> tuple[Structure, list[tf.compat.v1.train.SessionRunHook]]:
        if not self._use_engine:
            with ops_of_input() as input_ops:
                features, hooks = super()._get_features_from_input_fn(input_fn, mode)
            return features, [*hooks, OnlyInputEnds(input_ops)]
        inputs, hooks = self._fed_input(input_fn, mode)
        return inputs.without_labels(), hooks

    def _fed_input(self, input_fn: Callable[..., Structure],
                   mode: str) -> tuple[ModelInput, list[tf.compat.v1.train.SessionRunHook]]:
        """Returns the input of a step that an input_fn feeds, and the hooks that feed it."""
        training = mode == ModeKeys.TRAIN
        plan = self._plan(training=training)
        device = self._cluster.this_task if training else ""
        with self._ctx.with_mode(mode) as ctx, tf.device(device or THIS_PROCESS):
            step, hook = feed_steps(
                plan, ctx,
                # Anew for every call, so that each has its own params and config.
                lambda context: self._call_input_fn(input_fn, mode)(context), training=training,
                batch_axis=self._batch_axis, tensor_core_columns=self._tensor_core_columns,
                is_stopping=self._stop.stops_waiting, as_sums=bool(self._workers))
        leave_out_summaries_of_input()
        check_partition_dims(self._config.tpu_config, step.replicas[0].features,
                             step.replicas[0].labels)
        return ModelInput(plan, step, is_export=False), [hook, OnlyInputEnds()]

    def _received_input(self, receiver_fn: Callable[[], Any], mode: str) -> "_ReceivedInput":
        """Returns the input of a graph to export, as an input_receiver_fn receives it."""
        receiver = _received(receiver_fn)
        training = mode == ModeKeys.TRAIN
        return _ReceivedInput(
            received_input(self._plan(training=training), receiver.features,
                           getattr(receiver, "labels", None), training=training,
                           columns=(self._spec and self._spec.feature_columns) or (),
                           tensor_core_columns=self._tensor_core_columns),
            receiver.receiver_tensors, getattr(receiver, "receiver_tensors_alternatives", None))

    # From the input of a step to what Estimator runs.

    def _call_model_fn(self, features: Structure, labels: Structure, mode: str,
                       config: RunConfig) -> EstimatorSpec:
        with legacy_keras.seeded_initializers(self._config.tf_random_seed):
            return super()._call_model_fn(features, labels, mode, config)

    def _augment_model_fn(self, model_fn: Callable[..., EstimatorSpec],
                          batch_axis: Sequence[int] | None) -> Callable[..., EstimatorSpec]:
        without_engine = super()._augment_model_fn(model_fn, batch_axis)

        def augmented(features: Structure, labels: Structure, mode: str, config: RunConfig,
                      params: Structure) -> EstimatorSpec:
            is_for_tpu = mode == EXPORT_FOR_TPU
            mode = ModeKeys.PREDICT if is_for_tpu else mode
            with tpu_ops.stubs_installed():  # model_fn may sum over replicas
                if self._use_engine:
                    checks.check_type(
                        ModelInput, "features", "the input that train(), evaluate(), predict() "
                        "and export_saved_model() of the TPUEstimator build", features,
                        "To extend a model, wrap the model_fn that the constructor takes.")
                    return self._with_engine(features, mode, config, params, is_for_tpu)
                teach_savers()  # which reject rows that are not in the order of ids
                log_start(f"{mode} without the embedding engine (use_tpu=False): tables of "
                          "embedding columns are variables of the model")
                features, labels = own_containers((features, labels))
                return without_engine(features, labels, mode, config, params)

        return augmented

    def _with_model_fn(self, model_fn: Callable[..., EstimatorSpec]) -> "TPUEstimator":
        """Returns a copy with another model_fn, on the same directory."""
        changed = copy.copy(self)
        changed._user_model_fn = model_fn
        changed._model_fn = changed._augment_model_fn(model_fn, self._batch_axis)
        return changed

    def _with_engine(self, inputs: ModelInput, mode: str, config: RunConfig, params: Structure,
                     is_for_tpu: bool) -> upstream.model_fn.EstimatorSpec:
        # As upstream, but with activations as features, as a model expects on a TPU.
        added_params = ({"use_tpu": is_for_tpu or bool(inputs.plan.tables)} if inputs.is_export
                        else self._added_params(mode))

        def model_fn(features: Structure, labels: Structure) -> EstimatorSpec:
            spec = call_model_fn(self._user_model_fn, features, labels, mode, config, params,
                                 added_params)
            check_is_spec(spec, mode,
                          allow_estimator_spec=inputs.is_export or not self._eval_on_tpu)
            return spec

        spec = self._engine_spec(inputs, mode, model_fn)
        saver = saver_in_place(inputs.plan, spec.scaffold, is_export=inputs.is_export,
                               training=mode == ModeKeys.TRAIN)
        return spec if saver is None else spec._replace(scaffold=tf.compat.v1.train.Scaffold(
            saver=saver, copy_from_scaffold=spec.scaffold))

    def _engine_spec(self, inputs: ModelInput, mode: str,
                     model_fn: Callable[[Structure, Structure], EstimatorSpec]
                     ) -> upstream.model_fn.EstimatorSpec:
        training = mode == ModeKeys.TRAIN
        num_replicas = len(inputs.step.replicas)
        log_start(describe_start(mode, inputs.plan, num_replicas, portable=inputs.is_export),
                  inputs.plan)
        graph = tf.compat.v1.get_default_graph()
        num_ops = len(graph.get_operations())
        step = build_step(inputs.plan, inputs.step, model_fn, self._updating(training),
                          training=training,
                          from_columns=bool(self._spec and self._spec.feature_columns),
                          checkpoint_num_hosts=self._checkpoint_num_hosts,
                          servers=self._cluster.servers if training else ())
        if not inputs.is_export:
            check_input_is_given(num_ops, tensors_of(inputs.step))
            self._use_step(step)
        num_ops = len(graph.get_operations())
        spec = to_estimator_spec(step.spec)
        if num_replicas > 1:
            check_host_is_given(num_ops, tensors_of(replica_tensors(step.spec)), step.inputs)
        spec = spec._replace(
            training_hooks=logging_without_input(spec.training_hooks),
            evaluation_hooks=logging_without_input(spec.evaluation_hooks),
            prediction_hooks=logging_without_input(spec.prediction_hooks))
        return self._with_update(spec, step) if training else spec

    def _added_params(self, mode: str) -> dict[str, object]:
        with self._ctx.with_mode(mode) as ctx:
            return {"use_tpu": True, "batch_size": ctx.batch_size_for_model_fn,
                    "context": upstream.tpu_context.TPUContext(ctx, call_from_input_fn=False)}

    def _updating(self, training: bool) -> StepUpdate:
        if training and self._workers:
            return SynchronousUpdate(self._workers, self._statistics)
        return OwnUpdate(self._statistics, self.model_dir if self._config.is_chief else None)

    def _use_step(self, step: EngineStep) -> None:
        """Takes a step that this process will run. Tools that record steps extend this method."""
        self._warm_start(step)

    def _warm_start(self, step: EngineStep) -> None:
        settings = self._all_warm_start_settings
        if settings and not tf.train.latest_checkpoint(self.model_dir):
            warm_start_tables(settings, step.names, step.engine.variables)
            # Estimator does the rest, and would reject the names of tables.
            self._warm_start_settings = without_tables(settings, step.names)

    def _with_update(self, spec: upstream.model_fn.EstimatorSpec,
                     step: EngineStep) -> upstream.model_fn.EstimatorSpec:
        tell_of_unused_slots(self.model_dir, step.names)
        updates = [op for op in (spec.train_op, step.update) if op is not None]
        with tf.control_dependencies(updates):
            steps_done = tf.identity(tf.compat.v1.train.get_global_step().read_value())
        with self._ctx.with_mode(ModeKeys.TRAIN) as ctx:
            hooks = log_hooks(spec.loss, steps_done, ctx.global_batch_size, self._log_steps,
                              self._training_loop(), self.model_dir)
        return spec._replace(train_op=tf.group(*updates),
                             training_hooks=(*step.hooks, *spec.training_hooks, *hooks))

    def _export_all_saved_models(self, export_dir_base: str, *args: object,
                                 **options: object) -> bytes:
        checks.check_can_be_directory("export_dir_base", export_dir_base)
        if not options.get("checkpoint_path"):
            with explained_state(self.model_dir):
                if not tf.train.latest_checkpoint(self.model_dir):
                    raise ValueError(f"Couldn't find trained model at {self.model_dir}. Call "
                                     "train() before, or pass `checkpoint_path`.")
        self._export_dirs.clear()
        try:
            return super()._export_all_saved_models(export_dir_base, *args, **options)
        except BaseException:
            for path in self._export_dirs:  # temp-TIMESTAMP, which TensorFlow would leave
                with contextlib.suppress(tf.errors.OpError):
                    tf.io.gfile.rmtree(path)
            raise

    def _add_meta_graph_for_mode(self, builder: tf.compat.v1.saved_model.Builder,
                                 input_receiver_fn_map: Mapping[str, Callable[[], Any]],
                                 checkpoint_path: str, save_variables: bool = True,
                                 mode: str = ModeKeys.PREDICT,
                                 export_tags: Sequence[str] | None = None,
                                 check_variables: bool = True,
                                 strip_default_attrs: bool = True) -> None:
        self._export_dirs.add(builder._export_dir)
        input_receiver_fn_map = {
            key: functools.partial(self._received_input, receiver_fn, key) if self._use_engine
            else functools.partial(_received, receiver_fn)
            for key, receiver_fn in input_receiver_fn_map.items()}
        add = functools.partial(
            upstream.estimator.Estimator._add_meta_graph_for_mode, self, builder,
            checkpoint_path=checkpoint_path, strip_default_attrs=strip_default_attrs)
        add_meta_graphs(add, input_receiver_fn_map, mode, for_cpu=self._export_to_cpu,
                        for_tpu=self._export_to_tpu, save_variables=save_variables,
                        export_tags=export_tags, check_variables=check_variables)


def _received(receiver_fn: Callable[[], Any]) -> Any:
    receiver = receiver_fn()
    checks.check(hasattr(receiver, "features") and hasattr(receiver, "receiver_tensors"),
                 "result of the input receiver function",
                 "a ServingInputReceiver or SupervisedInputReceiver", receiver)
    return receiver


def add_meta_graphs(add_for_mode: Callable[..., None],
                    input_receiver_fns: Mapping[str, Callable[[], object]], mode: str, *,
                    for_cpu: bool, for_tpu: bool, save_variables: bool,
                    export_tags: Sequence[str] | None, check_variables: bool) -> None:
    """Adds the graph of a mode, and in PREDICT one that clients load by the tags of a TPU.

    Args:
        add_for_mode: adds one; takes input_receiver_fns, and by keyword the arguments of
            `Estimator._add_meta_graph_for_mode`.
        input_receiver_fns: mode -> function that receives the inputs.
        mode: TRAIN, EVAL or PREDICT.
        for_cpu: `export_to_cpu` of the TPUEstimator.
        for_tpu: `export_to_tpu` of the TPUEstimator.
        save_variables: whether the first graph saves the variables.
        export_tags: tags of the first graph; None for those of the mode.
        check_variables: whether the first graph has to have variables.

    Raises:
        ValueError: if both exports are disabled.
    """
    if not for_cpu and not for_tpu:
        raise ValueError("One of export_to_cpu and export_to_tpu must be true. Leave "
                         "`export_to_cpu` out of the TPUEstimator's arguments.")
    has_tpu_tags = for_tpu and mode == ModeKeys.PREDICT
    if for_cpu or not has_tpu_tags:
        add_for_mode(input_receiver_fns, mode=mode, save_variables=save_variables,
                     export_tags=export_tags, check_variables=check_variables)
        save_variables = check_variables = False  # the builder holds them
    if has_tpu_tags:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: export_to_tpu=True: clients that load the tags %s get "
            "the graph for CPU and GPU under them%s", _TPU_TAGS, "; tf.saved_model.load needs "
            "tags=['serve'] or these where a model has both." if for_cpu else ".")
        add_for_mode({EXPORT_FOR_TPU: input_receiver_fns[mode]}, mode=EXPORT_FOR_TPU,
                     save_variables=save_variables, export_tags=_TPU_TAGS,
                     check_variables=check_variables)
