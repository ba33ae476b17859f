# SPDX-License-Identifier: Apache-2.0
"""The present locations of the names of `tf.contrib`, and replacements for missing ones.

TensorFlow 2.0 removed `tf.contrib`. This module lists the parts that TPU programs used and that
this package or TensorFlow still has under other names.
"""

import dataclasses

_OURS = "tpu_estimator_embedding.compat.contrib"
_V1 = "tensorflow.compat.v1"
_TPU = "tensorflow.python.tpu"


@dataclasses.dataclass(frozen=True)
class Contents:
    """The contents of a module of `tf.contrib`.

    Attributes:
        names: name -> "module:attribute", or "module".
        homes: modules whose public names it shows. The first module that has a name provides
            it; modules of packages that are not installed are skipped.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    homes: tuple[str, ...] = ()


def _all_in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


_EVALUATION = {
    **_all_in("tensorflow.python.training.checkpoint_utils", "checkpoints_iterator",
              "wait_for_new_checkpoint"),
    **{name: f"tensorflow.python.training.evaluation:_{name}" for name in (
        "evaluate_once", "get_or_create_eval_step", "StopAfterNEvalsHook")}}
_FRAMEWORK = Contents({
    **_all_in(f"{_V1}.train", "create_global_step", "get_global_step",
              "get_or_create_global_step", "init_from_checkpoint", "list_variables",
              "load_checkpoint", "load_variable"),
    **_all_in(f"{_OURS}.restoring", "assign_from_checkpoint_fn", "get_variables_to_restore"),
    **_all_in(_V1, "argsort", "is_tensor", "nest", "sort")}, ("tf_slim",))
_RESOLVERS = Contents(homes=(f"{_V1}.distribute.cluster_resolver",))
_SLIM = Contents(homes=("tf_slim",))
_LAYERS = Contents(_all_in(
    f"{_OURS}.layers", "l1_regularizer", "l2_regularizer", "layer_norm",
    "variance_scaling_initializer", "xavier_initializer"), ("tf_slim.layers",))

CONTENTS = {
    "cluster_resolver": _RESOLVERS,
    "cluster_resolver.python.training": Contents(
        {"tpu_cluster_resolver":
             "tensorflow.python.distribute.cluster_resolver.tpu_cluster_resolver"},
        _RESOLVERS.homes),
    "data": Contents(homes=(f"{_V1}.data.experimental",)),
    "estimator": Contents(
        {**_all_in(f"{_OURS}.heads", "binary_classification_head", "multi_class_head",
                   "regression_head"),
         "add_metrics": f"{_V1}.estimator:add_metrics"},
        (f"{_V1}.estimator.experimental",)),
    "feature_column": Contents({
        name: f"{_V1}.feature_column:{name}" for name in (
            "sequence_categorical_column_with_hash_bucket",
            "sequence_categorical_column_with_identity",
            "sequence_categorical_column_with_vocabulary_file",
            "sequence_categorical_column_with_vocabulary_list", "sequence_numeric_column")}),
    "framework": _FRAMEWORK,
    "framework.python.ops": _FRAMEWORK,
    "framework.python.ops.arg_scope": _SLIM,
    "framework.python.ops.variables": _FRAMEWORK,
    "keras": Contents(homes=(f"{_V1}.keras",)),
    "layers": _LAYERS,
    "layers.python.layers": _LAYERS,
    "layers.python.layers.initializers": _LAYERS,
    "layers.python.layers.layers": _LAYERS,
    "layers.python.layers.regularizers": _LAYERS,
    "lookup": Contents({
        **_all_in(f"{_V1}.lookup", "KeyValueTensorInitializer", "TextFileIndex",
                  "TextFileInitializer"),
        "HashTable": f"{_V1}.lookup:StaticHashTable",
        **_all_in("tensorflow.python.ops.lookup_ops", "MutableHashTable",
                  "TextFileIdTableInitializer", "TextFileStringTableInitializer",
                  "index_table_from_file")}),
    "slim": _SLIM,
    "rnn": Contents({
        name: f"{_V1}.nn.rnn_cell:{name}" for name in (
            "BasicLSTMCell", "BasicRNNCell", "DeviceWrapper", "DropoutWrapper", "GRUCell",
            "LSTMCell", "LSTMStateTuple", "MultiRNNCell", "RNNCell", "ResidualWrapper")}
        | {"static_rnn": f"{_V1}.nn:static_rnn"}),
    "summary": Contents({
        **_all_in("tensorflow.python.ops.summary_ops_v2", "always_record_summaries", "audio",
                  "create_file_writer", "create_summary_file_writer", "eval_dir", "flush",
                  "generic", "graph", "histogram", "image", "import_event", "initialize",
                  "never_record_summaries", "record_summaries_every_n_global_steps", "scalar",
                  "should_record_summaries", "summary_writer_initializer_op", "SummaryWriter"),
        "all_summary_ops": "tensorflow.python.ops.summary_ops_v2:all_v2_summary_ops"}),
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
    "training": Contents({"HParams": f"{_OURS}.hparams:HParams", **_EVALUATION},
                         ("tf_slim.training",)),
    "training.python.training.evaluation": Contents(_EVALUATION),
    "training.python.training.hparam": Contents({"HParams": f"{_OURS}.hparams:HParams"}),
}

# Advice for names that no longer exist; the name of a module applies to all names in it.
INSTEAD = {
    "data.batch_and_drop_remainder": "Use dataset.batch(batch_size, drop_remainder=True).",
    "data.padded_batch_and_drop_remainder":
        "Use dataset.padded_batch(..., drop_remainder=True).",
    "distribute": "Use tf.distribute.",
    "eager": "Use the same name of tf or tf.compat.v1.",
    "estimator": "Use tf.estimator.",
    "framework": "Install tf-slim, which has the rest of tf.contrib.framework.",
    "layers": "Use tf.layers, or install tf-slim, which has the rest of tf.contrib.layers.",
    "layers.optimize_loss": "Use the minimize method of an optimizer of tf.train.",
    "learn": "Use tf.estimator.",
    "lookup": "Use tf.lookup.",
    "lookup.index_table_from_tensor":
        "Use tf.lookup.StaticVocabularyTable, or a vocabulary list column.",
    "metrics": "Use tf.metrics.",
    "opt": "Install tensorflow-addons and use tfa.optimizers, or use tf.train.",
    "predictor": "Use tf.saved_model.load.",
    "rnn": "Use tf.nn.rnn_cell or tf.keras.layers.",
    "seq2seq": "Install tensorflow-addons and use tfa.seq2seq.",
    "slim": "Install tf-slim: then tf.contrib.slim is its module tf_slim.",
    "training": "Use tf.train, or install tf-slim, which has the rest of tf.contrib.training.",
    "tpu.TPUDistributionStrategy": "Use tf.distribute.TPUStrategy.",
    "tpu.keras_to_tpu_model": "Use tf.distribute.TPUStrategy.",
}
