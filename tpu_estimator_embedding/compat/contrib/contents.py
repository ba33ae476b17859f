# SPDX-License-Identifier: Apache-2.0
"""The present locations of the names of `tf.contrib`, and replacements for missing ones.

TensorFlow 2.0 removed `tf.contrib`. This module lists the parts that TPU programs used and that
this package, tf-slim or TensorFlow has under other names.
"""

import dataclasses

_OURS = "tpu_estimator_embedding.compat.contrib"
_PYTHON = "tensorflow.python"
_TPU = f"{_PYTHON}.tpu"
_V1 = "tensorflow.compat.v1"


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


_CRF = Contents(_all_in(
    f"{_OURS}.crf", "crf_binary_score", "crf_decode", "crf_log_likelihood", "crf_log_norm",
    "crf_sequence_score", "crf_unary_score", "viterbi_decode"))
_DISTRIBUTE = Contents({
    **_all_in(f"{_OURS}.distribute", "CollectiveAllReduceStrategy", "MirroredStrategy",
              "ParameterServerStrategy"),
    **_all_in(f"{_V1}.distribute", "OneDeviceStrategy", "get_replica_context",
              "has_strategy", "in_cross_replica_context"),
    "DistributionStrategy": f"{_V1}.distribute:Strategy",
    "get_distribution_strategy": f"{_V1}.distribute:get_strategy",
    "has_distribution_strategy": f"{_V1}.distribute:has_strategy",
    "TPUStrategy": f"{_V1}.distribute.experimental:TPUStrategy",
    "initialize_tpu_system": f"{_V1}.tpu.experimental:initialize_tpu_system",
    "AllReduceCrossDeviceOps": f"{_PYTHON}.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "AllReduceCrossTowerOps": f"{_PYTHON}.distribute.cross_device_ops:AllReduceCrossDeviceOps",
    "DistributeConfig": f"{_PYTHON}.distribute.distribute_config:DistributeConfig"})
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
    **_all_in(f"{_PYTHON}.framework.smart_cond", "smart_cond", "smart_constant_value"),
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
     **_all_in(f"{_V1}.nn", "safe_embedding_lookup_sparse"),
     **_all_in(_V1, "recompute_grad")},
    ("tf_slim.layers",),
    _all_in(f"{_OURS}.layers", "l1_regularizer", "l2_regularizer", "layer_norm",
            "variance_scaling_initializer", "xavier_initializer") | {
        "xavier_initializer_conv2d": f"{_OURS}.layers:xavier_initializer"})
_LEARN = {**_all_in(f"{_OURS}.learn", "ModeKeys", "RunConfig"),
          "TaskType": "tensorflow_estimator.python.estimator.run_config:TaskType"}
_LOOKUP = Contents({
    **_all_in(f"{_V1}.lookup", "KeyValueTensorInitializer", "TextFileIndex",
              "TextFileInitializer"),
    "HashTable": f"{_V1}.lookup:StaticHashTable",
    **_all_in(f"{_PYTHON}.ops.lookup_ops", "FastHashSpec", "HasherSpec",
              "IdTableWithHashBuckets", "InitializableLookupTableBase", "LookupInterface",
              "MutableDenseHashTable", "MutableHashTable", "StrongHashSpec",
              "TableInitializerBase", "TextFileIdTableInitializer",
              "TextFileStringTableInitializer", "index_table_from_file", "index_table_from_tensor",
              "index_to_string_table_from_file", "index_to_string_table_from_tensor")})
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
    "transpose_batch_time": f"{_PYTHON}.ops.rnn:_transpose_batch_time"})
_SLIM = Contents(homes=("tf_slim",))
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
    "cluster_resolver": _RESOLVERS,
    "cluster_resolver.python.training": Contents(
        {"tpu_cluster_resolver":
             f"{_PYTHON}.distribute.cluster_resolver.tpu_cluster_resolver"}, _RESOLVERS.homes),
    "compiler": Contents({"jit": f"{_PYTHON}.compiler.xla.jit",
                          "xla": f"{_PYTHON}.compiler.xla.xla"}),
    "crf": _CRF,
    "crf.python.ops.crf": _CRF,
    "data": Contents(homes=(f"{_V1}.data.experimental",)),
    "distribute": _DISTRIBUTE,
    "estimator": Contents(
        {**_all_in(f"{_OURS}.heads", "binary_classification_head", "multi_class_head",
                   "regression_head"),
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
    "framework": _FRAMEWORK,
    "framework.python.framework": _FRAMEWORK,
    "framework.python.ops": _FRAMEWORK,
    "framework.python.ops.arg_scope": _SLIM,
    "framework.python.ops.variables": _FRAMEWORK,
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
    "rnn": _RNN,
    "rnn.python.ops.core_rnn_cell": _RNN,
    "rnn.python.ops.rnn": _RNN,
    "rnn.python.ops.rnn_cell": _RNN,
    "seq2seq": Contents(_all_in(f"{_OURS}.rnn", "sequence_loss")),
    "slim": _SLIM,
    "slim.python.slim": _SLIM,
    "stateless": Contents({
        f"stateless_{name}": f"{_V1}.random:stateless_{new}" for name, new in (
            ("multinomial", "multinomial"), ("random_normal", "normal"),
            ("random_uniform", "uniform"), ("truncated_normal", "truncated_normal"))}),
    "summary": _SUMMARY,
    "summary.summary": _SUMMARY,
    "tensorboard.plugins": Contents({"projector": "tensorboard.plugins.projector"}),
    "tpu": Contents(
        {"AsyncCheckpointSaverHook": f"{_TPU}.async_checkpoint:AsyncCheckpointSaverHook",
         "TPUContext": f"{_TPU}.tpu_context:TPUContext",
         **_all_in(f"{_TPU}.training_loop", "repeat", "while_loop"),
         "device_assignment": f"{_TPU}.device_assignment:device_assignment"},
        (f"{_V1}.estimator.tpu", f"{_V1}.tpu", f"{_V1}.tpu.experimental")),
    "tpu.python.ops": Contents({"tpu_ops": f"{_TPU}.ops.tpu_ops"}),
    "tpu.python.tpu": Contents({name: f"{_TPU}.{name}" for name in (
        "async_checkpoint", "bfloat16", "device_assignment", "error_handling", "feature_column",
        "functional", "session_support", "topology", "tpu", "tpu_config", "tpu_context",
        "tpu_embedding", "tpu_embedding_gradient", "tpu_estimator", "tpu_feed", "tpu_function",
        "tpu_optimizer", "tpu_sharding", "tpu_system_metadata", "training_loop", "util")}),
    "training": _TRAINING,
    "training.python.training.evaluation": Contents(_EVALUATION, ("tf_slim.training.evaluation",)),
    "training.python.training.hparam": Contents({"HParams": f"{_OURS}.hparams:HParams"}),
    "training.python.training.training": _TRAINING,
    "util": Contents({**_all_in(_V1, "make_ndarray", "make_tensor_proto"),
                      "constant_value": f"{_V1}:get_static_value"}),
}

# Modules that a function of the same name hides in their parent; only imports find them.
HIDDEN = frozenset(("framework.python.ops.arg_scope",))

# Advice for names that no longer exist; the name of a module applies to all names in it.
INSTEAD = {
    "checkpoint": "Use tf.train.Checkpoint.",
    "cloud": "Export the data to TFRecord files, and read them with tf.data.",
    "cudnn_rnn": "Use tf.compat.v1.keras.layers.CuDNNLSTM or CuDNNGRU.",
    "data.batch_and_drop_remainder": "Use dataset.batch(batch_size, drop_remainder=True).",
    "data.padded_batch_and_drop_remainder":
        "Use dataset.padded_batch(..., drop_remainder=True).",
    "distribute": "Use tf.distribute.",
    "distributions": "Install tensorflow-probability, and use tfp.distributions.",
    "eager": "Look for the same name in tf and tf.compat.v1.",
    "estimator": "Use tf.estimator.",
    "framework": "Look for the same name in tf.compat.v1 and tf.debugging.",
    "image": "Use tf.image.",
    "layers": "Use tf.layers.",
    **{f"layers.{name}": f"Use tf.feature_column.{new}." for name, new in (
        ("bucketized_column", "bucketized_column"), ("crossed_column", "crossed_column"),
        ("embedding_column", "embedding_column"), ("one_hot_column", "indicator_column"),
        ("input_from_feature_columns", "input_layer"),
        ("real_valued_column", "numeric_column"),
        ("shared_embedding_columns", "shared_embedding_columns"),
        ("sparse_column_with_hash_bucket", "categorical_column_with_hash_bucket"),
        ("sparse_column_with_integerized_feature", "categorical_column_with_identity"),
        ("sparse_column_with_keys", "categorical_column_with_vocabulary_list"),
        ("weighted_sparse_column", "weighted_categorical_column"),
        ("weighted_sum_from_feature_columns", "linear_model"))},
    "learn": "Use tf.estimator.",
    "learn.Experiment": "Use tf.estimator.train_and_evaluate.",
    "learn.learn_runner": "Use tf.estimator.train_and_evaluate.",
    "learn.monitors": "Derive hooks from tf.train.SessionRunHook, and pass them as `hooks`.",
    "lookup": "Use tf.lookup.",
    "losses": "Use tf.losses.",
    "metrics": "Use tf.metrics.",
    "mixed_precision": "Use tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer.",
    "opt": "Use tf.train.",
    "predictor": "Use tf.saved_model.load.",
    "rnn": "Use tf.nn.rnn_cell or tf.keras.layers.",
    "seq2seq": "Unroll the decoder with tf.nn.dynamic_rnn to train it, and with tf.while_loop to "
               "infer.",
    "slim": "Use tf.layers and tf.train.",
    "training": "Use tf.data for input, and tf.train for the rest.",
    "tpu.TPUDistributionStrategy": "Use tf.distribute.experimental.TPUStrategy.",
    "tpu.keras_to_tpu_model": "Use tf.distribute.experimental.TPUStrategy.",
}

# Path below tf.contrib of a name of tf-slim -> what a program that leaves tf.contrib uses, where
# that is not in tf.layers.
WITHOUT_CONTRIB = {
    "layers.dense_to_sparse": "Use tf_slim.layers.dense_to_sparse (`pip install tf-slim`), or "
                              "tf.sparse.from_dense, which leaves out zeros."}
