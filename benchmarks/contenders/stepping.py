# SPDX-License-Identifier: Apache-2.0
"""The clock of the contenders whose step is a call."""

import time
from collections.abc import Callable


def timed_steps(step: Callable[[int], object], first: int, count: int, num_batches: int) -> float:
    """Calls `step` with the number of a batch, `count` times; returns the seconds it took."""
    start = time.perf_counter()
    for number in range(first, first + count):
        step(number % num_batches)
    return time.perf_counter() - start
