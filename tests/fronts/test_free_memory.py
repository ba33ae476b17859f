# SPDX-License-Identifier: Apache-2.0
"""The memory that this process can still use."""

import pytest

from tpu_estimator_embedding import free_memory

CGROUPS = {
    "2": {"memory.max": "1000\n", "memory.stat": "anon 400\nfile 500\n"},
    "2, no limit": {"memory.max": "max\n", "memory.stat": "anon 400\n"},
    "1": {"memory/memory.limit_in_bytes": "900\n", "memory/memory.stat": "rss 1\ntotal_rss 1200\n"},
    "none": {}}
FREE = {"2": 600, "2, no limit": 2048, "1": 0, "none": 2048}


@pytest.mark.parametrize("version", CGROUPS)
def test_a_container_has_what_its_limit_leaves(version, monkeypatch, tmp_path):
    (tmp_path / "meminfo").write_text("MemTotal:       9 kB\nMemAvailable:   2 kB\n")
    for name, text in CGROUPS[version].items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(free_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    assert free_memory.free_memory() == FREE[version]


def test_a_system_that_does_not_say_has_no_number(monkeypatch, tmp_path):
    monkeypatch.setattr(free_memory, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
    assert free_memory.free_memory() is None
