# SPDX-License-Identifier: Apache-2.0
"""Whether a training goes on while a checkpoint is written.

`run --async-checkpoints` sets an environment variable. The argument of TPUEstimator overrides it.
"""

import os

from tpu_estimator_embedding import checks

VARIABLE = "TPU_ESTIMATOR_EMBEDDING_ASYNC_CHECKPOINTS"


def is_asynchronous(given: bool | None) -> bool:
    """Returns what a program gave; the default of its command line if it gave nothing.

    Raises:
        ValueError: if something else was given.
    """
    checks.check_one_of("async_checkpoints", (True, False, None), given)
    return os.environ.get(VARIABLE, "0") not in ("", "0") if given is None else given
