# SPDX-License-Identifier: Apache-2.0
"""The limit of a session run's steps that is set outside of a program.

`run --steps-per-run` sets it in an environment variable. With 1, hooks are called after every
step, instead of after every loop of `iterations_per_loop` steps.
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
