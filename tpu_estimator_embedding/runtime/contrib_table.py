# SPDX-License-Identifier: Apache-2.0
"""The rows of the table of patches that create `tf.contrib`."""

from tpu_estimator_embedding.compat.contrib import contents, modules
from tpu_estimator_embedding.compat.patch import Patch

_SOURCE = "tpu_estimator_embedding.compat.contrib.modules"
_REASON = "the spelling of TensorFlow 1.x"


def _module(parent: str, name: str, source: str) -> Patch:
    # Does not look for an existing module: there is none, and looking would import the parent.
    return Patch(parent, name, source, _REASON, is_module=True, replaces=True)


def _contrib(path: str) -> Patch:
    parent, _, name = f"{modules.PREFIX}.{path}".rpartition(".")
    if path in contents.HIDDEN:
        parent, name = "", f"{parent}.{name}"
    return _module(parent, name, f"{_SOURCE}:{path}")


CONTRIB = (
    _module("tensorflow", "contrib", f"{_SOURCE}:root"),
    *(Patch(v1, "contrib", f"{_SOURCE}:root", _REASON)
      for v1 in ("tensorflow._api.v2.compat.v1", "tensorflow.compat.v1")),
    *map(_contrib, filter(None, modules.MODULES)))
