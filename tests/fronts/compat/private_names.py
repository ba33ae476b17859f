# SPDX-License-Identifier: Apache-2.0
"""Every private name of TensorFlow, Keras and tensorflow_estimator that the package uses.

A new version of TensorFlow may rename or remove any of them; the test beside it checks that all
exist in the installed version. The names that `install()` replaces are in the tables of patches.
"""

from collections.abc import Iterator
from typing import NamedTuple


class PrivateName(NamedTuple):
    """A name that is not part of a public API.

    Attributes:
        module: the module that defines it.
        name: the name in the module; `Class.member` for a member of a class or its instances.
        reason: what the package uses it for.
        since: `(major, minor)` of the first supported TensorFlow that has it.
    """

    module: str
    name: str
    reason: str
    since: tuple[int, int] = (2, 15)

    @property
    def path(self) -> str:
        """Module and name, as code writes them."""
        return f"{self.module}.{self.name}"


def _names(module: str, names: str, reason: str,
           since: tuple[int, int] = (2, 15)) -> Iterator[PrivateName]:
    return (PrivateName(module, name, reason, since) for name in names.split())


def _members(module: str, class_name: str, names: str, reason: str) -> Iterator[PrivateName]:
    return (PrivateName(module, f"{class_name}.{name}", reason) for name in names.split())


GRAPHS = (
    *_names("tensorflow.core.framework.attr_value_pb2", "AttrValue NameAttrList",
            "attributes of marked or copied nodes"),
    *_names("tensorflow.core.framework.function_pb2", "FunctionDef",
            "functions copied for a replica"),
    *_names("tensorflow.core.framework.node_def_pb2", "NodeDef", "nodes copied for a replica"),
    *_members("tensorflow.python.framework.ops", "Operation",
              "_add_control_inputs _control_outputs "
              "_get_control_flow_context _remove_all_control_inputs _update_input",
              "connects the graph of a model_fn to the engine, and copies it for replicas"),
    *_members("tensorflow.python.framework.ops", "Graph", "_unsafe_unfinalize",
              "`verify` adds a Saver of all variables to the graph of a program"),
    *_members("tensorflow.python.framework.ops", "Graph", "_get_control_flow_context",
              "lets what servers do wait for its inputs only, but not outside of a branch"),
    *_members("tensorflow.python.framework.ops", "Operation", "_set_attr",
              "marks the stub for a sum over replicas"),
    *_members("tensorflow.python.framework.ops", "Operation", "_set_control_flow_context",
              "leaves ops outside of the context that libraries of TPU programs look for"),
    *_members("tensorflow.python.framework.ops", "Graph", "_unfeedable_tensors _unfetchable_ops",
              "a session fetches the results of loops within that context"),
    *_names("tensorflow.python.ops.control_flow_ops", "XLAControlFlowContext",
            "the context that libraries of TPU programs look for"),
    *_names("tensorflow.python.ops.handle_data_util", "copy_handle_data",
            "the shape of a variable of which each core has its own"),
    *_names("tensorflow.python.ops.gen_tpu_ops", "tpu_replicated_input tpu_replicated_output",
            "what the stub calls where a computation is for a TPU"),
    *_names("tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_replica_id",
            "what the stub calls where a computation is for a TPU"),
    *_names("tensorflow.python.framework.importer", "_import_graph_def_internal",
            "imports a graph once its ops are loaded"),
    *_names("tensorflow.python.tpu.tpu_system_metadata", "_query_tpu_system_metadata",
            "describes a TPU system, if there is one"),
    *_names("tensorflow.python.framework.op_def_registry", "get",
            "whether TensorFlow knows the ops of a graph to import"),
    *_names("tensorflow.python.eager.record", "could_possibly_record",
            "whether a gradient may follow an eager call of a layer"),
    *_members("tensorflow.python.trackable.resource", "CapturableResource", "_create_resource",
              "what stands for a queue in a SavedModel"),
    *_names("tensorflow.python.eager.context", "eager_mode",
            "creates variables eagerly while a function is traced"),
    *_names("tensorflow.python.eager.context", "context",
            "initializers with equal seeds draw equal values, as in a graph"),
    *_members("tensorflow.python.eager.context", "Context", "clear_kernel_cache",
              "initializers with equal seeds draw equal values, as in a graph"),
    *_names("tensorflow.python.ops.resources", "local_resources report_uninitialized_resources "
            "shared_resources", "the readiness that a Scaffold reports"),
    *_names("tensorflow.python.ops.summary_op_util", "summary_scope",
            "the tags of summaries that one op writes"),
    *_names("tensorflow.python.saved_model.model_utils",
            "get_temp_export_dir get_timestamped_export_dir", "the names of folders of exports"),
    *_names("tensorflow.python.saved_model.model_utils.export_output",
            "ClassificationOutput PredictOutput RegressionOutput",
            "the classes of tf.estimator.export, which a Trainer exports, too"),
    *_names("tensorflow.python.saved_model.save_context", "in_save_context save_context",
            "tells a layer that it is traced for a SavedModel, not for training"),
    *_names("tensorflow.python.trackable.resource", "ResourceTracker resource_tracker_scope",
            "the lookup tables of an exported function, which the SavedModel saves"),
    *_members("tensorflow.python.trackable.resource", "ResourceTracker", "resources",
              "the lookup tables of an exported function, which the SavedModel saves"),
    *_names("tensorflow.python.training.training_util",
            "GLOBAL_STEP_READ_KEY _get_or_create_global_step_read",
            "the value of the global step before the update of the step"),
    *_names("tensorflow.python.util.nest",
            "assert_same_structure flatten flatten_up_to flatten_with_joined_string_paths "
            "map_structure",
            "paths of features in messages and variable names, and copies of nests"),
    *_names("tensorflow.python.framework.composite_tensor", "CompositeTensor",
            "a leaf of the input, such as a sparse or ragged tensor"),
    *_members("tensorflow.python.training.optimizer", "Optimizer", "_create_slots",
              "a migrated program's slots exist before its first step"),
    *_names("tf_keras.src.backend", "_SEED_GENERATOR",
            "the seeds that initializers of Keras layers take"),
    *_names("tensorflow.python.util.tf_export", "API_ATTRS API_ATTRS_V1 _Attributes",
            "the tables of names that tensorflow-estimator 2.15 exports by"),
    *_names("tensorflow.python.ops.lookup_ops", "FastHashSpec index_table_from_tensor "
            "index_to_string_table_from_tensor", "tables of tf.contrib.lookup"),
    *_names("tensorflow.python.feature_column.feature_column", "_LazyBuilder",
            "looks up sequence columns that Keras's layer does not take"),
    *_members("tensorflow.python.feature_column.feature_column", "_SharedEmbeddingColumn",
              "_get_sequence_dense_tensor _var_scope_name",
              "looks up sequence columns that Keras's layer does not take"),
    *_names("tensorflow.python.util._pywrap_util_port", "IsMklEnabled",
            "doctor says whether oneDNN computes the dense layers"),
    *_names("tensorflow.python.util.deprecation", "silence",
            "--tf1 forwards names that TensorFlow marks as deprecated"),
    *_members("tensorflow.python.training.basic_session_run_hooks", "LoggingTensorHook",
              "_current_tensors _log_at_end _log_tensors",
              "logs values of the last step without consuming an extra batch"),
    *_members("tensorflow.python.training.basic_session_run_hooks", "CheckpointSaverHook",
              "_get_saver _global_step_tensor _listeners _save _save_graph_def _save_path "
              "_summary_writer _timer", "the asynchronous hook saves the same at the same time"),
    *_names("tensorflow.python.client.session", "SessionInterface",
            "a Saver gets pieces of tables in the place of a session"),
    *_names("tensorflow.python.client.session", "BaseSession.__init__",
            "a session uses this machine if no master answers"),
    *_members("tensorflow.python.client.session", "BaseSession",
              "_config _extend_graph _graph _target",
              "a local session runs ops that are placed on the hosts of a TPU"),
    *_members("tensorflow.python.client.session", "BaseSession",
              "_do_run", "a run that waits for another thread's ends if that thread has failed"),
    *_names("tensorflow.python.eager.context", "default_execution_mode EAGER_MODE",
            "init_scope leads into eager execution even if the program has disabled it"),
    *_names("tensorflow.python.ops.while_loop", "while_loop",
            "a loop of several replicas that receives from a feed is built for all of them"),
    *_names("tensorflow.python.tpu.ops.tpu_ops", "_SUPPORTED_INFEED_DTYPES",
            "an infeed refuses the dtypes that a TPU's refuses"),
    *_names("tensorflow.python.eager.polymorphic_function.atomic_function", "from_func_graph",
            "a function runs ops that are placed on the hosts of a TPU"),
    *_names("tensorflow.python.framework.function", "func_graph_from_py_func",
            "a Defun runs ops that are placed on the hosts of a TPU"),
    *_members("tensorflow.python.framework.ops", "Graph", "_session_run_lock",
              "ops are placed before a session has them"),
    *_members("tensorflow.python.framework.ops", "Operation", "_set_device",
              "this machine runs ops that are placed on the hosts of a TPU"),
)

COLUMNS = (
    *_names("tensorflow.python.feature_column.feature_column",
            "_EmbeddingColumn _NumericColumn _SharedEmbeddingColumn",
            "tells the columns of tf.feature_column apart"),
    *_names("tensorflow.python.feature_column.feature_column_v2",
            "CategoricalColumn EmbeddingColumn IdentityCategoricalColumn NumericColumn "
            "SequenceCategoricalColumn SharedEmbeddingColumn WeightedCategoricalColumn",
            "tells the columns of tf.feature_column apart"),
    *_names("tensorflow.python.feature_column.feature_column_v2", "FeatureTransformationCache",
            "looks up strings in a column's vocabulary when serving"),
    *_names("tensorflow.python.tpu.feature_column", "_TPUBaseEmbeddingColumn",
            "distinguishes TPU columns from other columns"),
    *_names("tensorflow.python.tpu.feature_column", "_TPU_FC_TO_SCOPE",
            "the collection in which columns store the scopes of their variables"),
    *_names("tensorflow.python.tpu.feature_column_v2", "EmbeddingDevice.TPU_TENSOR_CORE",
            "columns that the model's optimizer trains"),
    *_members("tensorflow.python.tpu.feature_column_v2", "_TPUDeviceSpecificEmbeddingColumnV2",
              "_embedding_lookup_device _tensor_core_shape",
              "the lookup device and the shape of such a column"),
    *_members("tensorflow.python.tpu.feature_column", "_TPUBaseEmbeddingColumn",
              "_learning_rate_fn", "a sweep changes the learning rate of a column"),
)

TPU_SYSTEM = (
    *_names("tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2",
            "TPUEmbeddingConfiguration", "the configuration of TPUEmbedding as a message"),
    *_names("tensorflow.core.protobuf.tpu.optimization_parameters_pb2",
            "GradientAccumulationStatus HotIdReplicationConfiguration",
            "the optimizers in that message"),
    *_names("tensorflow.python.distribute.distribute_utils", "regroup",
            "combines the activations of replicas as tf.distribute does"),
    *_names("tensorflow.python.distribute.mirrored_strategy", "MirroredExtended",
            "the variables of a TPUStrategy over the devices of this machine"),
    *_members("tensorflow.python.distribute.mirrored_strategy", "MirroredExtended",
              "_create_variable _validate_colocate_with_variable",
              "like tables, slots of Keras' legacy optimizers are shared by all replicas"),
    *_names("tensorflow.python.distribute.tpu_strategy", "TPUStrategy TPUStrategyV2",
            "the class for a TPU, where there is one"),
    *_names("tensorflow.python.distribute.tpu_util", "enclosing_tpu_context",
            "a real TPU uses its own ops"),
    *_members("tensorflow.python.distribute.collective_all_reduce_strategy",
              "CollectiveAllReduceExtended", "_num_workers",
              "a strategy with several workers is refused"),
    *_names("tensorflow.python.eager.remote", "connect_to_remote_host",
            "connects where a host answers"),
    *_names("tensorflow.python.ops.gen_tpu_ops",
            "all_to_all collective_permute cross_replica_sum",
            "the op itself, on a real TPU"),
    *_names("tensorflow.python.tpu.ops.tpu_ops",
            "configure_distributed_tpu configure_tpu_embedding shutdown_distributed_tpu",
            "sets up a TPU that answers"),
    *_names("tensorflow.python.tpu.ops.tpu_ops", "infeed_enqueue_tuple",
            "the input of a replica of several cores"),
    *_names("tensorflow.python.tpu.tpu", "_tpu_system_device_name", "the device of a TPU system"),
    *_names("tensorflow.python.tpu.tpu_embedding_v1", "TPUEmbeddingV0",
            "the class for a TPU, where there is one"),
    *_names("tensorflow.python.tpu.tpu_embedding_v2", "TPUEmbedding",
            "the class for a TPU, where there is one"),
    *_names("tensorflow.python.tpu.tpu_embedding_v3", "TPUEmbeddingV2",
            "the class for a TPU, where there is one", since=(2, 16)),
    *_names("tensorflow.python.tpu.tpu_function", "get_tpu_context tpu_shard_context",
            "the number of replicas over which a CrossShardOptimizer sums"),
    *_names("tensorflow.python.tpu.tpu_name_util", "core", "names a core of a TPU that answers"),
    *_members("tensorflow.python.tpu.tpu_feed", "_PartitionedInfeedQueue",
              "_check_input_partition_dims _device_assignment _host_id _input_partition_dims "
              "generate_enqueue_ops",
              "the inputs of replicas of several cores"),
    *_names("tensorflow.python.tpu.tpu_strategy_util",
            "initialize_tpu_system_impl shutdown_tpu_system_impl", "sets up a TPU that answers"),
    *_names("tensorflow.python.tpu.tpu_system_metadata", "master_job",
            "the job in device names of the v1 TPUEmbedding"),
)

CHECKPOINTS = (
    *_names("tensorflow.python.ops.resource_variable_ops", "ResourceVariable",
            "a layer's variables, which Keras reads and replaces itself, complete their updates"),
    *_members("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable",
              "_distribute_strategy",
              "under a strategy, Keras 2 only compiles variables of its scope"),
    *_members("tensorflow.python.ops.variables", "Variable",
              "_get_save_slice_info _save_slice_info _set_save_slice_info",
              "how a part of a partitioned variable is saved, and the layout of its rows"),
    *_members("tensorflow.python.ops.resource_variable_ops", "BaseResourceVariable",
              "_initializer_op", "a warm start replaces the initializer"),
    *_names("tensorflow.python.training.checkpoint_utils", "_set_checkpoint_initializer",
            "a warm start converts the layout of rows"),
    *_members("tensorflow.python.training.saver", "BaseSaverBuilder", "save_op",
              "a saver also saves the layouts of tables"),
    *_names("tensorflow.python.training.saver", "BaseSaverBuilder Saver",
            "Savers save tables with their layouts"),
    *_names("tensorflow.python.training.saver", "BulkSaverBuilder",
            "tables may stay in a checkpoint that is restored"),
    *_members("tensorflow.python.training.saver", "BulkSaverBuilder", "bulk_restore",
              "tables may stay in a checkpoint that is restored"),
    *_members("tensorflow.python.training.saver", "Saver", "save",
              "removes the files of a failed save"),
    *_names("tensorflow.python.client.pywrap_tf_session",
            "TF_FunctionImportFunctionDef TF_GraphCopyFunction",
            "makes the functions of a graph exportable"),
    *_members("tensorflow.python.framework.ops", "Graph", "_c_graph _remove_function",
              "makes the functions of a graph exportable"),
    *_members("tensorflow.python.training.saver", "Saver", "restore",
              "a saver restores by the layouts in a checkpoint"),
    *_names("tensorflow.python.training.saving.saveable_object", "SaveableObject SaveSpec",
            "a table and its layout as objects of a saver"),
    *_names("tensorflow.python.training.saving.saveable_object_util",
            "saveable_objects_for_op", "a table is saved by its own object"),
    *_names("tensorflow.python.training.saving.saveable_object_util", "op_list_to_dict",
            "the keys that an eager Saver restores"),
    *_members("tensorflow.python.checkpoint.checkpoint", "_NameBasedRestoreCoordinator",
              "eager_restore globally_named_object_attributes save_path",
              "a restore by name obeys the layouts in a checkpoint"),
    *_names("tensorflow.__internal__.tracking", "Trackable", "is saved with its tables"),
    *_names("tensorflow.python.trackable.base", "Trackable", "is saved with its tables"),
    *_names("tensorflow.python.checkpoint.tensor_callable", "Callable",
            "reads a stack of tables when it is saved, not when it is restored"),
    *_names("tensorflow.python.trackable.data_structures", "NoDependency",
            "untracked slots that a slot_variable_creation_fn returns"),
    *_names("tensorflow.python.trackable.base", "ShardInfo",
            "passes initializers the part of a table that they fill"),
    *_names("tensorflow.python.distribute.sharded_variable", "ShardedVariable",
            "shows and saves the parts of a table on several servers as one variable"),
    *_members("tensorflow.python.training.saver", "Saver", "_is_built _sharded _var_list",
              "each server of a cluster writes and reads its own parts"),
    *_names("tensorflow.python.training.session_manager", "SessionManager",
            "a chief restores only while no worker trains"),
    *_members("tensorflow.python.training.session_manager", "SessionManager",
              "_graph _model_ready _restore_checkpoint _try_run_local_init_op prepare_session "
              "wait_for_session",
              "starts sessions that repeat runs fast, and in a cluster keep what the servers hold"),
    *_members("tensorflow.python.training.basic_session_run_hooks", "CheckpointSaverHook",
              "_checkpoint_dir _saver",
              "Savers of a program save tables, and each server its own parts"),
    *_members("tensorflow.python.training.server_lib", "Server", "__init__ join",
              "loads the kernels before a server starts, and lets Ctrl-C end it"),
    *_names("tensorflow.python.ops.summary_ops_v2", "_summary_state",
            "switches pipelining off, as on a TPU"),
    *_names("tensorflow.python.tpu.embedding_context_utils", "embedding_pipelining_state",
            "switches pipelining off inside a SequentialEmbeddingContext", since=(2, 21)),
    *_members("tensorflow.python.trackable.base", "Trackable",
              "_copy_trackable_to_cpu _deferred_dependencies _handle_deferred_dependencies "
              "_export_to_saved_model_graph _lookup_dependency _maybe_initialize_trackable "
              "_restore_from_tensors _serialize_to_tensors _track_trackable "
              "_trackable_children",
              "tables are created and restored after the object that owns them"),
)

KERAS = (
    *_names("tf_keras.src.engine.base_layer", "Layer._non_trainable_weights",
            "adds tables to a layer's variables, but not to its trainable ones"),
    *_names("tf_keras.src.engine.base_layer", "Layer._flatten_layers",
            "finds the layers of a model whose tables are measured"),
    *_names("tf_keras.src.engine.base_layer_utils", "call_context",
            "refuses layers that a model of another Keras calls"),
    *_names("keras.src.backend.common.global_state", "get_global_attribute",
            "refuses layers that a model of another Keras calls", since=(2, 16)),
    *_names("keras.src.optimizers.base_optimizer",
            "BaseOptimizer._trainable_variables BaseOptimizer._get_variable_index",
            "the slots of tables in what `migrate --to keras3` writes", since=(2, 16)),
    *_names("keras.src.layers.layer", "Layer._tracker",
            "lists and dictionaries of a copied layer belong to the copy", since=(2, 16)),
    *_names("keras.src.optimizers.base_optimizer", "BaseOptimizer._iterations",
            "whether this step ends an accumulation of gradients", since=(2, 16)),
    *_names("tensorflow.python.eager.record", "record_operation stop_recording",
            "gives a lookup a gradient without registering a function for ever"),
    *_names("tf_keras.src.optimizers.legacy.optimizer_v2",
            "OptimizerV2._create_hypers OptimizerV2._decayed_lr",
            "the current learning rate, including schedules"),
)

_UPSTREAM = "tensorflow_estimator.python.estimator"

ESTIMATOR = (
    *_names(f"{_UPSTREAM}.estimator", "Estimator", "the base class that runs TPUEstimator"),
    *_members(f"{_UPSTREAM}.estimator", "Estimator",
              "_actual_eval _add_meta_graph_for_mode _assert_members_are_not_overridden "
              "_call_input_fn _call_model_fn _config _convert_eval_steps_to_hooks "
              "_create_and_assert_global_step _device_fn _evaluate_build_graph _evaluate_run "
              "_export_all_saved_models _extract_batch_length _extract_keys "
              "_get_features_and_labels_from_input_fn _get_features_from_input_fn _model_fn "
              "_session_config _train_distribution _train_model _warm_start_settings",
              "training, evaluation, prediction and export, from input_fn to the last run"),
    *_names(f"{_UPSTREAM}.estimator",
            "_check_hooks_type _extract_metric_update_ops _verify_and_create_loss_metric "
            "_write_checkpoint_path_to_summary _write_dict_to_summary",
            "its checks and metrics, and the summaries of an evaluation"),
    *_names(f"{_UPSTREAM}.training",
            "_EvalResult _EvalStatus _NewCheckpointListenerForEvaluate",
            "verify: the evaluations of train_and_evaluate"),
    *_members(f"{_UPSTREAM}.training", "_NewCheckpointListenerForEvaluate", "_evaluator",
              "verify: what train_and_evaluate evaluates"),
    *_members(f"{_UPSTREAM}.training", "_TrainingExecutor._Evaluator", "_eval_spec",
              "verify: what train_and_evaluate evaluates"),
    *_members(f"{_UPSTREAM}.run_config", "RunConfig",
              "_cluster_spec _eval_distribute _experimental_distribute "
              "_init_distributed_setting_from_environment_var "
              "_maybe_overwrite_session_config_for_distributed_training _train_distribute",
              "the properties that the restored estimator_training sets"),
    *_members(f"{_UPSTREAM}.estimator", "Estimator", "_distribute_coordinator_mode",
              "an attribute of its RunConfig, which estimator_training sets"),
    *_names(f"{_UPSTREAM}.extenders", "add_metrics _call_metric_fn _verify_metric_fn_args",
            "add_metrics, which returns a TPUEstimator for a TPUEstimator"),
    *_names(f"{_UPSTREAM}.canned.head",
            "_binary_logistic_head_with_sigmoid_cross_entropy_loss "
            "_multi_class_head_with_softmax_cross_entropy_loss _regression_head",
            "the heads of tf.contrib.estimator"),
    *_names(f"{_UPSTREAM}.model_fn", "EstimatorSpec ModeKeys _TPUEstimatorSpec",
            "the mode and the result of a model_fn"),
    *_names(f"{_UPSTREAM}.run_config", "RunConfig", "tf.contrib.learn.RunConfig extends it"),
    *_names(f"{_UPSTREAM}.util", "fn_args", "the arguments of a model_fn"),
    *_names(f"{_UPSTREAM}.tpu.tpu_config", "RunConfig", "its masters are checked"),
    *_names(f"{_UPSTREAM}.tpu.tpu_config", "TPUConfig", "the type of its `tpu_config`"),
    *_members(f"{_UPSTREAM}.tpu.tpu_config", "RunConfig", "_evaluation_master _master",
              "replaced by this machine if no TPU answers"),
    *_names(f"{_UPSTREAM}.tpu.tpu_context", "TPUContext _InternalTPUContext",
            "batch sizes and input modes, checked as for a TPU"),
    *_members(f"{_UPSTREAM}.tpu.tpu_context", "_InternalTPUContext",
              "_config _eval_batch_size _eval_on_tpu _get_device_assignment "
              "_get_tpu_system_metadata "
              "_is_running_on_cpu _mode _predict_batch_size _use_tpu "
              "_validate_tpu_configuration",
              "this machine replaces a TPU system"),
    *_names(f"{_UPSTREAM}.tpu.util", "check_positive_integer",
            "its error for `steps` and others"),
    *_names(f"{_UPSTREAM}.tpu.util", "parse_iterations_per_loop", "steps or seconds of a loop"),
    *_names("tensorflow.python.training.evaluation",
            "_StopAfterNEvalsHook _get_or_create_eval_step", "the steps of an evaluation"),
    *_members("tensorflow.python.training.evaluation", "_StopAfterNEvalsHook",
              "_num_evals _set_evals_completed_tensor", "the steps of an evaluation"),
    *_names("tensorflow.core.protobuf.config_pb2", "CallableOptions",
            "runs the steps of a loop without the Python code of hooks in between"),
    *_members("tensorflow.python.client.session", "BaseSession",
              "_make_callable_from_options _do_call _closed",
              "runs the steps of a loop without the Python code of hooks in between"),
    *_names("tensorflow.python.client.session", "_FetchHandler",
            "the nests that hooks fetch in every run"),
    *_names(f"{_UPSTREAM}.tpu.tpu_estimator",
            "ExamplesPerSecondHook ExportSavedModelApiVersion PeriodicLogger TPUEstimator "
            "model_fn_inference_on_tpu "
            "_OutfeedHostCallHook _TPUStopAtStepHook _add_item_to_params",
            "the parts of TPUEstimator that need no TPU"),
    *_members(f"{_UPSTREAM}.tpu.tpu_estimator", "_TPUStopAtStepHook", "_final_step _num_steps",
              "where a training ends"),
    *_members(f"{_UPSTREAM}.tpu.tpu_estimator", "TPUEstimator",
              "_ctx _export_to_cpu _export_to_tpu",
              "puts the engine between input_fn and model_fn"),
    *_names(f"{_UPSTREAM}.tpu._tpu_estimator_embedding", "_SUPPORTED_OPTIMIZERS",
            "the optimizers whose classes this package replaces"),
    *_names(f"{_UPSTREAM}.api._v1", "estimator", "the names of tf.compat.v1.estimator"),
    *_names(f"{_UPSTREAM}.api._v2", "estimator", "the names of tf.estimator"),
)

CONTRIB = (
    *_members("tensorflow.python.training.optimizer", "Optimizer",
              "_apply_dense _apply_sparse _resource_apply_dense _resource_apply_sparse "
              "_use_locking", "optimizers of tf.contrib.opt define their updates"),
    *_members("tensorflow.python.training.adam", "AdamOptimizer",
              "_beta1_t _beta2_t _epsilon_t _get_beta_accumulators _lr_t",
              "optimizers of tf.contrib.opt with the moments of Adam"),
    *_members("tensorflow.python.training.momentum", "MomentumOptimizer",
              "_learning_rate_tensor _momentum_tensor _use_nesterov",
              "tf.contrib.opt.LARSOptimizer"),
)

LOADERS = (
    *_names("tensorflow.python.util.module_wrapper", "TFModuleWrapper._tfmw_wrapped_module",
            "reads a name without logging a deprecation"),
    *_names("tensorflow.python.util.lazy_loader", "KerasLazyLoader._tfll_keras_version",
            "detects which Keras is in use without selecting one", since=(2, 16)),
)

COMPUTATIONS = (
    *_names("tensorflow.core.protobuf.tpu.topology_pb2", "TopologyProto TPUHardwareFeature",
            "the topology of the cores that this machine stands in for"),
    *_names("tensorflow.python.tpu.tpu_hardware_feature", "HardwareFeature",
            "the cores that a strategy of this machine reports"),
    *_names("tensorflow.python.framework.func_graph", "FuncGraph",
            "the body of a training loop that replicas share"),
    *_names("tensorflow.python.compiler.xla.xla", "is_flat check_function_argument_count",
            "checks arguments and outputs of tpu.replicate"),
    *_names("tensorflow.python.ops.while_v2", "while_loop",
            "a training loop of several replicas, and waiting for other workers, for either "
            "control flow version"),
    *_names("tensorflow.python.tpu.training_loop", "while_loop repeat",
            "training loops of one replica, and of a TPU"),
    *_names("tensorflow_estimator.python.estimator.tpu.tpu_estimator",
            "call_computation inference_on_tpu", "inference on a TPU that answers"),
    *_members("tensorflow_estimator.python.estimator.tpu.tpu_estimator", "_InputPipeline",
              "InputsStructureRecorder", "checks input_partition_dims as a TPU does"))

VERIFY = (
    *_names("os", "_exit", "ends a program whose step hangs, without waiting for its threads"),
    *_names("tensorflow.python.data.ops.multi_device_iterator_ops", "OwnedMultiDeviceIterator",
            "the batches of a program under a strategy"),
    *_names("tensorflow.python.distribute.distribute_utils", "value_container",
            "the variable that replicas share"),
    *_members("tensorflow.python.eager.backprop", "GradientTape", "_recording",
              "reads values without affecting a program's gradients"),
)

ALL = (GRAPHS + COLUMNS + TPU_SYSTEM + COMPUTATIONS + CHECKPOINTS + KERAS + ESTIMATOR + CONTRIB
       + LOADERS + VERIFY)
