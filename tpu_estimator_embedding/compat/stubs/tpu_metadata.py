# SPDX-License-Identifier: Apache-2.0
"""The description of a TPU system that a program's own copy of TPUEstimator asks for.

Some programs bring a copy of TensorFlow's TPUEstimator in their own source tree. Nothing of it can
be replaced, because its names are the program's. It fails where it looks for cores.
"""

import sys
from typing import Any

from tensorflow.python.tpu import tpu_system_metadata

_query = tpu_system_metadata._query_tpu_system_metadata


def query_tpu_system_metadata(*arguments: Any, **named: Any) -> Any:
    """Returns the description of a TPU system, as TensorFlow does.

    Raises:
        RuntimeError: if there is no TPU, and a module asks that is not TensorFlow's.
    """
    module = sys._getframe(1).f_globals.get("__name__", "")
    try:
        found = _query(*arguments, **named)
    except RuntimeError as error:
        raise _explained(module) if _is_copy(module) else error from None
    if not found.num_cores and _is_copy(module):
        raise _explained(module)
    return found


def _is_copy(module: str) -> bool:
    return module.partition(".")[0] not in (
        "tensorflow", "tensorflow_estimator", "tpu_estimator_embedding")


def _explained(module: str) -> RuntimeError:
    return RuntimeError(
        f"Cannot find any TPU cores in the system: {module!r} asks for them. If it is a copy of "
        "TensorFlow's TPUEstimator in the program's own source tree, tpu_estimator_embedding "
        "cannot replace it. Import `tensorflow.compat.v1.estimator.tpu`, or `tensorflow.python.tpu."
        "tpu_estimator`, tpu_config and tpu_context, instead of the copy.")
