# SPDX-License-Identifier: Apache-2.0
"""The progress bar of functions that read or write whole tables."""

import tqdm

_DELAY = 1  # seconds; shorter work shows no bar


class _Bar(tqdm.tqdm):
    monitor_interval = 0  # no monitor thread, which would outlive the bar


def progress_bar(what: str, size: int, is_shown: bool) -> tqdm.tqdm:
    """Returns a bar for `size` bytes; use it as a context manager."""
    return _Bar(desc=what, total=size, unit="B", unit_scale=True, unit_divisor=1024,
                delay=_DELAY, disable=not is_shown)
