# SPDX-License-Identifier: Apache-2.0
"""Describes the machine."""

import importlib.metadata
import os
import pathlib
import platform
import re

_SOFTWARE = ("tensorflow", "tf-keras", "tf-estimator-nightly", "tensorflow-estimator", "torch",
             "fbgemm-gpu-cpu", "numpy")


def available_bytes() -> int:
    """Returns the bytes of memory that are available without swapping."""
    fields = _colon_separated("/proc/meminfo")
    if "MemAvailable" in fields:
        return int(fields["MemAvailable"].split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def describe() -> dict[str, str]:
    """Returns processor, cores, memory and the versions of the measured libraries."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {"processor": _colon_separated("/proc/cpuinfo").get("model name", platform.machine()),
            "cores": str(len(os.sched_getaffinity(0))),
            "memory": f"{memory / 2 ** 30:.0f} GiB",
            **load("load before"),
            "python": platform.python_version(),
            **{name: version for name in _SOFTWARE if (version := _version(name))}}


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
