# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches that `install` applies after tensorflow_estimator is importable.

In this order: former names of tf.estimator and of TensorFlow's tracking, tf.contrib, the TF2 API of
TPU embeddings, servers, and what stands in for a TPU system. `patches.patch_table` has the rows
that come before, `former_names_table` the private names that moved.
"""

from typing import Any

from tpu_estimator_embedding.compat import legacy_keras
from tpu_estimator_embedding.compat.contrib import canned, contents, modules
from tpu_estimator_embedding.optimizers.registry import records
from tpu_estimator_embedding.patches.patch import Patch
from tpu_estimator_embedding.patches.patch_table import ESTIMATOR_API, EXPORTED, OURS, V1_API_MODULE

_ESTIMATOR = "tensorflow_estimator.python.estimator"
_V1_API = "tensorflow.compat.v1"
_CONTRIB = f"{OURS}.compat.contrib.modules"
_CONTRIB_REASON = "the spelling of TensorFlow 1.x"
_PYTHON = "tensorflow.python"
_EMBEDDING = tuple(f"{root}.tpu.experimental.embedding" for root in (
    "tensorflow._api.v2", "tensorflow._api.v2.compat.v1", "tensorflow._api.v2.compat.v2",
    "tensorflow", "tensorflow.compat.v1", "tensorflow.compat.v2"))
_SERVER = "tensorflow.python.training.server_lib:Server"
_STUBS = f"{OURS}.compat.stubs"
_V1_TPU_APIS = ("tensorflow._api.v2.compat.v1.tpu", "tensorflow.compat.v1.tpu")
_RAW_OPS = tuple(f"tensorflow._api.v2{version}.raw_ops"
                 for version in ("", ".compat.v1", ".compat.v2"))


def _estimator(module: str, version: str) -> Patch:
    return Patch(module, "estimator", f"{ESTIMATOR_API}.{version}.estimator",
                 "removed in TensorFlow 2.16; tensorflow_estimator still has it", is_module=True)


def _ours(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, f"{OURS}.{source}",
                 "this package's class, which needs no TPU", replaces=True)


def _former(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, source, "the name in TensorFlow 1.15")


def _former_home(name: str, today: str | None = None) -> Patch:
    today = name if today is None else today
    former = f"tensorflow.python.estimator{name and '.'}{name}"
    # Uses the full path, because views of modules forward assignments.
    return Patch("", former, f"{_ESTIMATOR}{today and '.'}{today}",
                 "second name of tensorflow_estimator's module, removed in TensorFlow 2.16",
                 is_module=True, is_lazy=True)


def _former_tracking(name: str, today: str) -> Patch:
    return Patch("", f"tensorflow.python.training.tracking{name and '.'}{name}",
                 f"tensorflow.python.{today}", "moved in TensorFlow 2.10", is_module=True,
                 is_lazy=True)


TRACKING = tuple(_former_tracking(*names) for names in (
    ("", "trackable"), ("base", "trackable.base"),
    ("data_structures", "trackable.data_structures"), ("graph_view", "checkpoint.graph_view"),
    ("tracking", "trackable.autotrackable"), ("util", "checkpoint.checkpoint")))

FORMER_HOMES = (*map(_former_home, (
    "", "estimator", "estimator_lib", "exporter", "gc", "model_fn", "run_config", "training",
    "util", "canned", "canned.baseline", "canned.dnn", "canned.dnn_linear_combined", "canned.head",
    "canned.linear", "canned.metric_keys", "canned.optimizers", "canned.parsing_utils",
    "canned.prediction_keys", "export", "export.export", "export.export_lib",
    "export.export_output", "inputs", "inputs.inputs", "inputs.numpy_io", "inputs.pandas_io",
    "inputs.queues", "inputs.queues.feeding_functions", "inputs.queues.feeding_queue_runner")),
    _former_home("keras", "keras_lib"))

# Modules that copied names of tensorflow_estimator's modules come before those.
ESTIMATOR = (
    *(row for api in (f"{ESTIMATOR_API}._v1", "tensorflow_estimator._api.v1") for row in (
        _ours(f"{api}.estimator.tpu", "TPUEstimator", "estimator.tpu_estimator:TPUEstimator"),
        _ours(f"{api}.estimator.tpu.experimental", "EmbeddingConfigSpec",
              "estimator.embedding_config_spec:EmbeddingConfigSpec"))),
    *(Patch(f"{_ESTIMATOR}.tpu", name, f"{OURS}.runtime.estimator_views:{name}",
            "shows this package's class; functions of the module still use their own",
            is_module=True, replaces=True)
      for name in ("tpu_estimator", "_tpu_estimator_embedding")),
    _ours("tensorflow.python.tpu.tpu_estimator", "TPUEstimator",
          "estimator.tpu_estimator:TPUEstimator"),
    _estimator("tensorflow", "_v2"),
    *(_estimator(f"tensorflow.compat.{version}", f"_{version}") for version in ("v2", "v1")),
    # `tf.compat.v1` where `tf` itself is `tensorflow.compat.v1` or `.v2`, and so on.
    *(_estimator(f"tensorflow._api.v2{outer}.compat.{version}", f"_{version}")
      for outer in ("", ".compat.v1", ".compat.v2") for version in ("v2", "v1")),
    *(Patch(module, "add_metrics", f"{OURS}.estimator.extenders:add_metrics",
            "returns a TPUEstimator for a TPUEstimator", replaces=True)
      # A separate module in TensorFlow 2.15, which copies the name when it is first imported.
      for module in (f"{_V1_API}.estimator", f"{_ESTIMATOR}.extenders",
                     f"{_ESTIMATOR}.estimator_lib",
                     *(f"{api}{version}.estimator" for version in ("v1", "v2")
                       for api in (f"{ESTIMATOR_API}._", "tensorflow_estimator._api.")))),
    *(Patch(f"{_V1_API}.estimator{parent}", name, f"{ESTIMATOR_API}._v1.estimator{parent}.{name}",
            "one module for both of its names, so that both have this package's classes",
            is_module=True, replaces=True)
      for parent, name in (("", "tpu"), (".tpu", "experimental"))))

FORMER_SPELLINGS = (
    *(Patch(module, name, f"{OURS}.compat.contrib.canned:{name}",
            "exists no longer; programs import it, and some never use it")
      # The first is a separate module in TensorFlow 2.15.
      for module in (f"{_V1_API}.estimator", f"{ESTIMATOR_API}._v1.estimator",
                     f"{ESTIMATOR_API}._v2.estimator", "tensorflow_estimator._api.v1.estimator",
                     "tensorflow_estimator._api.v2.estimator") for name in canned.NAMES),
    *(_former(module, "tpu", f"{ESTIMATOR_API}._v1.estimator.tpu")
      for module in (f"{ESTIMATOR_API}._v2.estimator", "tensorflow_estimator._api.v2.estimator")),
    *(_former(f"{ESTIMATOR_API}._v1.estimator.tpu.experimental", name, f"{V1_API_MODULE}:{name}")
      for name in EXPORTED),
    *(_former(f"{tpu}.experimental", name, source)
      for tpu in ("tensorflow._api.v2.tpu", "tensorflow.tpu")
      for name, source in (
          ("embedding_column", f"{_V1_API}.tpu.experimental:embedding_column"),
          ("shared_embedding_columns", f"{_V1_API}.tpu.experimental:shared_embedding_columns"),
          *((name, f"{V1_API_MODULE}:{name}") for name in EXPORTED))),
    *(_former(tpu, name, f"{_V1_API}.tpu:{name}")
      for tpu in ("tensorflow._api.v2.tpu", "tensorflow.tpu")
      for name in ("CrossShardOptimizer", "batch_parallel", "bfloat16_scope", "core",
                   "cross_replica_sum", "initialize_system", "outside_compilation",
                   "replicate", "rewrite", "shard", "shutdown_system")))


def _module(parent: str, name: str, source: str) -> Patch:
    # Does not look for an existing module: there is none, and looking would import the parent.
    return Patch(parent, name, source, _CONTRIB_REASON, is_module=True, replaces=True)


def _contrib(path: str) -> Patch:
    parent, _, name = f"{modules.PREFIX}.{path}".rpartition(".")
    if path in contents.HIDDEN:
        parent, name = "", f"{parent}.{name}"
    return _module(parent, name, f"{_CONTRIB}:{path}")


CONTRIB = (
    _module("tensorflow", "contrib", f"{_CONTRIB}:root"),
    *(Patch(v1, "contrib", f"{_CONTRIB}:root", _CONTRIB_REASON)
      for v1 in ("tensorflow._api.v2.compat.v1", "tensorflow.compat.v1")),
    *map(_contrib, filter(None, modules.MODULES)))


def _embedding(module: str, name: str, **options: Any) -> Patch:
    return Patch(module, name, f"{OURS}.compat.stubs.tpu_embedding_classes:{name}",
                 "works without a TPU", replaces=True, **options)


MID_LEVEL = (
    *(Patch(f"tensorflow._api.v2{version}.distribute{parent}", "TPUStrategy",
            f"{OURS}.compat.stubs.tpu_strategy:{source}",
            "fails without a TPU; uses the devices of this machine instead", replaces=True)
      for version in ("", ".compat.v2")
      for parent, source in (("", "TPUStrategy"), (".experimental", "ExperimentalTPUStrategy"))),
    *(_embedding(module, name) for module in _EMBEDDING
      for name in ("TPUEmbedding", "TPUEmbeddingV2")),
    _embedding(f"{_PYTHON}.tpu.tpu_embedding_v2", "TPUEmbedding"),
    _embedding(f"{_PYTHON}.tpu.tpu_embedding_v3", "TPUEmbeddingV2", since=(2, 16)),
    *(Patch(module, "TPUEmbeddingForServing", f"{OURS}.mid_level:TPUEmbeddingForServing",
            "uses this package's tables", replaces=True)
      for module in (*_EMBEDDING, f"{_PYTHON}.tpu.tpu_embedding_for_serving")),
    *(_embedding(module, "TPUEmbeddingV0")
      for module in (*_EMBEDDING, f"{_PYTHON}.tpu.tpu_embedding_v1")),
    Patch(f"{_PYTHON}.distribute", "tpu_strategy", f"{OURS}.runtime.strategy_view:tpu_strategy",
          "shows the classes for this machine; TensorFlow's modules still use their own",
          is_module=True, replaces=True),
    *(Patch(module, name, f"{OURS}.mid_level:{name}", "new in TensorFlow 2.21")
      for module in _EMBEDDING for name in ("RowIdInitializer", "SparseCoreEmbeddingConfig")))


SERVER = (
    Patch(_SERVER, "__init__", f"{OURS}.compat.stubs.server:starting",
          "a server does not run ops that are loaded after it has started", replaces=True,
          wraps=True),
    Patch(_SERVER, "join", f"{OURS}.compat.stubs.server:joining",
          "blocks signals, so that Ctrl-C does not end a server", replaces=True, wraps=True))


def _stub(module: str, name: str, source: str, reason: str, *, wraps: bool = False) -> Patch:
    return Patch(module, name, f"{_STUBS}.{source}", reason, replaces=True, wraps=wraps)


def _computation(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, f"{OURS}.estimator.replicas.{source}",
                 "builds a graph that cannot run without a TPU; this machine computes it",
                 replaces=True)


_BATCH_NORMALIZATION = f"{legacy_keras.package()}.src.layers.normalization.batch_normalization"

TPU_SYSTEM = (
    Patch(f"{_BATCH_NORMALIZATION}:BatchNormalizationBase",
          "__init_subclass__", f"{_STUBS}.batch_normalization:init_subclass",
          "calls `_moments` with an argument that subclasses of programs do not take"),
    _stub("tensorflow.python.framework.importer", "_import_graph_def_internal",
          "graph_imports:importing", "does not know compiled ops before a table exists",
          wraps=True),
    _stub("tensorflow.python.tpu.tpu_system_metadata", "_query_tpu_system_metadata",
          "tpu_metadata:querying",
          "does not say what to do about a program's own copy of TPUEstimator", wraps=True),
    *(_stub("tensorflow.python.distribute.cluster_resolver.tpu_cluster_resolver:"
            "TPUClusterResolver", name, f"tpu_resolver:{function}",
            "tries the network for minutes; this machine stands in if no TPU answers")
      for name, function in (("__init__", "initialize"),
                             ("num_accelerators", "num_accelerators"),
                             ("get_tpu_system_metadata", "get_tpu_system_metadata"),
                             ("cluster_spec", "cluster_spec"))),
    Patch("tensorflow_estimator.python.estimator.tpu.tpu_config:RunConfig", "__init__",
          f"{OURS}.runtime.run_config:initializing",
          "a session waits for a master that does not answer", replaces=True, wraps=True),
    Patch("tensorflow_estimator.python.estimator.run_config:RunConfig", "__init__",
          f"{OURS}.runtime.run_config:initializing_plain",
          "errors about TF_CONFIG do not name it", replaces=True, wraps=True),
    _stub("tensorflow.python.client.session:BaseSession", "__init__",
          "tpu_setup:creating_session", "a session waits for a master that does not answer",
          wraps=True),
    *(_stub(module, name, f"tpu_devices:{function}",
            "fails for ops on the hosts of a TPU; this machine runs them", wraps=True)
      for module, name, function in (
          ("tensorflow.python.client.session:BaseSession", "_extend_graph", "extending"),
          ("tensorflow.python.eager.polymorphic_function.atomic_function", "from_func_graph",
           "making_function"),
          ("tensorflow.python.framework.function", "func_graph_from_py_func", "making_defun"))),
    *(_stub(module, name, f"tpu_setup:{name}", "fails without a TPU")
      for module, names in (
          ("tensorflow.python.tpu.tpu_strategy_util",
           ("initialize_tpu_system_impl", "shutdown_tpu_system_impl")),
          ("tensorflow.python.tpu.ops.tpu_ops",
           ("configure_distributed_tpu", "configure_tpu_embedding",
            "shutdown_distributed_tpu")),
          ("tensorflow.python.tpu.tpu", ("_tpu_system_device_name",)))
      for name in names),
    *(_stub(module, name, "tpu_setup:connect_to_remote_host",
            "waits for a host that does not answer")
      for module, name in (
          ("tensorflow.python.eager.remote", "connect_to_remote_host"),
          *((f"tensorflow._api.v2{version}.config", "experimental_connect_to_host")
            for version in ("", ".compat.v1", ".compat.v2")))),
    *(_stub(module, "core", "tpu_setup:core", "names a device that only a TPU has")
      for module in ("tensorflow.python.tpu.tpu_name_util", "tensorflow.python.tpu.tpu",
                     *_V1_TPU_APIS)),
    *(_computation(module, name, f"tpu_computations:{name}")
      for name in ("rewrite", "replicate", "split_compile_and_replicate", "shard",
                   "batch_parallel", "split_compile_and_shard")
      for module in ("tensorflow.python.tpu.tpu",
                     *(() if name.startswith("split_") else _V1_TPU_APIS))),
    *(_computation("tensorflow.python.tpu.training_loop", name, f"training_loop:{name}")
      for name in ("repeat", "while_loop")),
    *(Patch(module, "while_loop", f"{OURS}.estimator.replicas.training_loop:looping",
            "a loop that receives from a feed cannot be copied for each replica", replaces=True,
            wraps=True)
      for module in ("tensorflow.python.ops.while_loop", "tensorflow._api.v2.compat.v1",
                     "tensorflow.compat.v1")),
    *(_computation(module, name, f"tpu_inference:{name}")
      for name in ("call_computation", "inference_on_tpu")
      for module in ("tensorflow_estimator.python.estimator.tpu.tpu_estimator",
                     "tensorflow.python.tpu.tpu_estimator")),
    *(_stub(module, name.title().replace("_", "") if module.endswith("raw_ops") else name,
            f"tpu_feeds:{name}",
            "has no kernel without a TPU; the feeds of this machine are channels")
      for module in ("tensorflow.python.tpu.ops.tpu_ops", *_RAW_OPS)
      for name in ("infeed_dequeue", "infeed_dequeue_tuple", "infeed_enqueue",
                   "infeed_enqueue_tuple", "infeed_enqueue_prelinearized_buffer", "prelinearize",
                   "prelinearize_tuple", "outfeed_dequeue", "outfeed_dequeue_tuple",
                   "outfeed_enqueue", "outfeed_enqueue_tuple")),
    _stub("tensorflow.python.tpu.tpu_feed:_PartitionedInfeedQueue", "generate_enqueue_ops",
          "tpu_partitioned_feeds:generate_enqueue_ops",
          "splits the input over cores that this machine computes as one"),
    *(_stub("tensorflow.python.tpu.ops.tpu_ops", name, f"tpu_embedding_ops:{name}",
            "has no kernel without a TPU; uses this package's tables")
      for name in ("enqueue_tpu_embedding_arbitrary_tensor_batch",
                   "enqueue_tpu_embedding_integer_batch",
                   "enqueue_tpu_embedding_ragged_tensor_batch",
                   "enqueue_tpu_embedding_sparse_batch",
                   "enqueue_tpu_embedding_sparse_tensor_batch",
                   "recv_tpu_embedding_activations", "send_tpu_embedding_gradients")),
    *(_stub("tensorflow.python.tpu.ops.tpu_ops",
            f"{verb}_tpu_embedding_{record.proto}_parameters",
            f"tpu_embedding_tables:{verb}_tpu_embedding_{record.proto}_parameters",
            "has no kernel without a TPU; uses this package's tables")
      for record in records() for verb in ("load", "retrieve")),
    *(_former("tensorflow.python.tpu.ops.tpu_ops", name, f"{_STUBS}.tpu_embedding_tables:{name}")
      for record in records() for verb in ("load", "retrieve")
      for name in [f"{verb}_tpu_embedding_{record.proto}_parameters_grad_accum_debug"]),
    _stub("tensorflow.python.client.session:BaseSession", "_do_run", "tpu_runs:running",
          "a run that waits for another thread's would wait forever if that thread has failed",
          wraps=True))
