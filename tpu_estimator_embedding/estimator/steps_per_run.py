# SPDX-License-Identifier: Apache-2.0
"""The limit of a session run's steps that comes from outside of a program.

The variable says it, which `run --steps-per-run` sets. With 1, hooks are called after every step,
which `iterations_per_loop` has a TPU do for loops.
"""

import os

from tpu_estimator_embedding import checks

VARIABLE = "TPU_ESTIMATOR_EMBEDDING_STEPS_PER_RUN"


def limit() -> int | None:
    """Returns the limit; None where the variable is not set.

    Raises:
        ValueError: it is not a positive number.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    checks.check(text.isdecimal() and int(text) > 0, VARIABLE, "a positive number of steps", text)
    return int(text)
