# SPDX-License-Identifier: Apache-2.0
"""The present locations of the names of `tf.contrib`.

TensorFlow 2.0 removed `tf.contrib`. This module lists what this package, tf-slim or TensorFlow has
under other names. `reasons` has the other half of the table: what none of them has.
"""

import dataclasses

_OURS = "tpu_estimator_embedding.compat.contrib"
_PYTHON = "tensorflow.python"
_TPU = f"{_PYTHON}.tpu"
_V1 = "tensorflow.compat.v1"
_ESTIMATOR = "tensorflow_estimator.python.estimator"


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a module of `tf.contrib`.

    Attributes:
        names: name -> "module:attribute", or "module".
        homes: modules whose public names and submodules it shows. The first module that has a
            name provides it; modules of packages that are not installed are skipped.
        otherwise: like `names`, for names that none of the homes has.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    homes: tuple[str, ...] = ()
    otherwise: dict[str, str] = dataclasses.field(default_factory=dict)


def _all_in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


_AUTOGRAPH = f"{_PYTHON}.autograph"
_CRF = Contents(_all_in(
    f"{_OURS}.crf", "crf_binary_score", "crf_decode", "crf_log_likelihood", "crf_log_norm",
    "crf_sequence_score", "crf_unary_score", "viterbi_decode"))
_DATA = {
    **_all_in(f"{_OURS}.data", "assert_element_shape", "batch_and_drop_remainder",
              "padded_batch_and_drop_remainder", "sliding_window_batch", "sloppy_interleave")}
_DISTRIBUTE = Contents({
    **_all_in(f"{_OURS}.distribute", "CollectiveAllReduceStrategy", "MirroredStrategy",
              "ParameterServerStrategy"),
    **_all_in(f"{_V1}.distribute", "OneDeviceStrategy", "get_replica_context",
              "get_loss_reduction", "get_strategy", "has_strategy", "in_cross_replica_context",
              "CrossDeviceOps", "ReplicaContext"),
    **_all_in(f"{_PYTHON}.distribute.distribute_lib", "UpdateContext",
              "get_cross_replica_context", "require_replica_context"),
    **_all_in(f"{_PYTHON}.distribute.step_fn", "StandardInputStep", "StandardSingleLossStep",
              "Step"),
    **_all_in(f"{_PYTHON}.distribute.distribute_coordinator", "run_standard_tensorflow_server"),
    "DistributionStrategyExtended": f"{_V1}.distribute:StrategyExtended",
    "ReductionToOneDeviceCrossDeviceOps": f"{_V1}.distribute:ReductionToOneDevice",
    "DistributionStrategy": f"{_V1}.distribute:Strategy",
    "get_distribution_strategy": f"{_V1}.distribute:get_strategy",
    "has_distribution_strategy": f"{_V1}.distribute:has_strategy",
    "TPUStrategy": f"{_V1}.distribute.experimental:TPUStrategy",
    "initialize_tpu_system": f"{_V1}.tpu.experimental:initialize_tpu_system",
    "AllReduceCrossDeviceOps": f"{_PYTHON}.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "AllReduceCrossTowerOps": f"{_PYTHON}.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "DistributeConfig": f"{_PYTHON}.distribute.distribute_config:DistributeConfig"})
_DISTRIBUTIONS = Contents(
    {name: f"{_PYTHON}.ops.distributions.{module}:{name}" for module, names in (
        ("beta", "BetaWithSoftplusConcentration"), ("exponential", "ExponentialWithSoftplusRate"),
        ("gamma", "GammaWithSoftplusConcentrationRate"), ("laplace", "LaplaceWithSoftplusScale"),
        ("normal", "NormalWithSoftplusScale"), ("student_t", "StudentTWithAbsDfSoftplusScale"),
        ("util", "fill_triangular fill_triangular_inverse matrix_diag_transform softplus_inverse "
                 "reduce_weighted_logsumexp tridiag")) for name in names.split()},
    (f"{_V1}.distributions",))
_EAGER = Contents({
    **_all_in(_V1, "GradientTape", "TensorSpec", "custom_gradient", "enable_eager_execution",
              "executing_eagerly", "function", "make_template"),
    **_all_in(f"{_V1}.train", "Checkpoint"),
    **_all_in(f"{_PYTHON}.eager.backprop", "gradients_function"),
    **_all_in(f"{_PYTHON}.eager.context", "ASYNC", "DEVICE_PLACEMENT_EXPLICIT",
              "DEVICE_PLACEMENT_SILENT", "DEVICE_PLACEMENT_WARN", "SYNC", "async_clear_error",
              "async_wait", "execution_mode", "num_gpus", "set_execution_mode", "set_server_def"),
    "Checkpointable": f"{_PYTHON}.trackable.autotrackable:AutoTrackable",
    "EagerVariableStore": f"{_PYTHON}.ops.variable_scope:EagerVariableStore",
    "Variable": f"{_PYTHON}.ops.resource_variable_ops:ResourceVariable",
    "connect_to_remote_host": f"{_V1}.config:experimental_connect_to_host",
    "defun": f"{_V1}:function",
    "implicit_gradients": f"{_PYTHON}.eager.backprop:implicit_grad",
    "implicit_value_and_gradients": f"{_PYTHON}.eager.backprop:implicit_val_and_grad",
    "in_eager_mode": f"{_V1}:executing_eagerly",
    "list_devices": f"{_V1}.config:list_logical_devices",
    "py_func": f"{_V1}:py_function",
    "run_all_tests_in_graph_and_eager_modes":
        f"{_PYTHON}.framework.test_util:run_all_in_graph_and_eager_modes",
    "run_test_in_graph_and_eager_modes":
        f"{_PYTHON}.framework.test_util:run_in_graph_and_eager_modes",
    "value_and_gradients_function": f"{_PYTHON}.eager.backprop:val_and_grad_function"})
_EVALUATION = {
    **_all_in(f"{_PYTHON}.training.checkpoint_utils", "checkpoints_iterator",
              "wait_for_new_checkpoint"),
    **{name: f"{_PYTHON}.training.evaluation:_{name}" for name in (
        "evaluate_once", "get_or_create_eval_step", "StopAfterNEvalsHook")}}
_FRAMEWORK = Contents({
    **_all_in(f"{_V1}.train", "assert_global_step", "create_global_step", "get_global_step",
              "get_or_create_global_step", "init_from_checkpoint", "list_variables",
              "load_checkpoint", "load_variable"),
    **_all_in(f"{_OURS}.restoring", "assign_from_checkpoint_fn", "get_variables_to_restore"),
    **_all_in(f"{_V1}.debugging", "assert_same_float_dtype", "assert_scalar",
              "is_non_decreasing", "is_numeric_tensor", "is_strictly_increasing"),
    **_all_in(f"{_PYTHON}.util.deprecation", "deprecated", "deprecated_arg_values",
              "deprecated_args"),
    **_all_in(f"{_PYTHON}.framework.ops", "get_name_scope", "prepend_name_scope",
              "strip_name_scope"),
    **_all_in(f"{_PYTHON}.framework.smart_cond", "smart_case", "smart_cond",
              "smart_constant_value"),
    **_all_in(f"{_PYTHON}.ops.init_ops", "convolutional_delta_orthogonal",
              "convolutional_orthogonal_1d", "convolutional_orthogonal_2d",
              "convolutional_orthogonal_3d"),
    **_all_in(f"{_PYTHON}.ops.data_flow_ops", "RecordInput"),
    **_all_in(f"{_PYTHON}.ops.confusion_matrix", "remove_squeezable_dimensions"),
    **{name: f"{_PYTHON}.training.checkpoint_ops:_{name}" for name in (
        "load_and_remap_matrix_initializer", "load_embedding_initializer")},
    **_all_in(_V1, "CriticalSection", "TensorSpec", "argsort",
              "convert_to_tensor_or_sparse_tensor", "is_tensor", "py_func", "sort"),
    "nest": f"{_PYTHON}.util.nest",
    "BoundedTensorSpec": f"{_PYTHON}.framework.tensor_spec:BoundedTensorSpec"},
    ("tf_slim", "tf_slim.ops.framework_ops"))
_IMAGE = Contents(_all_in(
    f"{_OURS}.image", "angles_to_projective_transforms", "compose_transforms",
    "flat_transforms_to_matrices", "matrices_to_flat_transforms", "rotate", "transform",
    "translate", "translations_to_projective_transforms"))
_LAYERS = Contents(
    {**_all_in(f"{_OURS}.layers", "bow_encoder", "embed_sequence", "embedding_lookup_unique"),
     **_all_in(f"{_OURS}.columns", "embedding_column", "input_from_feature_columns",
               "one_hot_column", "real_valued_column", "shared_embedding_columns",
               "sparse_column_with_hash_bucket", "sparse_column_with_integerized_feature",
               "sparse_column_with_keys", "sparse_column_with_vocabulary_file",
               "weighted_sparse_column"),
     **_all_in(f"{_V1}.feature_column", "bucketized_column", "crossed_column"),
     "create_feature_spec_for_parsing": f"{_V1}.feature_column:make_parse_example_spec",
     **_all_in(f"{_V1}.nn", "safe_embedding_lookup_sparse"),
     **_all_in(_V1, "recompute_grad")},
    ("tf_slim.layers",),
    _all_in(f"{_OURS}.layers", "l1_regularizer", "l2_regularizer", "layer_norm",
            "variance_scaling_initializer", "xavier_initializer") | {
        "xavier_initializer_conv2d": f"{_OURS}.layers:xavier_initializer"})
_LEARN = {**_all_in(f"{_OURS}.learn", "ModeKeys", "RunConfig"),
          **_all_in(f"{_OURS}.experiment", "Experiment"),
          **_all_in(f"{_V1}.estimator.experimental", "KMeans"),
          **_all_in(f"{_V1}.train", "NanLossDuringTrainingError"),
          "KMeansClustering": f"{_V1}.estimator.experimental:KMeans",
          "TaskType": f"{_ESTIMATOR}.run_config:TaskType",
          "learn_runner": f"{_OURS}.learn_runner"}
_LOOKUP = Contents({
    **_all_in(f"{_V1}.lookup", "KeyValueTensorInitializer", "TextFileIndex",
              "TextFileInitializer"),
    **_all_in(f"{_OURS}.lookup", "HashTable", "index_table_from_tensor", "index_to_string",
              "index_to_string_table_from_tensor", "string_to_index"),
    "string_to_index_table_from_file": f"{_PYTHON}.ops.lookup_ops:index_table_from_file",
    "string_to_index_table_from_tensor": f"{_OURS}.lookup:index_table_from_tensor",
    **_all_in(f"{_PYTHON}.ops.lookup_ops", "FastHashSpec", "HasherSpec",
              "IdTableWithHashBuckets", "InitializableLookupTableBase", "LookupInterface",
              "MutableDenseHashTable", "MutableHashTable", "StrongHashSpec",
              "TableInitializerBase", "TextFileIdTableInitializer",
              "TextFileStringTableInitializer", "index_table_from_file",
              "index_to_string_table_from_file")})
_METRICS = Contents({
    **_all_in(f"{_V1}.math", "confusion_matrix"),
    **{f"set_{name}": f"{_V1}.sets:{name}" for name in (
        "difference", "intersection", "size", "union")}}, ("tf_slim.metrics",))
_OPT = Contents(_all_in(
    f"{_OURS}.optimizers", "AdamWOptimizer", "DecoupledWeightDecayExtension", "LARSOptimizer",
    "LazyAdamOptimizer", "MomentumWOptimizer", "MovingAverageOptimizer", "NadamOptimizer",
    "extend_with_decoupled_weight_decay"))
_RESOLVERS = Contents(homes=(f"{_V1}.distribute.cluster_resolver",))
_RNN = Contents({
    **_all_in(f"{_V1}.nn.rnn_cell", "BasicLSTMCell", "BasicRNNCell", "DeviceWrapper",
              "DropoutWrapper", "GRUCell", "LSTMCell", "LSTMStateTuple", "MultiRNNCell", "RNNCell",
              "ResidualWrapper"),
    **_all_in(f"{_V1}.nn", "bidirectional_dynamic_rnn", "dynamic_rnn", "static_bidirectional_rnn",
              "static_rnn", "static_state_saving_rnn"),
    **_all_in(f"{_OURS}.rnn", "LSTMBlockCell", "LayerNormBasicLSTMCell",
              "stack_bidirectional_dynamic_rnn"),
    **_all_in(f"{_OURS}.fused_rnn", "FusedRNNCell", "FusedRNNCellAdaptor", "LSTMBlockFusedCell",
              "LayerRNNCell", "TimeReversedFusedRNN"),
    "best_effort_input_batch_size": f"{_PYTHON}.ops.rnn:_best_effort_input_batch_size",
    "transpose_batch_time": f"{_PYTHON}.ops.rnn:_transpose_batch_time"})
_SLIM = Contents(homes=("tf_slim",), otherwise=_LAYERS.names)
_SUMMARY = Contents({
    **_all_in(f"{_PYTHON}.ops.summary_ops_v2", "always_record_summaries", "audio",
              "create_file_writer", "create_summary_file_writer", "eval_dir", "flush",
              "generic", "graph", "histogram", "image", "import_event", "initialize",
              "never_record_summaries", "record_summaries_every_n_global_steps", "scalar",
              "should_record_summaries", "summary_writer_initializer_op", "SummaryWriter"),
    "all_summary_ops": f"{_PYTHON}.ops.summary_ops_v2:all_v2_summary_ops"})
_TRAINING = Contents(
    {"HParams": f"{_OURS}.hparams:HParams", **_EVALUATION},
    ("tf_slim.training.training", "tf_slim.training.evaluation"))

CONTENTS = {
    "all_reduce": Contents(homes=(f"{_PYTHON}.distribute.v1.all_reduce",)),
    "all_reduce.python": Contents({"all_reduce": f"{_PYTHON}.distribute.v1.all_reduce"}),
    "autograph": Contents({
        **_all_in(f"{_AUTOGRAPH}.impl.api", "AutoGraphError", "StackTraceMapper", "convert",
                  "converted_call", "do_not_convert", "to_code", "to_graph"),
        **_all_in(f"{_AUTOGRAPH}.core.converter", "ConversionOptions", "Feature"),
        **_all_in(f"{_AUTOGRAPH}.lang.directives", "set_element_type", "set_loop_options"),
        "ag_logging": f"{_AUTOGRAPH}.utils.ag_logging", "operators": f"{_AUTOGRAPH}.operators",
        "stack": f"{_V1}:stack", "utils": f"{_AUTOGRAPH}.utils"}),
    "batching": Contents(_all_in(f"{_PYTHON}.ops.batch_ops", "batch_function")),
    "checkpoint": Contents({
        **_all_in(f"{_V1}.train", "CheckpointManager"),
        **_all_in(f"{_PYTHON}.trackable.data_structures", "List", "Mapping", "NoDependency"),
        **_all_in(f"{_PYTHON}.checkpoint.checkpoint", "capture_dependencies", "list_objects",
                  "object_metadata"),
        "Checkpointable": f"{_PYTHON}.trackable.autotrackable:AutoTrackable",
        "CheckpointableBase": f"{_PYTHON}.trackable.base:Trackable"}),
    "cluster_resolver": Contents(
        _all_in(f"{_PYTHON}.distribute.cluster_resolver.cluster_resolver", "UnionClusterResolver"),
        _RESOLVERS.homes),
    "cluster_resolver.python.training": Contents(
        {"tpu_cluster_resolver":
             f"{_PYTHON}.distribute.cluster_resolver.tpu_cluster_resolver"}, _RESOLVERS.homes),
    "compiler": Contents({"jit": f"{_PYTHON}.compiler.xla.jit",
                          "xla": f"{_PYTHON}.compiler.xla.xla"}),
    "crf": _CRF,
    "crf.python.ops.crf": _CRF,
    "ctc": Contents(_all_in(f"{_V1}.nn", "ctc_beam_search_decoder", "ctc_greedy_decoder",
                            "ctc_loss")),
    "data": Contents(_DATA, (f"{_V1}.data.experimental",)),
    "deprecated": Contents(_all_in(
        f"{_PYTHON}.ops.logging_ops", "audio_summary", "histogram_summary", "image_summary",
        "merge_all_summaries", "merge_summary", "scalar_summary")),
    "distribute": _DISTRIBUTE,
    "distribute.python": Contents({name: f"{_PYTHON}.distribute.{name}" for name in (
        "cross_device_ops", "cross_device_utils", "input_lib", "step_fn", "values")} | {
            "cross_tower_ops": f"{_PYTHON}.distribute.cross_device_ops"}),
    "distributions": _DISTRIBUTIONS,
    "distributions.python.ops": _DISTRIBUTIONS,
    "eager": _EAGER,
    "eager.python.tfe": _EAGER,
    "estimator": Contents(
        {**_all_in(f"{_OURS}.heads", "binary_classification_head", "logistic_regression_head",
                   "multi_class_head", "poisson_regression_head", "regression_head"),
         **_all_in(f"{_OURS}.exports", "export_all_saved_models", "export_saved_model_for_mode"),
         **_all_in(f"{_V1}.estimator", "BaselineEstimator", "DNNEstimator",
                   "DNNLinearCombinedEstimator", "LinearEstimator"),
         **_all_in(f"{_ESTIMATOR}.canned.saved_model_estimator", "SavedModelEstimator"),
         **_all_in(f"{_ESTIMATOR}.early_stopping", "read_eval_metrics"),
         **_all_in(f"{_ESTIMATOR}.export.export",
                   "build_supervised_input_receiver_fn_from_input_fn"),
         **_all_in("tpu_estimator_embedding.estimator.extenders", "clip_gradients_by_norm",
                   "forward_features"),
         "add_metrics": f"{_V1}.estimator:add_metrics"},
        (f"{_V1}.estimator.experimental",)),
    "feature_column": Contents({
        **_all_in(f"{_V1}.feature_column", "sequence_categorical_column_with_hash_bucket",
                  "sequence_categorical_column_with_identity",
                  "sequence_categorical_column_with_vocabulary_file",
                  "sequence_categorical_column_with_vocabulary_list", "sequence_numeric_column"),
        **_all_in(f"{_OURS}.feature_column", "sequence_input_layer")}),
    "factorization": Contents(
        {"KMeansClustering": f"{_V1}.estimator.experimental:KMeans",
         **_all_in(f"{_PYTHON}.ops.clustering_ops", "COSINE_DISTANCE", "KMEANS_PLUS_PLUS_INIT",
                   "KMeans", "RANDOM_INIT", "SQUARED_EUCLIDEAN_DISTANCE")}),
    "framework": _FRAMEWORK,
    "framework.python.framework": Contents(
        {**_FRAMEWORK.names, "tensor_util": f"{_PYTHON}.framework.tensor_util"}, _FRAMEWORK.homes),
    "framework.python.ops": _FRAMEWORK,
    "framework.python.ops.arg_scope": _SLIM,
    "framework.python.ops.variables": _FRAMEWORK,
    "gan": Contents(homes=("tensorflow_gan",)),
    "hooks": Contents(_all_in(f"{_V1}.train", "ProfilerHook")),
    "image": _IMAGE,
    "image.python.ops.image_ops": _IMAGE,
    "keras": Contents(homes=(f"{_V1}.keras",)),
    "layers": _LAYERS,
    "layers.python.layers": _LAYERS,
    "layers.python.layers.initializers": _LAYERS,
    "layers.python.layers.layers": _LAYERS,
    "layers.python.layers.optimizers": _LAYERS,
    "layers.python.layers.regularizers": _LAYERS,
    "learn": Contents(_LEARN),
    "learn.monitors": Contents(_all_in(f"{_OURS}.learn", "replace_monitors_with_hooks")),
    "learn.python.learn": Contents(_LEARN),
    "learn.python.learn.learn_runner": Contents(_all_in(f"{_OURS}.learn_runner", "run", "tune")),
    "legacy_seq2seq": Contents(_all_in(f"{_OURS}.seq2seq", "sequence_loss",
                                       "sequence_loss_by_example")),
    "linalg": Contents(homes=(f"{_V1}.linalg",)),
    "learn.python.learn.estimators.run_config": Contents(_LEARN),
    "learn.python.learn.monitors": Contents(
        _all_in(f"{_OURS}.learn", "replace_monitors_with_hooks")),
    "lookup": _LOOKUP,
    "lookup.lookup_ops": _LOOKUP,
    "losses": Contents(homes=("tf_slim.losses",)),
    "metrics": _METRICS,
    "metrics.python.ops.metric_ops": _METRICS,
    "nn": Contents({**_all_in(f"{_PYTHON}.ops.nn_ops", "nth_element"),
                    **_all_in(f"{_V1}.nn", "conv1d_transpose")}),
    "opt": _OPT,
    "opt.python.training.lazy_adam_optimizer": _OPT,
    "opt.python.training.moving_average_optimizer": _OPT,
    "opt.python.training.weight_decay_optimizers": _OPT,
    "predictor": Contents(_all_in(f"{_OURS}.predictor", "from_estimator", "from_saved_model")),
    "proto": Contents(_all_in(f"{_V1}.io", "decode_proto", "encode_proto")),
    "quantization": Contents(
        _all_in(f"{_V1}.quantization", "dequantize", "quantized_concat"), (f"{_V1}.raw_ops",)),
    "recurrent": Contents(_all_in(f"{_OURS}.fused_rnn", "bidirectional_functional_rnn",
                                  "functional_rnn")),
    "rnn": _RNN,
    "rnn.python.ops.core_rnn_cell": _RNN,
    "rnn.python.ops.rnn": _RNN,
    "rnn.python.ops.rnn_cell": _RNN,
    "seq2seq": Contents({**_all_in(f"{_OURS}.rnn", "sequence_loss"),
                         **_all_in(f"{_OURS}.seq2seq", "gather_tree", "hardmax", "tile_batch")}),
    "signal": Contents(homes=(f"{_V1}.signal",)),
    "slim": _SLIM,
    "slim.python.slim": _SLIM,
    "sparsemax": Contents(_all_in(f"{_OURS}.sparsemax", "sparsemax", "sparsemax_loss")),
    "staging": Contents(_all_in(f"{_PYTHON}.ops.data_flow_ops", "StagingArea")),
    "stateless": Contents({
        f"stateless_{name}": f"{_V1}.random:stateless_{new}" for name, new in (
            ("multinomial", "multinomial"), ("random_normal", "normal"),
            ("random_uniform", "uniform"), ("truncated_normal", "truncated_normal"))}),
    "summary": _SUMMARY,
    "summary.summary": _SUMMARY,
    "tensorboard.plugins": Contents({"projector": "tensorboard.plugins.projector"}),
    "tensorrt": Contents(_all_in(f"{_PYTHON}.compiler.tensorrt.trt_convert",
                                 "create_inference_graph")),
    "testing": Contents(_all_in(f"{_ESTIMATOR}.hooks.fake_summary_writer", "FakeSummaryWriter")),
    "tfprof": Contents({"model_analyzer": f"{_PYTHON}.profiler.model_analyzer",
                        "tfprof_logger": f"{_PYTHON}.profiler.tfprof_logger"}),
    "tpu": Contents(
        {"AsyncCheckpointSaverHook": f"{_TPU}.async_checkpoint:AsyncCheckpointSaverHook",
         "TPUContext": f"{_TPU}.tpu_context:TPUContext",
         **_all_in(f"{_TPU}.training_loop", "repeat", "while_loop"),
         "device_assignment": f"{_TPU}.device_assignment:device_assignment",
         **_all_in(f"{_TPU}.tpu_feed", "InfeedQueue"),
         **_all_in(f"{_TPU}.ops.tpu_ops", "infeed_dequeue", "infeed_dequeue_tuple",
                   "infeed_enqueue", "infeed_enqueue_tuple", "outfeed_dequeue",
                   "outfeed_dequeue_tuple", "outfeed_enqueue", "outfeed_enqueue_tuple"),
         **_all_in(f"{_OURS}.exports", "export_estimator_savedmodel"),
         "TPUInMemoryEvalHook": f"{_V1}.estimator.experimental:InMemoryEvaluatorHook"},
        (f"{_V1}.estimator.tpu", f"{_V1}.tpu", f"{_V1}.tpu.experimental")),
    "tpu.proto": Contents({
        name: f"tensorflow.core.protobuf.tpu.{name}" for name in (
            "compilation_result_pb2", "dynamic_padding_pb2", "optimization_parameters_pb2",
            "topology_pb2", "tpu_embedding_configuration_pb2")}),
    "tpu.python.ops": Contents({"tpu_ops": f"{_TPU}.ops.tpu_ops"}),
    "tpu.python.tpu": Contents({name: f"{_TPU}.{name}" for name in (
        "async_checkpoint", "bfloat16", "datasets", "device_assignment", "error_handling",
        "feature_column", "functional", "session_support", "tensor_tracer", "topology", "tpu",
        "tpu_config", "tpu_context",
        "tpu_embedding", "tpu_embedding_gradient", "tpu_estimator", "tpu_feed", "tpu_function",
        "tpu_optimizer", "tpu_sharding", "tpu_system_metadata", "training_loop", "util")}),
    "training": _TRAINING,
    "training.python.training.evaluation": Contents(_EVALUATION, ("tf_slim.training.evaluation",)),
    "training.python.training.hparam": Contents({"HParams": f"{_OURS}.hparams:HParams"}),
    "training.python.training.training": _TRAINING,
    "util": Contents({**_all_in(f"{_PYTHON}.framework.meta_graph", "ops_used_by_graph_def",
                                "stripped_op_list_for_graph"),
                      **_all_in(_V1, "make_ndarray", "make_tensor_proto"),
                      "constant_value": f"{_V1}:get_static_value"}),
}

# Modules in which 1.15 defined public names that exist. Each shows all of its part of `tf.contrib`.
for _folder, _modules in (
        ("data.python.ops", "batching counter enumerate_ops error_ops get_single_element grouping "
         "interleave_ops iterator_ops parsing_ops prefetching_ops random_ops readers resampling "
         "scan_ops shuffle_ops sliding unique writers"),
        ("distribute.python", "collective_all_reduce_strategy mirrored_strategy "
         "parameter_server_strategy"),
        ("factorization.python.ops", "clustering_ops kmeans"),
        ("feature_column.python.feature_column", "sequence_feature_column"),
        ("framework.python.framework", "checkpoint_utils"),
        ("framework.python.ops", "ops script_ops"),
        ("layers.python.layers", "embedding_ops encoders feature_column normalization "
         "rev_block_lib summaries"),
        ("learn.python.learn", "experiment"),
        ("learn.python.learn.estimators", "kmeans model_fn"),
        ("losses.python.losses", "loss_ops"),
        ("losses.python.metric_learning", "metric_loss_ops"),
        ("metrics.python.metrics", "classification"),
        ("metrics.python.ops", "confusion_matrix_ops histogram_ops"),
        ("opt.python.training", "lars_optimizer nadam_optimizer"),
        ("predictor", "predictor_factories"),
        ("recurrent.python.ops", "functional_rnn"),
        ("rnn.python.ops", "fused_rnn_cell lstm_ops"),
        ("seq2seq.python.ops", "loss"),
        ("sparsemax.python.ops", "sparsemax sparsemax_loss"),
        ("tensorrt.python", "trt_convert"),
        ("testing.python.framework", "fake_summary_writer")):
    CONTENTS.update({f"{_folder}.{_module}": CONTENTS[_folder.partition(".")[0]]
                     for _module in _modules.split()})

# Modules that a function of the same name hides in their parent; only imports find them.
HIDDEN = frozenset(("framework.python.ops.arg_scope",))
