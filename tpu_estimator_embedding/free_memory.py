# SPDX-License-Identifier: Apache-2.0
"""How much memory this process can still use."""

import pathlib

_MEMINFO = pathlib.Path("/proc/meminfo")
# Of a container, as it sees itself: the file with its limit, and the statistic of what it uses
# without pages of files, by version 2 and 1 of control groups.
_CGROUP = pathlib.Path("/sys/fs/cgroup")
_LIMITS = (("memory.max", "memory.stat", "anon"),
           ("memory/memory.limit_in_bytes", "memory/memory.stat", "total_rss"))


def free_memory() -> int | None:
    """Returns the free bytes of the machine, or of the container if it has fewer; None if unknown.

    Pages of files that the system keeps count as free.
    """
    known = [number for number in (_of_machine(), *(_of_container(*limit) for limit in _LIMITS))
             if number is not None]
    return min(known, default=None)


def _of_machine() -> int | None:
    kibibytes = _fields(_MEMINFO).get("MemAvailable")
    return None if kibibytes is None else 1024 * kibibytes


def _of_container(limit_file: str, statistics: str, name: str) -> int | None:
    try:
        limit = (_CGROUP / limit_file).read_text("ascii").strip()
    except OSError:
        return None
    used = _fields(_CGROUP / statistics).get(name)
    return None if limit == "max" or used is None else max(0, int(limit) - used)


def _fields(path: pathlib.Path) -> dict[str, int]:
    try:
        lines = path.read_text("ascii").splitlines()
    except OSError:
        return {}
    return {words[0].rstrip(":"): int(words[1]) for line in lines
            for words in [line.split()] if len(words) > 1 and words[1].isdecimal()}
