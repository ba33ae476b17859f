# SPDX-License-Identifier: Apache-2.0
"""The interval between statistics, from a command line or the environment."""

import os
import re

from tpu_estimator_embedding import checks

VARIABLE = "TPU_ESTIMATOR_EMBEDDING_STATISTICS"


def parse(text: str) -> int:
    """Parses `every=N`; returns N.

    Raises:
        ValueError: if the text has another format.

    >>> parse("every=100")
    100
    """
    match = re.fullmatch(r"every=(\d+)", text)
    checks.check(match is not None and int(match[1]) > 0, "--statistics",
                 "every=N, a number of steps of at least 1", text)
    assert match is not None
    return int(match[1])


def from_environment() -> int | None:
    """Returns the number of steps between statistics of a program; None means no statistics.

    Raises:
        ValueError: if the environment variable has another format.
    """
    text = os.environ.get(VARIABLE)
    return parse(text) if text else None
