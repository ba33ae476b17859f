# SPDX-License-Identifier: Apache-2.0
"""How much memory this process can still use."""

import pathlib

_MEMINFO = pathlib.Path("/proc/meminfo")
_CGROUP = pathlib.Path("/sys/fs/cgroup")  # of a container, as it sees itself


def free_memory() -> int | None:
    """Returns the free bytes of the machine, or of the container if it has fewer; None if unknown.

    Pages of files that the system keeps count as free.
    """
    known = [number for number in (_of_machine(), _of_container()) if number is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    kibibytes = _fields(_MEMINFO).get("MemAvailable")
    return None if kibibytes is None else 1024 * kibibytes


def _of_container() -> int | None:
    try:
        limit = (_CGROUP / "memory.max").read_text("ascii").strip()
    except OSError:
        return None
    used = _fields(_CGROUP / "memory.stat").get("anon")
    return None if limit == "max" or used is None else max(0, int(limit) - used)


def _fields(path: pathlib.Path) -> dict[str, int]:
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) for line in lines
            for words in [line.split()] if len(words) > 1 and words[1].isdecimal()}
