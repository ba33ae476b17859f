# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches that restore tf.estimator and its former names."""

from tpu_estimator_embedding.compat.patch import Patch
from tpu_estimator_embedding.compat.patch_table import (
    ESTIMATOR_API,
    EXPORTED,
    OURS,
    V1_API_MODULE,
)

_ESTIMATOR = "tensorflow_estimator.python.estimator"
_V1_API = "tensorflow.compat.v1"


def _estimator(module: str, version: str) -> Patch:
    return Patch(module, "estimator", f"{ESTIMATOR_API}.{version}.estimator",
                 "removed in TensorFlow 2.16; tensorflow_estimator still has it", is_module=True)


def _ours(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, f"{OURS}.{source}",
                 "this package's class, which needs no TPU", replaces=True)


def _former(module: str, name: str, source: str) -> Patch:
    return Patch(module, name, source, "the name in TensorFlow 1.15")


def _former_home(name: str) -> Patch:
    former = f"tensorflow.python.estimator{name and '.'}{name}"
    # Uses the full path, because views of modules forward assignments.
    return Patch("", former, f"{_ESTIMATOR}{name and '.'}{name}",
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

FORMER_HOMES = tuple(map(_former_home, (
    "", "estimator", "estimator_lib", "exporter", "gc", "model_fn", "run_config", "training",
    "util", "canned", "canned.head", "canned.metric_keys", "canned.optimizers",
    "canned.parsing_utils", "canned.prediction_keys", "export", "export.export",
    "export.export_lib", "export.export_output", "inputs", "inputs.inputs",
    "inputs.numpy_io", "inputs.pandas_io")))

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
    *(Patch(f"{_V1_API}.estimator{parent}", name, f"{ESTIMATOR_API}._v1.estimator{parent}.{name}",
            "one module for both of its names, so that both have this package's classes",
            is_module=True, replaces=True)
      for parent, name in (("", "tpu"), (".tpu", "experimental"))))

FORMER_SPELLINGS = (
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
