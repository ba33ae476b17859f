# SPDX-License-Identifier: Apache-2.0
"""Every name of another package that this package changes: the one table of patches."""

from tpu_estimator_embedding.compat.patch import Patch

_OURS = "tpu_estimator_embedding"
_V1_WORDS = f"{_OURS}.compat.modules.tpu_embedding"

PARAMETERS = (
    "AdagradParameters", "AdagradMomentumParameters", "AdamParameters",
    "FrequencyEstimatorParameters", "FtrlParameters", "MomentumParameters",
    "ProximalAdagradParameters", "ProximalYogiParameters", "RMSPropParameters",
    "StochasticGradientDescentParameters")

SLOT_VARIABLE_NAMES = tuple(
    name.replace("Parameters", "SlotVariableNames") for name in PARAMETERS
    if name != "StochasticGradientDescentParameters")

ENQUEUE_DATA = (
    "EnqueueData", "RaggedEnqueueData", "get_enqueue_datas_list_from_sparse_tensors_list",
    "get_enqueue_datas_list_from_ragged_tensors_list")

SLOT_VARIABLES = tuple(
    # Of FTRL alone TensorFlow has the name in the singular.
    "FtrlSlotVariable" if name.startswith("Ftrl") else name.replace("VariableNames", "Variables")
    for name in SLOT_VARIABLE_NAMES)

ENGINE = ("TPUEmbedding", "DeviceConfig", "VariablesAndOps", *SLOT_VARIABLES)

GRADIENT_FUNCTIONS = (
    "create_dummy_table_variables", "get_gradients_through_compute_gradients",
    "get_gradients_through_dummy_table_variables", "hook_dummy_table_variables_to_activations")


def _removed(module: str, name: str) -> Patch:
    return Patch(module, name, f"{_OURS}.compat.modules.{name}",
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
    Patch("tensorflow.python.tpu", "async_checkpoint", f"{_OURS}.compat.modules.async_checkpoint",
          "removed in TensorFlow 2.16; training programs import its hook", is_module=True),
    *map(_moved, ("error_handling", "tpu_config", "tpu_context", "tpu_estimator", "util")))

V1_WORDS = tuple(
    Patch("tensorflow.python.tpu.tpu_embedding", name, f"{_V1_WORDS}:{name}",
          "one class for this package, TensorFlow and tensorflow_estimator", replaces=True)
    for name in ("TableConfig", "FeatureConfig", "_OptimizationParameters", *PARAMETERS,
                 *SLOT_VARIABLE_NAMES, *ENQUEUE_DATA))

V1_ENGINE = tuple(
    Patch(f"tensorflow.python.tpu.{module}", name, f"{_OURS}.compat.modules.{module}:{name}",
          "an engine that needs no TPU", replaces=True)
    for module, names in (("tpu_embedding", ENGINE),
                          ("tpu_embedding_gradient", GRADIENT_FUNCTIONS))
    for name in names)

TPU_OPS = tuple(
    Patch(module, name, f"{_OURS}.compat.tpu_ops:{function}",
          "has no kernel without a TPU, and a session refuses a graph that holds it",
          replaces=True)
    for function, raw_op in (("cross_replica_sum", "CrossReplicaSum"),
                             ("all_to_all", "AllToAll"),
                             ("collective_permute", "CollectivePermute"))
    for module, name in (("tensorflow.python.ops.gen_tpu_ops", function),
                         ("tensorflow._api.v2.raw_ops", raw_op),
                         ("tensorflow._api.v2.compat.v1.raw_ops", raw_op)))

_V1_TPU_APIS = ("tensorflow._api.v2.compat.v1.tpu", "tensorflow.compat.v1.tpu")


def _stand_in(module: str, name: str, source: str, reason: str) -> Patch:
    return Patch(module, name, f"{_OURS}.compat.{source}", reason, replaces=True)


TPU_SYSTEM = (
    *(_stand_in("tensorflow.python.distribute.cluster_resolver.tpu_cluster_resolver:"
                "TPUClusterResolver", name, f"tpu_resolver:{function}",
                "tries the network for minutes; this machine stands in where no TPU answers")
      for name, function in (("__init__", "initialize"),
                             ("num_accelerators", "num_accelerators"),
                             ("get_tpu_system_metadata", "get_tpu_system_metadata"))),
    _stand_in("tensorflow_estimator.python.estimator.tpu.tpu_config:RunConfig", "__init__",
              "run_config:initialize", "a session waits for a master that does not answer"),
    _stand_in("tensorflow.python.client.session:BaseSession", "__init__",
              "tpu_setup:initialize_session", "a session waits for a master that does not answer"),
    *(_stand_in(module, name, f"tpu_setup:{name}", "fails without a TPU")
      for module, names in (
          ("tensorflow.python.tpu.tpu_strategy_util",
           ("initialize_tpu_system_impl", "shutdown_tpu_system_impl")),
          ("tensorflow.python.tpu.ops.tpu_ops",
           ("configure_distributed_tpu", "configure_tpu_embedding",
            "shutdown_distributed_tpu")),
          ("tensorflow.python.tpu.tpu", ("_tpu_system_device_name",)))
      for name in names),
    *(_stand_in(module, name, "tpu_setup:connect_to_remote_host",
                "waits for a host that does not answer")
      for module, name in (
          ("tensorflow.python.eager.remote", "connect_to_remote_host"),
          *((f"tensorflow._api.v2{version}.config", "experimental_connect_to_host")
            for version in ("", ".compat.v1", ".compat.v2")))),
    *(_stand_in(module, "core", "tpu_setup:core", "names a device that only a TPU has")
      for module in ("tensorflow.python.tpu.tpu_name_util", "tensorflow.python.tpu.tpu",
                     *_V1_TPU_APIS)),
    *(_stand_in(module, name, f"tpu_computations:{name}",
                "builds a graph that no session takes without a TPU; says so")
      for name in ("rewrite", "replicate", "shard", "batch_parallel",
                   "split_compile_and_replicate", "split_compile_and_shard")
      for module in ("tensorflow.python.tpu.tpu",
                     *(() if name.startswith("split_") else _V1_TPU_APIS))),
    *(_stand_in("tensorflow.python.tpu.ops.tpu_ops", name, f"tpu_computations:{name}",
                "has no kernel without a TPU; says so")
      for name in ("infeed_dequeue", "infeed_dequeue_tuple", "infeed_enqueue",
                   "infeed_enqueue_tuple", "outfeed_dequeue", "outfeed_dequeue_tuple",
                   "outfeed_enqueue", "outfeed_enqueue_tuple")))

# The classes that TensorFlow exports; a program may hold either spelling of the module,
# which `import tensorflow.compat.v1` makes two modules of.
_EXPORTED = ("AdagradParameters", "AdamParameters", "FtrlParameters",
             "StochasticGradientDescentParameters")

EXPERIMENTAL = tuple(
    Patch(module, name, f"{_V1_WORDS}:{name}",
          "not exported since TensorFlow 2.16; tensorflow_estimator looks it up here",
          replaces=True)
    for module in ("tensorflow._api.v2.compat.v1.tpu.experimental",
                   "tensorflow.compat.v1.tpu.experimental")
    for name in _EXPORTED)

KERAS = tuple(
    Patch(module, "keras", f"tf_keras.api.{version}.keras",
          "TensorFlow was imported before TF_USE_LEGACY_KERAS was set", is_module=True,
          replaces=True)
    for module, version in (
        ("tensorflow", "_v2"),
        ("tensorflow._api.v2.compat.v1", "_v1"), ("tensorflow.compat.v1", "_v1"),
        ("tensorflow._api.v2.compat.v2", "_v2"), ("tensorflow.compat.v2", "_v2")))

_ESTIMATOR = "tensorflow_estimator.python.estimator"
_API = f"{_ESTIMATOR}.api"
UPSTREAM = (f"{_API}._v1.estimator.tpu.experimental",  # which imports all the others
            "tensorflow.python.tpu.tpu_estimator")
_V1_API = "tensorflow.compat.v1"


def _estimator(module: str, version: str) -> Patch:
    return Patch(module, "estimator", f"{_API}.{version}.estimator",
                 "removed in TensorFlow 2.16; tensorflow_estimator still has it", is_module=True)


def _ours(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, f"{_OURS}.{source}",
                 "this package's class, which needs no TPU", replaces=True)


def _former(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, source, "the spelling of TensorFlow 1.15")


def _former_home(name: str) -> Patch:
    former = f"tensorflow.python.estimator{name and '.'}{name}"
    # By its whole path, because views of modules pass on what is set on them.
    return Patch("", former, f"{_ESTIMATOR}{name and '.'}{name}",
                 "second name of tensorflow_estimator's module, removed in TensorFlow 2.16",
                 is_module=True, is_lazy=True)


FORMER_HOMES = tuple(map(_former_home, (
    "", "estimator", "estimator_lib", "exporter", "gc", "model_fn", "run_config", "training",
    "util", "canned", "canned.head", "canned.metric_keys", "canned.optimizers",
    "canned.parsing_utils", "canned.prediction_keys", "export", "export.export",
    "export.export_lib", "export.export_output", "inputs", "inputs.inputs",
    "inputs.numpy_io", "inputs.pandas_io")))

# What has copied names of tensorflow_estimator's modules comes before the modules.
ESTIMATOR = (
    *(row for api in (f"{_API}._v1", "tensorflow_estimator._api.v1") for row in (
        _ours(f"{api}.estimator.tpu", "TPUEstimator", "estimator.tpu_estimator:TPUEstimator"),
        _ours(f"{api}.estimator.tpu.experimental", "EmbeddingConfigSpec",
              "estimator.embedding_config_spec:EmbeddingConfigSpec"))),
    *(Patch(f"{_ESTIMATOR}.tpu", name, f"{_OURS}.compat.estimator_views:{name}",
            "shows this package's class; the functions of the module keep theirs",
            is_module=True, replaces=True)
      for name in ("tpu_estimator", "_tpu_estimator_embedding")),
    _ours("tensorflow.python.tpu.tpu_estimator", "TPUEstimator",
          "estimator.tpu_estimator:TPUEstimator"),
    _estimator("tensorflow", "_v2"),
    _estimator("tensorflow._api.v2.compat.v2", "_v2"),
    _estimator("tensorflow.compat.v2", "_v2"),
    _estimator("tensorflow._api.v2.compat.v1", "_v1"),
    _estimator(_V1_API, "_v1"),
    *(Patch(f"{_V1_API}.estimator{parent}", name, f"{_API}._v1.estimator{parent}.{name}",
            "one module for both of its names, so that both have this package's classes",
            is_module=True, replaces=True)
      for parent, name in (("", "tpu"), (".tpu", "experimental"))))

FORMER_SPELLINGS = (
    *(_former(module, "tpu", f"{_API}._v1.estimator.tpu")
      for module in (f"{_API}._v2.estimator", "tensorflow_estimator._api.v2.estimator")),
    *(_former(f"{_API}._v1.estimator.tpu.experimental", name, f"{_V1_WORDS}:{name}")
      for name in _EXPORTED),
    *(_former(f"{tpu}.experimental", name, source)
      for tpu in ("tensorflow._api.v2.tpu", "tensorflow.tpu")
      for name, source in (
          ("embedding_column", f"{_V1_API}.tpu.experimental:embedding_column"),
          ("shared_embedding_columns", f"{_V1_API}.tpu.experimental:shared_embedding_columns"),
          *((name, f"{_V1_WORDS}:{name}") for name in _EXPORTED))),
    *(_former(tpu, name, f"{_V1_API}.tpu:{name}")
      for tpu in ("tensorflow._api.v2.tpu", "tensorflow.tpu")
      for name in ("CrossShardOptimizer", "batch_parallel", "bfloat16_scope", "core",
                   "cross_replica_sum", "initialize_system", "outside_compilation",
                   "replicate", "rewrite", "shard", "shutdown_system")))
