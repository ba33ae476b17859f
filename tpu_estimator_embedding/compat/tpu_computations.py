# SPDX-License-Identifier: Apache-2.0
"""Functions that compile a computation for a TPU: where there is none, an error says so.

Without it they build a graph that no session takes, and the error of the session names an
op that no program has written.
"""

import functools
from collections.abc import Callable
from typing import Any

from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu import tpu

from tpu_estimator_embedding.compat import tpu_system


def _refused(name: str) -> Callable[..., Any]:
    compile_for_tpu = getattr(tpu, name)

    @functools.wraps(compile_for_tpu)
    def refuse(*arguments: Any, **named: Any) -> Any:
        if tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None:
            return compile_for_tpu(*arguments, **named)
        raise NotImplementedError(
            f"`tpu.{name}` compiles its computation for a TPU, and there is none. Call the "
            f"computation itself, as in `computation(*inputs)`, or let TPUEstimator call it.")

    return refuse


rewrite = _refused("rewrite")
replicate = _refused("replicate")
shard = _refused("shard")
batch_parallel = _refused("batch_parallel")
split_compile_and_replicate = _refused("split_compile_and_replicate")
split_compile_and_shard = _refused("split_compile_and_shard")
