# SPDX-License-Identifier: Apache-2.0
"""The peak of this process's memory."""

import ctypes
import pathlib
import resource


def peak_bytes() -> int:
    """Returns the most memory that the process has used since the peak was reset."""
    status = pathlib.Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def reset_peak() -> None:
    """Resets the peak of memory use, if the C library and the kernel can."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # freed memory would hide the memory of the tables
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError):
        return
