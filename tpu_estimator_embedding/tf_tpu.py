# SPDX-License-Identifier: Apache-2.0
"""`tf.compat.v1.tpu`, and what `tf.contrib.tpu` added to it, for explicit imports.

Nothing in TensorFlow is patched for it but what `TPUEstimator` itself needs, and what Savers of
a program need for the tables of `tpu_embedding`, when that name is read. Where no TPU
answers, this machine stands in for it in what these names do, as after `install()`. The
modules that programs imported from `tensorflow.python.tpu` are here too: `tpu_embedding`,
`tpu_embedding_gradient`, `tpu_config` and so on.

>>> from tpu_estimator_embedding import tf_tpu
>>> tf_tpu.experimental.embedding_column.__module__
'tpu_estimator_embedding.feature_column.embedding_column'
"""

import importlib
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding import tf_estimator  # first of all, because it chooses Keras 2
from tpu_estimator_embedding.types import Tensor

# isort: split
import tensorflow as tf

from tpu_estimator_embedding import mid_level
from tpu_estimator_embedding.compat.stubs import tpu_setup
from tpu_estimator_embedding.compat.stubs.tpu_resolver import TPUClusterResolver
from tpu_estimator_embedding.compat.stubs.tpu_strategy import (
    ExperimentalTPUStrategy,
    TPUStrategy,
)
from tpu_estimator_embedding.estimator.replicas import tpu_computations, tpu_inference
from tpu_estimator_embedding.feature_column.embedding_column import embedding_column
from tpu_estimator_embedding.feature_column.shared_embedding_columns import (
    shared_embedding_columns,
)
from tpu_estimator_embedding.patches import patch, patch_table
from tpu_estimator_embedding.patches.module_view import ModuleView
from tpu_estimator_embedding.patches.patch_table import EXPORTED

if TYPE_CHECKING:
    from google.protobuf import message

_OURS = "tpu_estimator_embedding.compat.modules"
_THEIRS = "tensorflow_estimator.python.estimator.tpu"
_TENSORFLOW = "tensorflow.python.tpu"

# Name -> the module that it is, of those that `tensorflow.python.tpu` has or had.
_MODULES = {
    **{name: f"{_OURS}.{name}" for name in (
        "async_checkpoint", "session_support", "tpu_embedding", "tpu_embedding_gradient")},
    **{name: f"{_THEIRS}.{name}" for name in ("error_handling", "tpu_config", "tpu_context",
                                              "util")},
    **{name: f"{_TENSORFLOW}.{name}" for name in (
        "bfloat16", "feature_column", "feature_column_v2", "functional", "topology", "tpu",
        "tpu_feed", "tpu_function", "tpu_optimizer", "tpu_sharding", "tpu_system_metadata",
        "training_loop")},
    "tpu_ops": f"{_TENSORFLOW}.ops.tpu_ops",
}

# Name -> "module:attribute", of what only `tf.contrib.tpu` had.
_CONTRIB = {
    "AsyncCheckpointSaverHook": f"{_OURS}.async_checkpoint:AsyncCheckpointSaverHook",
    "device_assignment": f"{_TENSORFLOW}.device_assignment:device_assignment",
    "repeat": "tpu_estimator_embedding.estimator.replicas.training_loop:repeat",
    "while_loop": "tpu_estimator_embedding.estimator.replicas.training_loop:while_loop",
}

__all__ = ["TPUClusterResolver", "TPUStrategy", "batch_parallel", "core", "experimental",
           "experimental_connect_to_host", "initialize_system", "replicate", "rewrite", "shard",
           "shutdown_system"]

batch_parallel = tpu_computations.batch_parallel
core = tpu_setup.core
experimental_connect_to_host = tpu_setup.connect_to_remote_host
replicate = tpu_computations.replicate
rewrite = tpu_computations.rewrite
shard = tpu_computations.shard


def initialize_system(embedding_config: "message.Message | None" = None, job: str | None = None,
                      **named: object) -> tf.Tensor:
    """Returns the serialized topology, as `tf.compat.v1.tpu.initialize_system` does."""
    with tf.device(tpu_setup._tpu_system_device_name(job)):
        config = embedding_config.SerializeToString() if embedding_config else ""
        return tpu_setup.configure_distributed_tpu(embedding_config=config, **named)


def shutdown_system(job: str | None = None) -> tf.Operation:
    """Returns the op that shuts the TPU system down: this machine goes on."""
    with tf.device(tpu_setup._tpu_system_device_name(job)):
        return tpu_setup.shutdown_distributed_tpu()


def _initialize_tpu_system(
        cluster_resolver: object = None) -> tf.tpu.experimental.Topology | Tensor:
    """Returns the topology, as `tf.tpu.experimental.initialize_tpu_system` does."""
    return tpu_setup.initialize_tpu_system_impl(cluster_resolver, TPUClusterResolver)


def _shutdown_tpu_system(cluster_resolver: object = None) -> None:
    """Shuts the TPU system down: this machine goes on."""
    tpu_setup.shutdown_tpu_system_impl(cluster_resolver, TPUClusterResolver)


experimental = ModuleView(
    f"{__name__}.experimental", lambda: tf.compat.v1.tpu.experimental, {
        "TPUStrategy": ExperimentalTPUStrategy,
        "embedding": mid_level,
        "embedding_column": embedding_column,
        "initialize_tpu_system": _initialize_tpu_system,
        "shared_embedding_columns": shared_embedding_columns,
        "shutdown_tpu_system": _shutdown_tpu_system,
        **{name: getattr(tf_estimator.tpu.experimental, name) for name in EXPORTED}})


def _load_tpu_estimator() -> Any:
    from tpu_estimator_embedding.runtime import estimator_views
    return estimator_views.tpu_estimator


# For programs without `install()`, which patches the module itself.
_tpu_estimator = ModuleView(f"{__name__}.tpu_estimator", _load_tpu_estimator, {
    name: getattr(tpu_inference, name)
    for name in ("call_computation", "inference_on_tpu", "model_fn_inference_on_tpu")})


def __getattr__(name: str) -> Any:
    if name == "tpu_embedding":  # whose tables a program's own Saver saves and restores
        for row in patch_table.SAVERS:
            patch.apply(row)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name == "tpu_estimator":
        return _tpu_estimator
    if name in _CONTRIB:
        module, _, attribute = _CONTRIB[name].partition(":")
        return getattr(importlib.import_module(module), attribute)
    for home in (tf.compat.v1.tpu, tf_estimator.tpu, experimental):
        if not name.startswith("_") and hasattr(home, name):
            return getattr(home, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    shown = {*__all__, *_MODULES, *_CONTRIB, "tpu_estimator"}
    for home in (tf.compat.v1.tpu, tf_estimator.tpu, experimental):
        shown.update(name for name in dir(home) if not name.startswith("_"))
    return sorted(shown)
