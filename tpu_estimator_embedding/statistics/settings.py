# SPDX-License-Identifier: Apache-2.0
"""How often statistics are taken, as a command line and the environment say it."""

import os
import re

from tpu_estimator_embedding import checks

VARIABLE = "TPU_ESTIMATOR_EMBEDDING_STATISTICS"


def parse(text: str) -> int:
    """Reads `every=N`; returns N.

    Raises:
        ValueError: if it is something else.

    >>> parse("every=100")
    100
    """
    match = re.fullmatch(r"every=(\d+)", text)
    checks.check(match is not None and int(match[1]) > 0, "--statistics",
                 "every=N, a number of steps of at least 1", text)
    assert match is not None
    return int(match[1])


def from_environment() -> int | None:
    """Returns after how many steps a program is to take statistics; None for never.

    Raises:
        ValueError: if the variable says something else.
    """
    text = os.environ.get(VARIABLE)
    return parse(text) if text else None
