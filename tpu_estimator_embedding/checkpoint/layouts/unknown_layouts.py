# SPDX-License-Identifier: Apache-2.0
"""The layout that the user states for checkpoints that do not record one."""

import os

from tpu_estimator_embedding import checks

# Set by `run --checkpoint-num-hosts`, for programs that do not pass the number themselves.
CHECKPOINT_NUM_HOSTS = "TPU_ESTIMATOR_EMBEDDING_CHECKPOINT_NUM_HOSTS"


def hosts_from_environment() -> int | None:
    """Returns the number of hosts that wrote such checkpoints; None if it is not set.

    Raises:
        ValueError: if the value is not a positive int.
    """
    text = os.environ.get(CHECKPOINT_NUM_HOSTS)
    if not text:
        return None
    checks.check(text.isdecimal() and int(text) > 0, CHECKPOINT_NUM_HOSTS, "an int of at least 1",
                 text)
    return int(text)
