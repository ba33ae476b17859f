# SPDX-License-Identifier: Apache-2.0
"""The processes of a sweep, and what these start, end with it; without TensorFlow."""

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.subprocesses import is_running, wait_until
from tpu_estimator_embedding.experiments.jobs import Job, run_all

# Starts a child, and ends or waits for it.
PROGRAM = """
import os, pathlib, subprocess, sys
child = subprocess.Popen(["sleep", "60"])
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()} {child.pid}")
if sys.argv[2] == "waits":
    child.wait()
sys.exit(3)
"""


def pids(path):
    return [int(word) for word in path.read_text().split()]


def job(path, what):
    return Job(path.stem, [sys.executable, "-c", PROGRAM, str(path), what],
               path.with_suffix(".log"))


def test_no_child_is_left_of_a_job_that_ended(tmp_path):
    ended = []
    first, second = tmp_path / "first", tmp_path / "second"
    run_all([job(first, "ends"), job(second, "ends")], 2,
            lambda job, status: ended.append((job.name, status)))
    assert sorted(ended) == [("first", 3), ("second", 3)]
    for pid in pids(first) + pids(second):
        wait_until(lambda pid=pid: not is_running(pid))


def test_a_callback_that_fails_ends_all_processes(tmp_path):
    path = tmp_path / "waits"

    def waiting(running):
        if path.exists() and path.read_text():
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        run_all([job(path, "waits")], 1, lambda job, status: None, waiting)
    for pid in pids(path):
        wait_until(lambda pid=pid: not is_running(pid))


def test_no_process_is_left_of_a_sweep_that_is_killed(tmp_path):
    path = tmp_path / "waits"
    sweep = subprocess.Popen([sys.executable, "-c", textwrap.dedent(f"""
        import pathlib
        from tests.fronts.experiments.test_jobs import job
        from tpu_estimator_embedding.experiments.jobs import run_all
        run_all([job(pathlib.Path({str(path)!r}), "waits")], 1, lambda job, status: None)
        """)])
    wait_until(lambda: path.exists() and path.read_text())
    sweep.send_signal(signal.SIGKILL)
    assert sweep.wait() == -signal.SIGKILL
    for pid in pids(path):
        wait_until(lambda pid=pid: not is_running(pid))


def test_an_interrupted_job_ends_with_what_it_has_started(tmp_path):
    path = tmp_path / "waits"
    ended = []
    run_all([job(path, "waits")], 1, lambda job, status: ended.append(job.name),
            lambda running: ["waits"] if path.exists() and path.read_text() else None)
    assert ended == ["waits"]
    for pid in pids(path):
        wait_until(lambda pid=pid: not is_running(pid))
