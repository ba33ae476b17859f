# SPDX-License-Identifier: Apache-2.0
"""Has all threads allocate from one arena, in which memory that a step frees stays mapped.

glibc gives each thread of TensorFlow's pools its own arena. It returns the memory of large
tensors to Linux when they are freed there, so every step faults them in again, page by page: 40 %
of the CPU time of a DLRM's step. The main arena adapts to what a program frees, and keeps it.
"""

import ctypes
import functools
import os
import sys

from tpu_estimator_embedding import settings

_MOST_CORES = 16  # the lock of one arena was not measured with more
_M_ARENA_MAX = -8  # of glibc's malloc.h


@functools.cache
def share() -> str:
    """Limits glibc to one arena unless something speaks against it; returns how many there are.

    Threads that have an arena keep it. So this runs when the package's tables are imported, before
    TensorFlow starts the threads of a session. Results do not change.

    >>> share() == share()
    True
    """
    reason = _reason_against()
    if reason:
        return f"as many as the system makes: {reason}"
    return "one" if ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1) else "as many as the system makes"


def _reason_against() -> str:
    chosen = settings.ONE_ARENA.given()  # `load.kernels` refuses unknown words
    if chosen == "off":
        return f"{settings.ONE_ARENA.variable}=off"
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return "its C library is not glibc"
    if (settings.MALLOC_ARENA_MAX.read() is not None
            or "arena" in (settings.GLIBC_TUNABLES.read() or "")):
        return "the environment chooses a number"
    if chosen != "on" and len(os.sched_getaffinity(0)) > _MOST_CORES:
        return f"more than {_MOST_CORES} cores; {settings.ONE_ARENA.variable}=on limits them to one"
    return ""
