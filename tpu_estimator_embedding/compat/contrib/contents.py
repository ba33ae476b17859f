# SPDX-License-Identifier: Apache-2.0
"""Where the names of `tf.contrib` are today, and what to use for those that are nowhere.

`tf.contrib` went with TensorFlow 1.15. Here is what programs for TPUs used of it as far as
this package or TensorFlow still has it, under other names.
"""

import dataclasses

_V1 = "tensorflow.compat.v1"
_TPU = "tensorflow.python.tpu"


@dataclasses.dataclass(frozen=True)
class Contents:
    """What a module of `tf.contrib` shows.

    Attributes:
        names: name -> "module:attribute".
        homes: modules whose public names it shows, the first that has one counting.
    """

    names: dict[str, str] = dataclasses.field(default_factory=dict)
    homes: tuple[str, ...] = ()


def _all_in(module: str, *names: str) -> dict[str, str]:
    return {name: f"{module}:{name}" for name in names}


CONTENTS = {
    "cluster_resolver": Contents(homes=(f"{_V1}.distribute.cluster_resolver",)),
    "data": Contents(homes=(f"{_V1}.data.experimental",)),
    "estimator": Contents(homes=(f"{_V1}.estimator.experimental",)),
    "feature_column": Contents({
        name: f"{_V1}.feature_column:{name}" for name in (
            "sequence_categorical_column_with_hash_bucket",
            "sequence_categorical_column_with_identity",
            "sequence_categorical_column_with_vocabulary_file",
            "sequence_categorical_column_with_vocabulary_list", "sequence_numeric_column")}),
    "framework": Contents({
        **_all_in(f"{_V1}.train", "get_global_step", "get_or_create_global_step",
                  "list_variables", "load_checkpoint", "load_variable"),
        **_all_in(_V1, "argsort", "is_tensor", "nest", "sort")}),
    "lookup": Contents({
        **_all_in(f"{_V1}.lookup", "KeyValueTensorInitializer", "TextFileIndex",
                  "TextFileInitializer"),
        "HashTable": f"{_V1}.lookup:StaticHashTable",
        **_all_in("tensorflow.python.ops.lookup_ops", "MutableHashTable",
                  "TextFileIdTableInitializer", "TextFileStringTableInitializer",
                  "index_table_from_file")}),
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
    "training": Contents(_all_in(f"{_V1}.train", "checkpoints_iterator")),
}

# What `tf.contrib.tpu.python` held is still in `tensorflow.python.tpu`.
TPU_MODULES = (
    "async_checkpoint", "bfloat16", "device_assignment", "error_handling", "feature_column",
    "functional", "session_support", "topology", "tpu", "tpu_config", "tpu_context",
    "tpu_embedding", "tpu_embedding_gradient", "tpu_estimator", "tpu_feed", "tpu_function",
    "tpu_optimizer", "tpu_sharding", "tpu_system_metadata", "training_loop", "util")

# Of what is nowhere, what to write; of a whole module, under its name alone.
INSTEAD = {
    "data.batch_and_drop_remainder": "Use dataset.batch(batch_size, drop_remainder=True).",
    "data.padded_batch_and_drop_remainder":
        "Use dataset.padded_batch(..., drop_remainder=True).",
    "distribute": "Use tf.distribute.",
    "eager": "Use the same name of tf or tf.compat.v1.",
    "estimator": "Use tf.estimator.",
    "framework.arg_scope": "Install tf-slim and use tf_slim.arg_scope.",
    "layers": "Use tf.layers, or install tf-slim and use tf_slim.layers.",
    "layers.l1_regularizer": "Use tf.keras.regularizers.l1(scale).",
    "layers.l2_regularizer": "Use tf.keras.regularizers.l2(scale / 2).",
    "layers.layer_norm": "Use tf.keras.layers.LayerNormalization(epsilon=1e-12)(inputs).",
    "layers.optimize_loss": "Use the minimize method of an optimizer of tf.train.",
    "layers.variance_scaling_initializer": "Use tf.variance_scaling_initializer.",
    "layers.xavier_initializer": "Use tf.glorot_uniform_initializer.",
    "learn": "Use tf.estimator.",
    "lookup": "Use tf.lookup.",
    "lookup.index_table_from_tensor":
        "Use tf.lookup.StaticVocabularyTable, or a vocabulary list column.",
    "metrics": "Use tf.metrics.",
    "opt": "Install tensorflow-addons and use tfa.optimizers, or use tf.train.",
    "predictor": "Use tf.saved_model.load.",
    "rnn": "Use tf.nn.rnn_cell or tf.keras.layers.",
    "seq2seq": "Install tensorflow-addons and use tfa.seq2seq.",
    "slim": "Install tf-slim and use tf_slim.",
    "tpu.TPUDistributionStrategy": "Use tf.distribute.TPUStrategy.",
    "tpu.keras_to_tpu_model": "Use tf.distribute.TPUStrategy.",
    "training": "For HParams, use types.SimpleNamespace or a dictionary.",
    "training.HParams": "Use types.SimpleNamespace or a dictionary.",
}
