# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches for private names that moved inside TensorFlow.

Libraries from the time of `tf.estimator` still read them where they were. The versions are those
of the first TensorFlow without the former name.
"""

from tpu_estimator_embedding import versions
from tpu_estimator_embedding.patches.patch import Patch

_PYTHON = "tensorflow.python"
_OURS = "tpu_estimator_embedding.compat"
_KERAS_2 = ("tf_keras.src" if versions.tensorflow_minor() > versions.LAST_WITH_ESTIMATOR
            else "keras.src")
_KERAS = "moved in Keras 2.13"


def _moved(version: str, module: str, names: str, home: str) -> tuple[Patch, ...]:
    """Rows for names that a module had, and that another module has under the same names."""
    return tuple(Patch(f"{_PYTHON}.{module}", name, f"{_PYTHON}.{home}:{name}",
                       f"moved in TensorFlow {version}") for name in names.split())


def _renamed(version: str, module: str, name: str, source: str) -> Patch:
    return Patch(f"{_PYTHON}.{module}", name, f"{_PYTHON}.{source}",
                 f"renamed in TensorFlow {version}")


def _module(version: str, parent: str, name: str, home: str) -> Patch:
    return Patch(f"{_PYTHON}.{parent}", name, f"{_PYTHON}.{home}",
                 f"moved in TensorFlow {version}", is_module=True, is_lazy=True)


def _legacy_layers(name: str) -> Patch:
    # Replaces, because looking for the module would import tf_keras.
    return Patch("", f"tf_keras.legacy_tf_layers.{name}", f"tf_keras.src.legacy_tf_layers.{name}",
                 _KERAS, is_module=True, is_lazy=True, replaces=True, since=(2, 16))


FORMER_NAMES = (
    *(row for home, names in (
        ("data_utils", "GeneratorEnqueuer OrderedEnqueuer Sequence SequenceEnqueuer get_file"),
        ("generic_utils", "CustomObjectScope Progbar custom_object_scope "
         "deserialize_keras_object get_custom_objects serialize_keras_object"),
        ("layer_utils", "get_source_inputs print_summary"),
        ("np_utils", "normalize to_categorical"),
        ("vis_utils", "model_to_dot plot_model"))
      for row in _moved("2.1", "keras.utils", names, f"keras.utils.{home}")),
    Patch(f"{_PYTHON}.framework.ops", "register_dense_tensor_like_type",
          f"{_OURS}.tensor_like:register_dense_tensor_like_type",
          "removed in TensorFlow 2.3"),
    Patch(f"{_PYTHON}.util.tf_export", "estimator_export",
          "tensorflow_estimator.python.estimator.estimator_export:estimator_export",
          "moved to tensorflow_estimator in TensorFlow 2.12"),
    _renamed("2.13", "util.nest", "is_sequence", "util.nest:is_nested"),
    *_moved("2.13", "ops.array_ops", "stack unstack", "ops.array_ops_stack"),
    *(Patch(f"{_PYTHON}.keras.layers", name, f"{_KERAS_2}.layers:{name}",
            f"removed in TensorFlow {version}; Keras 2 has it")
      for version, names in (
          ("2.8", "BatchNormalization Bidirectional LayerNormalization TimeDistributed Wrapper"),
          ("2.10", "AlphaDropout GaussianDropout GaussianNoise"),
          ("2.13", "GRU GRUCell LSTM LSTMCell"))
      for name in names.split()),
    *_moved("2.13", "framework.ops",
            "IndexedSlices IndexedSlicesValue convert_n_to_tensor_or_indexed_slices "
            "convert_to_tensor_or_indexed_slices", "framework.indexed_slices"),
    *_moved("2.13", "framework.ops", "register_tensor_conversion_function",
            "framework.tensor_conversion_registry"),
    *_moved("2.13", "ops.control_flow_ops", "switch_case", "ops.control_flow_switch_case"),
    *_moved("2.13", "ops.variables", "RefVariable default_variable_creator", "ops.ref_variable"),
    *_moved("2.13", "ops.variables", "VariableV1 is_variable_initialized", "ops.variable_v1"),
    *_moved("2.14", "feature_column.feature_column_v2", "FeatureColumn",
            "feature_column.feature_column_v2_types"),
    *_moved("2.14", "ops.control_flow_ops", "case case_v2", "ops.control_flow_case"),
    *_moved("2.14", "ops.control_flow_ops", "cond cond_for_tf_v2", "ops.cond"),
    *_moved("2.14", "ops.control_flow_ops", "while_loop while_loop_v2", "ops.while_loop"),
    *_moved("2.14", "ops.control_flow_ops", "Assert", "ops.control_flow_assert"),
    _renamed("2.14", "ops.variable_scope", "variable", "ops.variable_v1:VariableV1"),
    _module("2.14", "distribute", "distribution_strategy_context", "distribute.distribute_lib"),
    *_moved("2.15", "framework.ops", "Tensor", "framework.tensor"),
    *_moved("2.16", "ops.variable_scope",
            "disable_resource_variables enable_resource_variables resource_variables_enabled",
            "ops.resource_variables_toggle"),
    _module("2.16", "training", "training_ops", "ops.gen_training_ops"),
    _module("2.16", "training", "gen_training_ops", "ops.gen_training_ops"),
    # TensorFlow 2.15 looks for a module that tf_keras 2.15 does not have. TensorFlow's own Keras is
    # Keras 2 there, and tf_keras beside it would take over the optimizers of Keras models.
    *([Patch(f"{_PYTHON}.layers.normalization", "normalization",
             "keras.src.legacy_tf_layers.normalization", _KERAS, is_lazy=True, replaces=True)]
      if versions.tensorflow_minor() == versions.LAST_WITH_ESTIMATOR else []),
    Patch("tf_keras", "legacy_tf_layers", "tf_keras.src.legacy_tf_layers", _KERAS, is_module=True,
          is_lazy=True, replaces=True, since=(2, 16)),
    *map(_legacy_layers, ("base", "convolutional", "core", "migration_utils", "normalization",
                          "pooling", "variable_scope_shim")))
