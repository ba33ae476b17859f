# SPDX-License-Identifier: Apache-2.0
"""The description of a TPU system that a program's own copy of TPUEstimator asks for.

Some programs bring a copy of TensorFlow's TPUEstimator in their own source tree. Nothing of it can
be replaced, because its names are the program's. It fails where it looks for cores.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any


def querying(original: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that describes a TPU system as another one does.

    It raises RuntimeError if there is no TPU, and a module asks that is not TensorFlow's.
    """
    @functools.wraps(original)
    def query_tpu_system_metadata(*arguments: Any, **named: Any) -> Any:
        module = sys._getframe(1).f_globals.get("__name__", "")
        try:
            found = original(*arguments, **named)
        except RuntimeError as error:
            raise _explained(module) if _is_copy(module) else error from None
        if not found.num_cores and _is_copy(module):
            raise _explained(module)
        return found

    return query_tpu_system_metadata


def _is_copy(module: str) -> bool:
    return module.partition(".")[0] not in (
        "tensorflow", "tensorflow_estimator", "tpu_estimator_embedding")


def _explained(module: str) -> RuntimeError:
    return RuntimeError(
        f"Cannot find any TPU cores in the system: {module!r} asks for them. If it is a copy of "
        "TensorFlow's TPUEstimator in the program's own source tree, tpu_estimator_embedding "
        "cannot replace it. Import `tensorflow.compat.v1.estimator.tpu`, or `tensorflow.python.tpu."
        "tpu_estimator`, tpu_config and tpu_context, instead of the copy.")
