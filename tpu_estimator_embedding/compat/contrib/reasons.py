# SPDX-License-Identifier: Apache-2.0
"""Why names of `tf.contrib` no longer exist, and what a program uses in their place.

The other half of the table in `contents`: a name stands in one of them. A row of a module holds for
all of its names that have no row; `*` stands for any ending.
"""

import fnmatch

BOOSTED_TREES = ("No release of tensorflow_estimator since 2.9 has boosted trees. Use XGBoost, "
                 "LightGBM or tensorflow-decision-forests.")
_NONE = "TensorFlow no longer has an equivalent."
_TFP = "Install tensorflow-probability, and use"
_TFIO = "Install tensorflow-io, or read the data in Python through tf.data.Dataset.from_generator."
_QUEUES = "Use tf.data for input; it replaced queues."
_COLUMNS = "Use the columns of tf.feature_column, which tf.estimator takes."
_FIT = ("It differs from that of contrib.learn: `train` and `evaluate` take an input_fn where "
        "`fit` took x and y, and model_fn returns an EstimatorSpec.")
_CELL = ("No current package has this cell. Keep its class in the program, derived from "
         "tf.nn.rnn_cell.RNNCell, or use a cell of tf.nn.rnn_cell.")
_OPTIMIZER = ("No current package has this optimizer. Keep its class in the program, derived from "
              "tf.train.Optimizer, or use one of tf.train.")
_ATTENTION = ("Unroll the decoder with tf.nn.dynamic_rnn to train it, and with tf.while_loop to "
              "infer; tf.keras.layers has AdditiveAttention (Bahdanau) and Attention (Luong).")
_CUDNN = ("Use tf.compat.v1.keras.layers.CuDNNLSTM or CuDNNGRU. Their variables have other names "
          "and shapes than its opaque buffer, so checkpoints must be converted.")
_PRUNING = "Install tensorflow-model-optimization, whose tfmot.sparsity.keras prunes Keras models."


def _each(module: str, names: str, reason: str) -> dict[str, str]:
    return {f"{module}.{name}": reason for name in names.split()}


# Path of a module or a name below `tf.contrib`, or a pattern -> reason and advice.
INSTEAD = {
    "all_reduce": "Use tf.distribute.",
    "autograph": "Use tf.autograph.",
    "batching": "Use tf.nondifferentiable_batch_function, or batch with tf.data.",
    "bayesflow": f"{_TFP} tfp.mcmc and tfp.monte_carlo.",
    "bigtable": "Read the data with the client google-cloud-bigtable, through "
                "tf.data.Dataset.from_generator, or export them to TFRecord files.",
    "boosted_trees": BOOSTED_TREES,
    "checkpoint": "Use tf.train.Checkpoint.",
    "checkpoint.dot_graph_from_checkpoint": "Use tf.train.list_variables to look into it.",
    "cloud": "Export the data to TFRecord files, and read them with tf.data; files on Google Cloud "
             "Storage have names that begin with gs://.",
    "cloud.BigQueryReader": "Read the data with the client google-cloud-bigquery, through "
                            "tf.data.Dataset.from_generator, or export them to TFRecord files.",
    **_each("cloud", "BlockCacheParams ConfigureGcsHook configure_colab_session configure_gcs",
            "Set the variables of the environment that TensorFlow reads: GCS_READ_CACHE_* for the "
            "cache, GOOGLE_APPLICATION_CREDENTIALS for the account."),
    "cmake": "It contained no Python code.",
    "compiler": "Use tf.function(jit_compile=True).",
    "constrained_optimization": "Install tensorflow-constrained-optimization, which continues it.",
    "copy_graph": "Use tf.graph_util.import_graph_def, with the `as_graph_def` of the other graph.",
    "crf": "Only the functions of crf exist today; write the forward recursion with tf.scan.",
    "cudnn_rnn": _CUDNN,
    "data": "Use tf.data.",
    "data.CheckpointInputPipelineHook": "TensorFlow removed it. Skip what was read with "
                                        "dataset.skip, or use tf.train.Checkpoint(iterator=...).",
    "data.LMDBDataset": "Read the file with the package lmdb, through "
                        "tf.data.Dataset.from_generator.",
    **_each("data", "StatsAggregator latency_stats set_stats_aggregator",
            "TensorFlow removed the statistics of pipelines; profile with tf.profiler."),
    "data.read_batch_features": "Use tf.data.experimental.make_batched_features_dataset.",
    "data.reduce_dataset": "Use dataset.reduce(initial, function).",
    "decision_trees": "It held protocol buffers only. Use tensorflow-decision-forests.",
    "distribute": "Use tf.distribute.",
    "distribute.MultiWorkerAllReduce": "Use tf.distribute.MultiWorkerMirroredStrategy.",
    "distribute.Monitor": "Call the step in a loop, in a tf.train.MonitoredSession.",
    "distributions": f"{_TFP} tfp.distributions, which has it under the same name or without its "
                     "suffix.",
    "distributions.bijectors": f"{_TFP} tfp.bijectors.",
    **_each("distributions", "quadrature_scheme_* normal_conjugates_* assign_* "
            "moving_mean_variance percentile auto_correlation",
            f"{_TFP} tfp.stats, tfp.math and tfp.distributions."),
    "eager": "Look for the same name in tf and tf.compat.v1.",
    "eager.enable_remote_eager_execution": "Use tf.config.experimental_connect_to_host.",
    "eager.get_optimizer_variables": "Use optimizer.variables().",
    "eager.run": "Call tf.enable_eager_execution() and tf.app.run().",
    "eager.Iterator": "Iterate over the dataset itself.",
    "eager.metrics": "Use tf.keras.metrics.",
    **_each("eager", "Network Sequential save_network_checkpoint restore_network_checkpoint",
            "Derive from tf.keras.Model, which saves its weights itself."),
    **_each("eager", "Saver restore_variables_on_create", "Use tf.train.Checkpoint."),
    **_each("eager", "ExecutionCallback add_execution_callback clear_execution_callbacks errstate "
            "inf_callback inf_nan_callback nan_callback seterr",
            "Use tf.debugging.enable_check_numerics."),
    "estimator": "Use tf.estimator.",
    "estimator.DNN*WithLayerAnnotations": "Use tf.estimator.DNNClassifier or DNNRegressor; the "
                                          "annotations no longer have an effect.",
    "estimator.RNN*": "Use tf.estimator.experimental.RNNClassifier or RNNEstimator of "
                      "tf.compat.v2, whose argument `units` was `num_units`.",
    "estimator.boosted_trees_*": BOOSTED_TREES,
    "estimator.multi_head": "Use tf.estimator.MultiHead, over tf.estimator.RegressionHead and the "
                            "like.",
    "estimator.multi_label_head": "Use tf.estimator.MultiLabelHead.",
    **_each("estimator", "replicate_model_fn TowerOptimizer GatheringMode",
            "Pass tf.distribute.MirroredStrategy() as `train_distribute` of tf.estimator.RunConfig "
            "instead of replicating the model_fn."),
    "factorization": "Keep the iterations in the program, or use scikit-learn.",
    **_each("factorization", "GMM GmmAlgorithm gmm",
            f"{_TFP} tfp.distributions.MixtureSameFamily, or sklearn.mixture.GaussianMixture."),
    "factorization.WALS*": "No current package has it for TensorFlow. Use the package implicit, "
                           "or train two embedding tables with a squared loss.",
    "feature_column": "Use tf.feature_column.",
    "ffmpeg": "Use tf.audio.decode_wav and encode_wav, or call ffmpeg before training.",
    "framework": "Look for the same name in tf.compat.v1 and tf.debugging.",
    "framework.assert_scalar_int": "Use tf.debugging.assert_scalar and assert_integer.",
    "framework.fuse_op": "Use tf.function(jit_compile=True), which fuses ops.",
    "framework.get_placeholders": "Collect the ops of type Placeholder from "
                                  "graph.get_operations().",
    "framework.load_linear_multiclass_bias_initializer":
        "Use tf.train.load_variable, and reorder its elements.",
    "framework.load_variable_slot_initializer": "Use tf.train.load_variable.",
    "framework.reduce_sum_n": "Use tf.add_n([tf.reduce_sum(tensor) for tensor in tensors]).",
    **_each("framework", "with_same_shape with_shape", "Use tf.ensure_shape."),
    "framework.zero_initializer": "Use tf.zeros_initializer.",
    "fused_conv": "Use tf.nn.conv2d, tf.nn.bias_add and tf.nn.relu, which TensorFlow fuses.",
    "gan": "Install tensorflow-gan, its successor, to which tf.contrib.gan then refers.",
    "graph_editor": "No current package edits graphs in place. Edit graph.as_graph_def(), and "
                    "import it with tf.graph_util.import_graph_def(..., input_map=...).",
    "grid_rnn": _CELL,
    "hadoop": _TFIO,
    "hooks": "Use tf.train, which has the hooks.",
    "ignite": _TFIO,
    "image": "Use tf.image.",
    **_each("image", "bipartite_match connected_components dense_image_warp interpolate_spline "
            "single_image_random_dot_stereograms sparse_image_warp",
            "TensorFlow no longer has an equivalent; SciPy has "
            "scipy.optimize.linear_sum_assignment, scipy.ndimage.label and map_coordinates, to be "
            "called through tf.numpy_function."),
    **_each("image", "adjust_yiq_hsv random_yiq_hsv",
            "Use tf.image.adjust_hue and adjust_saturation, or random_hue and random_saturation."),
    "input_pipeline": _QUEUES,
    "integrate": f"{_TFP} tfp.math.ode.",
    "kafka": _TFIO,
    "keras": "Use tf.keras.",
    "keras.wrappers": "Install scikeras, which continues the wrappers for scikit-learn.",
    "kernel_methods": "Use tf.keras.layers.experimental.RandomFourierFeatures, and "
                      "tf.estimator.LinearClassifier.",
    "kinesis": _TFIO,
    "labeled_tensor": "No current package has named axes for TensorFlow; keep track of the axes of "
                      "plain tensors yourself.",
    "layers": "Use tf.layers.",
    **{name: reason for module in ("layers", "slim") for name, reason in {
        **_each(module, "feature_column infer_real_valued_columns make_place_holder_* "
                "check_feature_columns multi_class_target regression_target *_from_examples "
                "scattered_embedding_column sequence_input_from_feature_columns "
                "transform_features *from_sequence_examples SPARSE_FEATURE_CROSS_*", _COLUMNS),
        **_each(module, "*weighted_sum_from_feature_columns",
                "Use tf.feature_column.linear_model, which returns the sum only.")}.items()},
    "learn": "Use tf.estimator.",
    **_each("learn", "BaseEstimator Estimator Evaluable Trainable",
            f"Use tf.estimator.Estimator. {_FIT}"),
    **{f"learn.{name}": f"Use tf.estimator.{name}. {_FIT}" for name in (
        "DNNClassifier", "DNNEstimator", "DNNLinearCombinedClassifier", "DNNRegressor",
        "DNNLinearCombinedEstimator", "DNNLinearCombinedRegressor", "LinearClassifier",
        "LinearEstimator", "LinearRegressor")},
    "learn.LogisticRegressor": f"Use tf.estimator.LinearClassifier. {_FIT}",
    **_each("learn", "DynamicRnnEstimator StateSavingRnnEstimator",
            "Use tf.estimator.experimental.RNNEstimator of tf.compat.v2."),
    **_each("learn", "SVM binary_svm_head", "Use tf.estimator.LinearClassifier, or "
            "tf.losses.hinge_loss in a model_fn."),
    **_each("learn", "Head head regression_head multi_class_head multi_head multi_label_head "
            "poisson_regression_head no_op_train_fn",
            "Use the heads of tf.estimator, such as tf.estimator.MultiClassHead."),
    **_each("learn", "InputFnOps build_parsing_serving_input_fn",
            "Use tf.estimator.export.build_parsing_serving_input_receiver_fn."),
    **_each("learn", "ExportStrategy make_export_strategy",
            "Pass a tf.estimator.FinalExporter or LatestExporter."),
    "learn.MetricSpec": "Return `eval_metric_ops` from model_fn, or use tf.estimator.add_metrics.",
    "learn.ModelFnOps": "Return a tf.estimator.EstimatorSpec.",
    **_each("learn", "PredictionKey ProblemType NotFittedError SKCompat",
            "tf.estimator needs none of it: predictions are dictionaries."),
    "learn.datasets": "Load the data set with tf.keras.datasets, or from its own address.",
    "learn.datasets.*": "Load the data set with tf.keras.datasets, or from its own address.",
    **_each("learn", "io extract_* infer_real_valued_columns_*",
            "Use tf.estimator.inputs.pandas_input_fn or numpy_input_fn, and tf.feature_column."),
    **_each("learn", "graph_actions evaluate infer run_feeds run_n train models ops",
            "Run a tf.train.MonitoredTrainingSession."),
    "learn.monitors": "Derive hooks from tf.train.SessionRunHook, and pass them as `hooks`.",
    "learn.utils": "Use tf.estimator.export, tf.estimator.inputs and tf.saved_model.",
    "learn.preprocessing": "Use tf.keras.preprocessing.text, or tf.lookup.",
    "learn.read_*": "Use tf.data.experimental.make_batched_features_dataset or "
                    "tf.data.TFRecordDataset.",
    "legacy_seq2seq": "Unroll the cells with tf.nn.static_rnn.",
    "libsvm": "Parse the lines with sklearn.datasets.load_svmlight_file, or with tf.strings.split.",
    "linalg": "Use tf.linalg.",
    "linear_optimizer": "Use tf.train.FtrlOptimizer; tf.estimator.experimental.LinearSDCA trains "
                        "linear models by SDCA.",
    "lookup": "Use tf.lookup.",
    "losses": "Use tf.losses.",
    "memory_stats": "Use tf.config.experimental.get_memory_info.",
    "meta_graph_transform": "Use tf.graph_util.extract_sub_graph.",
    "metrics": "Use tf.metrics.",
    "mixed_precision": "Use tf.compat.v1.train.experimental.MixedPrecisionLossScaleOptimizer.",
    "model_pruning": _PRUNING,
    "nccl": "Use tf.distribute.NcclAllReduce, in a strategy.",
    "nearest_neighbor": "Use the package scann or faiss.",
    "nn": "Look for the same name in tf.nn.",
    "nn.alpha_dropout": "Use tf.keras.layers.AlphaDropout.",
    "nn.deprecated_flipped_*": "Use the function of tf.nn without `deprecated_flipped_`, with "
                               "`labels` and `logits` by name.",
    **_each("nn", "rank_sampled_softmax_loss sampled_sparse_softmax_loss",
            "Use tf.nn.sampled_softmax_loss."),
    "nn.scaled_softplus": "Use alpha * tf.nn.softplus(x / alpha).",
    "opt": _OPTIMIZER,
    "opt.AdaMaxOptimizer": "Use tf.keras.optimizers.Adamax.",
    "opt.AdamGSOptimizer": "Use tf.train.AdamOptimizer.",
    "opt.LazyAdamGSOptimizer": "Use tf.contrib.opt.LazyAdamOptimizer.",
    **_each("opt", "ModelAverage* ElasticAverage*", "Average the variables with "
            "tf.train.ExponentialMovingAverage, or replicate with tf.distribute."),
    **_each("opt", "ScipyOptimizerInterface ExternalOptimizerInterface",
            "Call scipy.optimize.minimize with the loss and tf.gradients of a session, or "
            "tfp.optimizer.lbfgs_minimize of tensorflow-probability."),
    "opt.VariableClippingOptimizer": "Give the variable a `constraint`, such as "
                                     "lambda v: tf.clip_by_norm(v, 1.0, axes=[1]).",
    "opt.clip_gradients_by_global_norm": "Use tf.clip_by_global_norm.",
    "optimizer_v2": "Use the optimizers of tf.train, which have the same names.",
    "periodic_resample": "Use tf.nn.depth_to_space or tf.reshape and tf.transpose.",
    "predictor": "Use tf.saved_model.load.",
    "predictor.from_contrib_estimator": "Estimators of contrib.learn no longer exist; use "
                                        "tf.contrib.predictor.from_estimator.",
    "proto": "Use tf.io.decode_proto and encode_proto.",
    "quantization": "Use tf.quantization and tf.raw_ops.",
    "quantize": "TensorFlow no longer rewrites graphs for quantized training. Use "
                "tf.lite.TFLiteConverter to quantize after training, "
                "tf.quantization.fake_quant_with_min_max_vars in model_fn, or "
                "tensorflow-model-optimization for Keras models.",
    "receptive_field": "Compute it from kernel sizes and strides; no current package does it.",
    "recurrent": "Use tf.scan, or tf.nn.dynamic_rnn.",
    "reduce_slice_ops": "Use tf.gather over ranges and tf.math.segment_sum, or differences of "
                        "tf.cumsum.",
    "remote_fused_graph": _NONE,
    "resampler": "Gather the four neighbours with tf.gather_nd, and interpolate.",
    "rnn": _CELL,
    **_each("rnn", "InputProjectionWrapper OutputProjectionWrapper EmbeddingWrapper",
            "Apply tf.layers.dense, or look up the embedding, before or after tf.nn.dynamic_rnn."),
    "rnn.LSTMBlockWrapper": "Derive from tf.contrib.rnn.FusedRNNCell.",
    "rnn.CompiledWrapper": "Use tf.function(jit_compile=True).",
    "rnn.stack_bidirectional_rnn": "Use tf.contrib.rnn.stack_bidirectional_dynamic_rnn.",
    "rpc": "Call grpcio through tf.numpy_function.",
    "saved_model": "Use tf.keras.models.save_model and load_model.",
    "seq2seq": _ATTENTION,
    "session_bundle": "Use tf.saved_model.load; TensorFlow 1.x replaced session bundles.",
    "signal": "Use tf.signal.",
    "slim": "Use tf.layers and tf.train.",
    "solvers": f"{_TFP} tfp.math, or tf.linalg.experimental.conjugate_gradient, tf.linalg.lstsq.",
    "sparsemax": "Use tf.contrib.sparsemax.sparsemax.",
    "specs": "Build the layers with tf.layers.",
    "stat_summarizer": "Use tf.profiler.",
    "staging": "Use dataset.prefetch.",
    "stateless": "Use tf.random, which has the stateless functions.",
    "summary": "Use tf.summary.",
    "summary.create_db_writer": "TensorFlow removed it; use tf.contrib.summary.create_file_writer.",
    "tensor_forest": "Install tensorflow-decision-forests.",
    "tensorboard": "Use the package tensorboard.",
    "tensorrt": "Use tf.experimental.tensorrt.",
    "testing": "Read the events with tf.train.summary_iterator, and use tf.test.",
    "text": "Draw the pairs with tf.keras.preprocessing.sequence.skipgrams.",
    "tfprof": "Use tf.profiler.",
    "timeseries": "TensorFlow 2.0 removed the readers and regressors. Use the package "
                  "statsmodels, or tfp.sts of tensorflow-probability.",
    "tpu": _NONE,
    **_each("tpu", "TPUDistributionStrategy keras_to_tpu_model",
            "Use tf.distribute.experimental.TPUStrategy."),
    "tpu.python.tpu.keras_support": "Use tf.distribute.experimental.TPUStrategy.",
    "tpu.profiler": "Use tf.profiler, and tf.train.ProfilerHook.",
    "tpu.python.profiler": "Use tf.profiler, and tf.train.ProfilerHook.",
    "training": f"{_QUEUES} For the rest, use tf.train.",
    "training.HParamDef": "TensorFlow 2.0 removed its protocol buffers; use HParams.to_json.",
    "training.parse_values": "Use tf.contrib.training.HParams(...).parse.",
    **_each("training", "GreedyLoadBalancingStrategy RandomStrategy byte_size_load_fn",
            "Use tf.train.replica_device_setter, whose default distributes in turn."),
    "training.FailureTolerator": "Catch the errors in the loop of the program.",
    "util": "Use tf.make_tensor_proto and the like.",
}

# Path below tf.contrib of a name of tf-slim -> what a program that leaves tf.contrib uses, where
# that is not in tf.layers.
WITHOUT_CONTRIB = {
    "layers.dense_to_sparse": "Use tf_slim.layers.dense_to_sparse (`pip install tf-slim`), or "
                              "tf.sparse.from_dense, which leaves out zeros."}


def of_name(path: str) -> str | None:
    """Returns the reason of a name's own row, or of a pattern that it matches."""
    first, name = path.partition(".")[0], path.rpartition(".")[2]
    if "." not in path:
        return None
    return INSTEAD.get(path) or INSTEAD.get(f"{first}.{name}") or next(
        (reason for pattern, reason in INSTEAD.items()
         if "*" in pattern and fnmatch.fnmatchcase(f"{first}.{name}", pattern)), None)


def of(path: str) -> str | None:
    """Returns the reason of the innermost module that has one."""
    parts = path.split(".")
    above = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((INSTEAD[module] for module in above if module in INSTEAD), None)
