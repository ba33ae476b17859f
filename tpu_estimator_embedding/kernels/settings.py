# SPDX-License-Identifier: Apache-2.0
"""The environment variables that choose how the kernels run. Each is read once in a process."""

import os
from collections.abc import Sequence

from tpu_estimator_embedding import checks

KERNELS = "TPU_ESTIMATOR_EMBEDDING_KERNELS"
SIMD = "TPU_ESTIMATOR_EMBEDDING_SIMD"
HUGE_PAGES = "TPU_ESTIMATOR_EMBEDDING_HUGE_PAGES"
ONE_ARENA = "TPU_ESTIMATOR_EMBEDDING_ONE_ARENA"

_VALUES: dict[str, tuple[Sequence[str], str]] = {
    KERNELS: (("native", "tf", "off"), "Unset it to run the compiled ops where possible."),
    SIMD: (("baseline", "avx2", "avx512"),
           "Unset it to run the best instruction set of the machine."),
    HUGE_PAGES: (("on", "off"), "Unset it to move trained tables into huge pages."),
    ONE_ARENA: (("on", "off"), "Unset it to let all threads allocate from one arena."),
}


def value(variable: str) -> str:
    """Returns the value of one of the variables, empty where it is not set.

    Raises:
        ValueError: if the value is not known.
    """
    found = os.environ.get(variable, "")
    allowed, fix = _VALUES[variable]
    if found:
        checks.check_one_of(variable, allowed, found, fix)
    return found


def check_level(level: str) -> None:
    """Checks that the instruction set that runs is the one asked for, if any was.

    Raises:
        ValueError: if the machine does not have the one asked for.
    """
    wanted = value(SIMD)
    checks.check(wanted in ("", level), SIMD,
                 f"an instruction set of this machine, the best of which is {level!r}", wanted,
                 _VALUES[SIMD][1])


def huge_pages() -> str:
    """Describes whether trained tables move into huge pages.

    >>> huge_pages() in ("on", f"off, by {HUGE_PAGES}")
    True
    """
    return f"off, by {HUGE_PAGES}" if value(HUGE_PAGES) == "off" else "on"
