# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches that make `tf.contrib`."""

from tpu_estimator_embedding.compat.contrib import contents
from tpu_estimator_embedding.compat.patch import Patch

_CONTRIB = "tensorflow.contrib"
_SOURCE = "tpu_estimator_embedding.compat.contrib.modules"
_REASON = "the spelling of TensorFlow 1.x"


def _module(parent: str, name: str, source: str) -> Patch:
    # Nothing can be there, so nothing is looked for: looking would import the parent.
    return Patch(parent, name, source, _REASON, is_module=True, replaces=True)


def _contrib(path: str) -> Patch:
    parent, _, name = f"{_CONTRIB}.{path}".rpartition(".")
    return _module(parent, name, f"{_SOURCE}:{path}")


CONTRIB = (
    _module("tensorflow", "contrib", f"{_SOURCE}:root"),
    *(Patch(v1, "contrib", f"{_SOURCE}:root", _REASON)
      for v1 in ("tensorflow._api.v2.compat.v1", "tensorflow.compat.v1")),
    *map(_contrib, (*contents.CONTENTS, "layers", "tpu.python", "tpu.python.tpu",
                    "tpu.python.ops", "cluster_resolver.python",
                    "cluster_resolver.python.training")),
    *(_module(f"{_CONTRIB}.tpu.python.tpu", name, f"tensorflow.python.tpu.{name}")
      for name in contents.TPU_MODULES),
    _module(f"{_CONTRIB}.tpu.python.ops", "tpu_ops", "tensorflow.python.tpu.ops.tpu_ops"),
    _module(f"{_CONTRIB}.cluster_resolver.python.training", "tpu_cluster_resolver",
            "tensorflow.python.distribute.cluster_resolver.tpu_cluster_resolver"))
