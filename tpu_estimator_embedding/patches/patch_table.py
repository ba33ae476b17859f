# SPDX-License-Identifier: Apache-2.0
"""The names that must be restored before tensorflow_estimator can be imported."""

from tpu_estimator_embedding.optimizers.registry import records
from tpu_estimator_embedding.patches.patch import Patch

OURS = "tpu_estimator_embedding"
V1_API_MODULE = f"{OURS}.compat.modules.tpu_embedding"

PARAMETERS = tuple(record.parameters for record in records())

SLOT_VARIABLE_NAMES = tuple(record.slot_variable_names for record in records(with_slots=True))

SLOT_VARIABLES = tuple(record.slot_variables for record in records(with_slots=True))

ENQUEUE_DATA = (
    "EnqueueData", "RaggedEnqueueData", "get_enqueue_datas_list_from_sparse_tensors_list",
    "get_enqueue_datas_list_from_ragged_tensors_list")

ENGINE = ("TPUEmbedding", "DeviceConfig", "VariablesAndOps", *SLOT_VARIABLES)

GRADIENT_FUNCTIONS = (
    "create_dummy_table_variables", "get_gradients_through_compute_gradients",
    "get_gradients_through_dummy_table_variables", "hook_dummy_table_variables_to_activations")


def _removed(module: str, name: str) -> Patch:
    return Patch(module, name, f"{OURS}.compat.modules.{name}",
                 "removed in TensorFlow 2.16; tensorflow_estimator imports it", is_module=True)


def _moved(name: str) -> Patch:
    return Patch("tensorflow.python.tpu", name,
                 f"tensorflow_estimator.python.estimator.tpu.{name}",
                 "second name of tensorflow_estimator's module, removed in TensorFlow 2.16",
                 is_module=True, is_lazy=True)


MODULES = (
    _removed("tensorflow.python.distribute", "estimator_training"),
    _removed("tensorflow.python.tpu", "session_support"),
    _removed("tensorflow.python.tpu", "tpu_embedding"),
    _removed("tensorflow.python.tpu", "tpu_embedding_gradient"),
    Patch("tensorflow.python.tpu", "async_checkpoint", f"{OURS}.compat.modules.async_checkpoint",
          "removed in TensorFlow 2.16; training programs import its hook", is_module=True),
    *map(_moved, ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")))

_ESTIMATOR = "tensorflow_estimator.python.estimator"

# Modules of tf-estimator-nightly -> the names of Keras 2 in them that the stable release lacks.
_KERAS_OF_NIGHTLY = {
    "util": "tf_keras tf_keras_v1 tf_keras_v2", "keras_lib": "tf_keras tf_keras_v1 tf_keras_v2",
    "early_stopping": "tf_keras_v1", "model_fn": "tf_keras", "canned.dnn": "tf_keras tf_keras_v1",
    "canned.linear": "tf_keras", "canned.optimizers": "tf_keras",
    "canned.rnn": "tf_keras tf_keras_v1", "canned.timeseries.ar_model": "tf_keras",
    "head.base_head": "tf_keras", "head.binary_class_head": "tf_keras tf_keras_v2",
    "head.multi_class_head": "tf_keras tf_keras_v2", "head.multi_head": "tf_keras",
    "head.multi_label_head": "tf_keras tf_keras_v2", "head.regression_head": "tf_keras tf_keras_v2",
    "tools.checkpoint_converter": "tf_keras"}

NAMES_OF_NIGHTLY = (
    *(Patch(f"{_ESTIMATOR}.{module}", name, {
        "tf_keras": "tensorflow:keras", "tf_keras_v1": "tensorflow.compat.v1:keras",
        "tf_keras_v2": "tensorflow.compat.v2:keras"}[name],
            "a name of tf-estimator-nightly that tensorflow-estimator 2.15 lacks")
      for module, names in _KERAS_OF_NIGHTLY.items() for name in names.split()),
    Patch(f"{_ESTIMATOR}.estimator_export", "ESTIMATOR_API_NAME",
          f"{OURS}.compat.modules.export_names:ESTIMATOR_API_NAME",
          "a name of tf-estimator-nightly that tensorflow-estimator 2.15 lacks"))

# Only the stable tensorflow-estimator reads them; the nightly adds its own.
EXPORT_NAMES = tuple(
    Patch("tensorflow.python.util.tf_export", name, f"{OURS}.compat.modules.export_names:{name}",
          "removed in TensorFlow 2.16; tensorflow-estimator 2.15 exports its names by it",
          replaces=True, since=(2, 16))
    for name in ("ESTIMATOR_API_NAME", "API_ATTRS", "API_ATTRS_V1"))

V1_API = tuple(
    Patch("tensorflow.python.tpu.tpu_embedding", name, f"{V1_API_MODULE}:{name}",
          "one class for this package, TensorFlow and tensorflow_estimator", replaces=True)
    for name in ("TableConfig", "FeatureConfig", "_OptimizationParameters", *PARAMETERS,
                 *SLOT_VARIABLE_NAMES, *ENQUEUE_DATA))

V1_ENGINE = tuple(
    Patch(f"tensorflow.python.tpu.{module}", name, f"{OURS}.compat.modules.{module}:{name}",
          "an engine that needs no TPU", replaces=True)
    for module, names in (("tpu_embedding", ENGINE),
                          ("tpu_embedding_gradient", GRADIENT_FUNCTIONS))
    for name in names)

TPU_OPS = tuple(
    Patch(module, name, f"{OURS}.compat.stubs.tpu_ops:{function}",
          "has no kernel without a TPU, so a session refuses a graph with it",
          replaces=True)
    for function, raw_op in (("cross_replica_sum", "CrossReplicaSum"),
                             ("all_to_all", "AllToAll"),
                             ("collective_permute", "CollectivePermute"),
                             ("tpu_replicated_input", "TPUReplicatedInput"),
                             ("tpu_replicated_output", "TPUReplicatedOutput"))
    for module, name in (("tensorflow.python.ops.gen_tpu_ops", function),
                         ("tensorflow._api.v2.raw_ops", raw_op),
                         ("tensorflow._api.v2.compat.v1.raw_ops", raw_op))) + (
    *(Patch("tensorflow.python.tpu.ops.tpu_ops", name, f"{OURS}.compat.stubs.tpu_ops:{name}",
            "has no kernel without a TPU, so a session refuses a graph with it", replaces=True)
      for name in ("tpu_replicated_input", "tpu_replicated_output")),
    *(Patch(module, name, f"{OURS}.compat.stubs.tpu_ops:xla_replica_id",
            "ends the process in a session that is not a TPU's", replaces=True)
      for module, name in (("tensorflow.compiler.tf2xla.ops.gen_xla_ops", "xla_replica_id"),
                           ("tensorflow.compiler.tf2xla.python.xla", "replica_id"))))

_LAYOUTS = "saves the layout of table rows in checkpoints, and restores by it"

SAVERS = tuple(
    Patch(module, name, f"{OURS}.checkpoint.{function}", reason, replaces=True, wraps=True)
    for module, name, function, reason in (
        ("tensorflow.python.training.saving.saveable_object_util", "saveable_objects_for_op",
         "saver_patches:saving_tables", _LAYOUTS),
        ("tensorflow.python.training.saver:BaseSaverBuilder", "save_op",
         "saver_patches:saving_layouts", _LAYOUTS),
        ("tensorflow.python.training.checkpoint_utils", "_set_checkpoint_initializer",
         "saver_patches:initializing", _LAYOUTS),
        ("tensorflow.python.training.saver:Saver", "restore", "saver_patches:restoring",
         _LAYOUTS),
        ("tensorflow.python.checkpoint.checkpoint:_NameBasedRestoreCoordinator", "eager_restore",
         "saver_patches:restoring_by_name", _LAYOUTS),
        ("tensorflow.python.training.saver:Saver", "save", "failed_saves:saving",
         "a save that fails on a full disk leaves a folder behind")))

# The classes that TensorFlow exports. A program may use either name of the module, because
# `import tensorflow.compat.v1` creates two modules.
EXPORTED = ("AdagradParameters", "AdamParameters", "FtrlParameters",
            "StochasticGradientDescentParameters")

EXPERIMENTAL = tuple(
    Patch(module, name, f"{V1_API_MODULE}:{name}",
          "not exported since TensorFlow 2.16; tensorflow_estimator reads it here",
          replaces=True)
    for module in ("tensorflow._api.v2.compat.v1.tpu.experimental",
                   "tensorflow.compat.v1.tpu.experimental")
    for name in EXPORTED)

KERAS = tuple(
    Patch(module, "keras", f"tf_keras.api.{version}.keras",
          "TensorFlow was imported before TF_USE_LEGACY_KERAS was set", is_module=True,
          replaces=True)
    for module, version in (
        ("tensorflow", "_v2"), ("tensorflow.compat.v1", "_v1"), ("tensorflow.compat.v2", "_v2"),
        *((f"tensorflow._api.v2{outer}.compat.{version}", f"_{version}")
          for outer in ("", ".compat.v1", ".compat.v2") for version in ("v1", "v2"))))

ESTIMATOR_API = "tensorflow_estimator.python.estimator.api"
UPSTREAM = (f"{ESTIMATOR_API}._v1.estimator.tpu.experimental",  # imports all the others
            f"{ESTIMATOR_API}._v2.estimator",
            "tensorflow.python.tpu.tpu_estimator")


def _optimizer(module: str, owner: str, method: str, function: str = "applying_gradients",
               effect: str = "updates the tables of Keras layers") -> Patch:
    return Patch(f"{module}:{owner}", method,
                 f"{OURS}.mid_level.keras_layers.optimizer_steps:{function}",
                 f"{effect}; applied when the name of a layer is first read, and when one is "
                 "called or loaded", replaces=True, wraps=True)


# Applied while Keras layers of tables are in use, as `install` knows no Keras.
V1_OPTIMIZERS = (
    _optimizer("tensorflow.python.training.optimizer", "Optimizer", "apply_gradients"),)
KERAS_2_OPTIMIZERS = tuple(
    _optimizer(f"{keras}.src.optimizers.{module}", *method)
    for keras in ("keras", "tf_keras")
    for module, *method in (
        ("optimizer", "Optimizer", "apply_gradients"),
        ("legacy.optimizer_v2", "OptimizerV2", "apply_gradients"),
        ("legacy.optimizer_v2", "OptimizerV2", "add_slot", "adding_slot",
         "loads SavedModels with the tables of Keras layers")))
KERAS_3_OPTIMIZERS = (
    _optimizer("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply",
               "applying_in_keras_3"),)
