# SPDX-License-Identifier: Apache-2.0
"""Hints for errors that ended a program and whose message does not name the fix."""

import re
import sys
from types import ModuleType

_API = re.compile(r"tensorflow(?:\._api\.v2)?(?:\.(?!python|compat)([\w.]+))?"
                  r"|tensorflow_estimator\.python\.estimator\.api\._v2\.([\w.]+)")


def hint(error: BaseException) -> str:
    """Returns one sentence; empty if the error needs no hint."""
    if not isinstance(error, AttributeError):
        return ""
    if error.name == "value" and isinstance(error.obj, int | None):
        return ("In TensorFlow 2, sizes of a shape are ints without `.value`. Run the program "
                "with `run --tf1`, or call tf.compat.v1.disable_v2_tensorshape() in it.")
    module = error.obj.__name__ if isinstance(error.obj, ModuleType) else ""
    api = _API.fullmatch(module)
    if not api or not error.name:
        return ""
    below = api[1] or api[2] or ""
    found = sys.modules.get("tensorflow.compat.v1")
    for name in [*filter(None, below.split(".")), error.name]:
        found = getattr(found, name, None)
    if found is None:
        return ""
    path = ".".join(filter(None, ("tf", below, error.name)))
    return (f"{path} is a name of TensorFlow 1.x. Run the program with `run --tf1`, or write "
            f"`import tensorflow.compat.v1 as tf` in it.")
