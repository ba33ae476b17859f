# SPDX-License-Identifier: Apache-2.0
"""Functions that exchange tensors with a TPU; without a TPU they raise errors.

TensorFlow's functions would build a graph that no session can run, and the error of the session
would name an op that does not appear in the program.
"""

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding.compat.stubs import tpu_system


def _feeding(name: str) -> Callable[..., Any]:
    on_a_tpu = getattr(tpu_ops, name)

    @functools.wraps(on_a_tpu)
    def refuse(*arguments: Any, **named: Any) -> Any:
        if tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None:
            return on_a_tpu(*arguments, **named)
        raise NotImplementedError(
            f"`tpu_ops.{name}` exchanges tensors with a TPU, and there is none. Pass the tensors "
            f"directly, or let TPUEstimator feed its model_fn.")

    return refuse


infeed_dequeue = _feeding("infeed_dequeue")
infeed_dequeue_tuple = _feeding("infeed_dequeue_tuple")
infeed_enqueue = _feeding("infeed_enqueue")
infeed_enqueue_tuple = _feeding("infeed_enqueue_tuple")
outfeed_dequeue = _feeding("outfeed_dequeue")
outfeed_dequeue_tuple = _feeding("outfeed_dequeue_tuple")
outfeed_enqueue = _feeding("outfeed_enqueue")
outfeed_enqueue_tuple = _feeding("outfeed_enqueue_tuple")
