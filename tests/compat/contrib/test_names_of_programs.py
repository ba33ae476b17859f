# SPDX-License-Identifier: Apache-2.0
"""The names that the programs for TPUs of 2018 to 2020 read from tf.contrib.

Every name exists, or its error names a replacement.
"""

import importlib
import re

import pytest

import tpu_estimator_embedding
from tpu_estimator_embedding.compat.contrib import contents

tpu_estimator_embedding.install()

# Module -> names, of the reference models for TPUs (ResNet, MNIST, AmoebaNet, EfficientNet,
# RetinaNet, DeepLab, Inception), of BERT and its successors, Transformer, Tensor2Tensor and NCF,
# and of taggers and translators with recurrent nets.
PRESENT = {
    "cluster_resolver": "TPUClusterResolver SimpleClusterResolver TFConfigClusterResolver",
    "cluster_resolver.python.training.tpu_cluster_resolver": "TPUClusterResolver",
    "compiler.jit": "experimental_jit_scope",
    "compiler.xla": "compile",
    "crf": "crf_log_likelihood crf_decode viterbi_decode crf_sequence_score crf_log_norm",
    "crf.python.ops.crf": "crf_log_likelihood",
    "data": "map_and_batch parallel_interleave shuffle_and_repeat bucket_by_sequence_length "
            "group_by_window prefetch_to_device unbatch make_batched_features_dataset "
            "sample_from_datasets choose_from_datasets ignore_errors scan rejection_resample "
            "make_csv_dataset CsvDataset Counter get_single_element AUTOTUNE copy_to_device",
    "distribute": "MirroredStrategy OneDeviceStrategy ParameterServerStrategy "
                  "CollectiveAllReduceStrategy TPUStrategy AllReduceCrossDeviceOps "
                  "AllReduceCrossTowerOps DistributeConfig initialize_tpu_system",
    "estimator": "stop_if_no_decrease_hook stop_if_no_increase_hook InMemoryEvaluatorHook "
                 "add_metrics regression_head multi_class_head binary_classification_head "
                 "make_early_stopping_hook forward_features clip_gradients_by_norm",
    "feature_column": "sequence_numeric_column sequence_categorical_column_with_identity",
    "framework": "arg_scope add_arg_scope arg_scoped_arguments nest is_tensor get_name_scope "
                 "deprecated deprecated_args get_or_create_global_step get_global_step "
                 "create_global_step list_variables load_variable load_checkpoint "
                 "init_from_checkpoint assign_from_checkpoint assign_from_checkpoint_fn "
                 "get_variables_to_restore get_variables get_trainable_variables "
                 "get_model_variables get_local_variables model_variable local_variable variable "
                 "filter_variables assert_same_float_dtype smart_cond smart_constant_value "
                 "CriticalSection TensorSpec argsort sort has_arg_scope current_arg_scope "
                 "get_graph_from_inputs get_unique_variable get_variables_by_name",
    "framework.python.ops": "arg_scope add_arg_scope variables",
    "framework.python.ops.arg_scope": "arg_scope add_arg_scope",
    "framework.python.ops.variables": "get_or_create_global_step model_variable",
    "image": "rotate translate transform angles_to_projective_transforms compose_transforms",
    "keras": "layers models backend",
    "layers": "xavier_initializer xavier_initializer_conv2d variance_scaling_initializer "
              "l1_regularizer l2_regularizer l1_l2_regularizer apply_regularization "
              "sum_regularizer layer_norm batch_norm instance_norm group_norm conv2d "
              "convolution2d conv2d_transpose separable_conv2d fully_connected linear flatten "
              "dropout max_pool2d avg_pool2d optimize_loss embed_sequence bow_encoder "
              "embedding_lookup_unique safe_embedding_lookup_sparse one_hot_encoding "
              "bias_add maxout stack repeat summarize_activation summarize_tensors "
              "summarize_collection adaptive_clipping_fn recompute_grad OPTIMIZER_CLS_NAMES",
    "layers.python.layers": "initializers layers regularizers utils optimizers",
    "layers.python.layers.initializers": "xavier_initializer",
    "layers.python.layers.layers": "batch_norm conv2d layer_norm",
    "layers.python.layers.optimizers": "optimize_loss OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES",
    "layers.python.layers.utils": "collect_named_outputs convert_collection_to_dict smart_cond",
    "learn": "RunConfig ModeKeys TaskType",
    "learn.monitors": "replace_monitors_with_hooks",
    "learn.python.learn.estimators.run_config": "RunConfig",
    "learn.python.learn.monitors": "replace_monitors_with_hooks",
    "lookup": "index_table_from_file index_table_from_tensor index_to_string_table_from_file "
              "index_to_string_table_from_tensor HashTable MutableHashTable "
              "KeyValueTensorInitializer TextFileInitializer TextFileIdTableInitializer "
              "MutableDenseHashTable IdTableWithHashBuckets FastHashSpec TextFileIndex",
    "losses": "sigmoid_cross_entropy softmax_cross_entropy add_loss get_total_loss "
              "get_regularization_losses metric_learning",
    "losses.metric_learning": "triplet_semihard_loss",
    "metrics": "streaming_accuracy streaming_auc streaming_mean streaming_precision "
               "streaming_recall streaming_pearson_correlation streaming_mean_iou "
               "streaming_mean_squared_error streaming_root_mean_squared_error "
               "streaming_sparse_recall_at_k streaming_concat aggregate_metric_map "
               "aggregate_metrics confusion_matrix f1_score cohen_kappa set_intersection accuracy",
    "metrics.python.ops.metric_ops": "streaming_auc",
    "nn": "nth_element conv1d_transpose",
    "opt": "AdamWOptimizer LazyAdamOptimizer MovingAverageOptimizer MomentumWOptimizer "
           "LARSOptimizer NadamOptimizer DecoupledWeightDecayExtension "
           "extend_with_decoupled_weight_decay",
    "opt.python.training.lazy_adam_optimizer": "LazyAdamOptimizer",
    "opt.python.training.weight_decay_optimizers": "AdamWOptimizer",
    "rnn": "BasicLSTMCell BasicRNNCell GRUCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell "
           "DropoutWrapper ResidualWrapper DeviceWrapper LayerNormBasicLSTMCell LSTMBlockCell "
           "static_rnn static_bidirectional_rnn stack_bidirectional_dynamic_rnn "
           "transpose_batch_time",
    "rnn.python.ops.rnn_cell": "LayerNormBasicLSTMCell",
    "seq2seq": "sequence_loss",
    "slim": "conv2d separable_conv2d fully_connected batch_norm arg_scope learning "
            "tfexample_decoder nets dataset losses metrics evaluation l2_regularizer dropout "
            "max_pool2d avg_pool2d flatten softmax variance_scaling_initializer "
            "get_or_create_global_step get_variables_to_restore assign_from_checkpoint_fn "
            "get_model_variables data_decoder dataset_data_provider parallel_reader prefetch_queue "
            "add_arg_scope utils model_analyzer queues summaries one_hot_encoding",
    "slim.nets": "alexnet inception overfeat resnet_utils resnet_v1 resnet_v2 vgg",
    "slim.python.slim": "learning evaluation nets",
    "slim.python.slim.data": "dataset tfexample_decoder dataset_data_provider",
    "slim.python.slim.nets": "resnet_v1 resnet_v2 resnet_utils inception_v3 vgg",
    "stateless": "stateless_random_uniform stateless_random_normal",
    "summary": "scalar image histogram audio always_record_summaries create_file_writer "
               "all_summary_ops record_summaries_every_n_global_steps flush initialize graph "
               "never_record_summaries should_record_summaries",
    "summary.summary": "scalar",
    "tensorboard.plugins.projector": "ProjectorConfig visualize_embeddings",
    "tpu": "TPUEstimator TPUEstimatorSpec TPUConfig RunConfig InputPipelineConfig "
           "CrossShardOptimizer bfloat16_scope cross_replica_sum "
           "initialize_system shutdown_system rewrite replicate shard batch_parallel "
           "outside_compilation repeat while_loop device_assignment AsyncCheckpointSaverHook "
           "TPUContext",
    "tpu.python.ops.tpu_ops": "cross_replica_sum all_to_all",
    "tpu.python.tpu": "async_checkpoint bfloat16 device_assignment session_support tpu_config "
                      "tpu_context tpu_estimator tpu_function tpu_optimizer tpu training_loop",
    "tpu.python.tpu.tpu_function": "get_tpu_context",
    "training": "HParams checkpoints_iterator evaluate_once get_or_create_eval_step "
                "StopAfterNEvalsHook create_train_op wait_for_new_checkpoint evaluate_repeatedly "
                "SummaryAtEndHook clip_gradient_norms_fn multiply_gradients train",
    "training.python.training.evaluation": "checkpoints_iterator evaluate_repeatedly",
    "training.python.training.hparam": "HParams",
    "util": "constant_value make_tensor_proto make_ndarray"}

# Path -> part of the advice.
ABSENT = {
    "checkpoint.CheckpointableBase": "Use tf.train.Checkpoint",
    "cloud.BigtableClient": "Export the data to TFRecord files",
    "cudnn_rnn.CudnnLSTM": "CuDNNLSTM",
    "data.batch_and_drop_remainder": "drop_remainder=True",
    "data.padded_batch_and_drop_remainder": "drop_remainder=True",
    "distributions.Normal": "Install tensorflow-probability",
    "eager.metrics": "Look for the same name",
    "layers.real_valued_column": "Use tf.feature_column.numeric_column",
    "layers.sparse_column_with_hash_bucket": "categorical_column_with_hash_bucket",
    "layers.input_from_feature_columns": "Use tf.feature_column.input_layer",
    "learn.DNNClassifier": "Use tf.estimator",
    "learn.Experiment": "Use tf.estimator.train_and_evaluate",
    "learn.learn_runner": "Use tf.estimator.train_and_evaluate",
    "learn.python.learn.learn_runner": "Use tf.estimator.train_and_evaluate",
    "learn.monitors.BaseMonitor": "tf.train.SessionRunHook",
    "mixed_precision.LossScaleOptimizer": "MixedPrecisionLossScaleOptimizer",
    "predictor.from_saved_model": "Use tf.saved_model.load",
    "quantize.create_training_graph": "no longer has an equivalent",
    "rnn.NASCell": "Use tf.nn.rnn_cell",
    "seq2seq.AttentionWrapper": "Unroll the decoder",
    "seq2seq.BasicDecoder": "Unroll the decoder",
    "tpu.TPUDistributionStrategy": "Use tf.distribute.experimental.TPUStrategy",
    "tpu.keras_to_tpu_model": "Use tf.distribute.experimental.TPUStrategy",
    "training.bucket": "Use tf.data for input"}


@pytest.mark.parametrize("path", PRESENT)
def test_present(path):
    missing = []
    for name in PRESENT[path].split():
        found = {}
        try:
            exec(f"from tensorflow.contrib.{path} import {name} as found", found)
            module = importlib.import_module("tensorflow").contrib
            for part in path.split("."):
                module = getattr(module, part)
            if path not in contents.HIDDEN:
                assert getattr(module, name) is found["found"], name
        except ImportError as error:
            missing.append(str(error))
    assert not missing


@pytest.mark.parametrize("path", ABSENT)
def test_absent(path):
    module, _, name = path.rpartition(".")
    with pytest.raises(ImportError, match=r"^TensorFlow 2\.0 removed tf\.contrib.*"
                                          + re.escape(ABSENT[path])):
        exec(f"from tensorflow.contrib.{module} import {name}")


def test_advice_names_what_exists():
    """Every `tf.x.y` in an advice is a name of TensorFlow, and no advice names a dead package."""
    v1 = importlib.import_module("tensorflow.compat.v1")
    for path, advice in contents.INSTEAD.items():
        for name in re.findall(r"tf\.([\w.]*\w)", advice):
            value = v1
            for part in name.removeprefix("compat.v1.").split("."):
                value = getattr(value, part, None)
            assert value is not None, f"{path}: {advice}"
        assert "addons" not in advice
