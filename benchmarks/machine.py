# SPDX-License-Identifier: Apache-2.0
"""Describes the machine."""

import importlib.metadata
import os
import pathlib
import platform
import re
from collections.abc import Sequence

_SOFTWARE = ("tensorflow", "tf-keras", "tf-estimator-nightly", "tensorflow-estimator", "torch",
             "fbgemm-gpu-cpu", "numpy")


def available_bytes() -> int:
    """Returns the bytes of memory that are available without swapping."""
    fields = _colon_separated("/proc/meminfo")
    if "MemAvailable" in fields:
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def describe() -> dict[str, str]:
    """Returns what decides the speed of a step, and the versions of the measured libraries."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    processor = _colon_separated("/proc/cpuinfo")
    return {"processor": processor.get("model name", platform.machine()),
            "instructions": _widest_instructions(processor.get("flags", "").split()),
            "caches": caches(),
            "cores": str(len(os.sched_getaffinity(0))),
            "memory": f"{memory / 2 ** 30:.0f} GiB",
            "huge pages": _huge_pages(),
            **load("load before"),
            "python": platform.python_version(),
            **{name: version for name in _SOFTWARE if (version := _version(name))}}


def has_avx512() -> bool:
    """Whether the processor has what the kernels for AVX-512 need."""
    return "avx512f" in _colon_separated("/proc/cpuinfo").get("flags", "").split()


def caches(directory: str = "/sys/devices/system/cpu/cpu0/cache") -> str:
    """Returns the caches of the first core, such as "L1 48K L2 2048K L3 32768K"."""
    found = []
    for path in sorted(pathlib.Path(directory).glob("index*")):
        kind, level, size = (_line(path / name) for name in ("type", "level", "size"))
        if kind != "Instruction":
            found.append(f"L{level} {size}")
    return " ".join(found) or "unknown"


def _widest_instructions(flags: Sequence[str]) -> str:
    known = {"avx512f": "AVX-512", "avx2": "AVX2"}
    return next((name for flag, name in known.items() if flag in flags), "neither AVX2 nor AVX-512")


def _huge_pages() -> str:
    """Returns the setting of transparent huge pages: always, madvise or never."""
    setting = re.search(r"\[(\w+)\]", _line(pathlib.Path(
        "/sys/kernel/mm/transparent_hugepage/enabled")))
    return setting[1] if setting else "unknown"


def _line(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def load(when: str) -> dict[str, str]:
    """Returns the processes that ran or waited for a core, over the last minute and 15 minutes."""
    last, _, before = os.getloadavg()
    return {when: f"{last:.1f} ({before:.1f} in 15 minutes)"}


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _colon_separated(path: str) -> dict[str, str]:
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError:
        return {}
    return {name.strip(): value.strip()
            for name, value in re.findall(r"^([^:\n]+):(.*)$", text, re.MULTILINE)}
