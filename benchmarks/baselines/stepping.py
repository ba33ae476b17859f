# SPDX-License-Identifier: Apache-2.0
"""Times baselines whose step is a function call."""

import time
from collections.abc import Callable


def timed_steps(step: Callable[[int], object], first: int, count: int, num_batches: int) -> float:
    """Calls `step` with the index of a batch, `count` times; returns the duration in seconds."""
    start = time.perf_counter()
    for number in range(first, first + count):
        step(number % num_batches)
    return time.perf_counter() - start
