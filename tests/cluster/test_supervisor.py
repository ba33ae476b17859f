# SPDX-License-Identifier: Apache-2.0
"""The launcher's processes, with programs that exit in a given way, without TensorFlow."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from tpu_estimator_embedding import cli
from tpu_estimator_embedding.cluster.supervisor import supervise
from tpu_estimator_embedding.cluster.task import new_tasks

PREFACE = """
import json, os, pathlib, sys, time
config = json.loads(os.environ["TF_CONFIG"])
job, number = config["task"]["type"], config["task"]["index"]
started = pathlib.Path(f"{job}{number}.started")
started.write_text(started.read_text() + "x" if started.exists() else "x")
starts = len(started.read_text())
"""


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    """Makes the tasks of a program, whose files are in tmp_path."""
    monkeypatch.chdir(tmp_path)

    def new(program, **sizes):
        sizes = {"workers": 1, "servers": 1, "evaluator": False, **sizes}
        return new_tasks([sys.executable, "-c", PREFACE + textwrap.dedent(program)], **sizes)

    return new


def test_every_task_has_its_place_and_evaluators_are_not_in_the_cluster(tasks, capfd):
    sizes = {"workers": 2, "servers": 2, "evaluator": True}
    assert supervise(tasks("""
        print(job, number, {name: len(hosts) for name, hosts in config["cluster"].items()})
        if job == "ps":
            time.sleep(60)
        time.sleep(1)
        """, **sizes), 0) == 0
    printed = sorted(capfd.readouterr().out.splitlines())
    everyone = "{'chief': 1, 'worker': 2, 'ps': 2}"
    assert printed == [f"[{job} {number}] {job} {number} {everyone}" for job, number in (
        ("chief", 0), ("evaluator", 0), ("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1))]


def test_tasks_that_die_are_restarted(tasks, capfd):
    assert supervise(tasks("""
        if job == "worker" and starts < 3:
            os.kill(os.getpid(), 9)
        while job == "chief" and not pathlib.Path("done").exists():
            time.sleep(0.05)
        if job == "worker":
            pathlib.Path("done").touch()
        """), 2) == 0
    printed = capfd.readouterr().out
    assert "[worker 0] ended with status -9: restart 1 of 2" in printed
    assert "[worker 0] ended with status -9: restart 2 of 2" in printed


@pytest.mark.parametrize("job", ["chief", "ps"])
def test_a_task_that_dies_too_often_ends_the_cluster(tasks, job, capfd):
    started = time.monotonic()
    assert supervise(tasks(f"""
        if job == "{job}":
            sys.exit(7)
        time.sleep(60)
        """), 1) == 7
    assert f"[{job} 0] ended with status 7, after 1 restarts" in capfd.readouterr().out
    assert time.monotonic() - started < 50


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_no_process_is_left_when_the_launcher_is_ended(tmp_path, number):
    program = tmp_path / "program.py"
    program.write_text(PREFACE + "pathlib.Path(f'{job}.pid').write_text(str(os.getpid()))\n"
                       "time.sleep(60)\n")
    launcher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
            import sys
            from tpu_estimator_embedding.cluster import command
            command.run_command = lambda arguments: [sys.executable, *arguments]
            from tpu_estimator_embedding import cli
            sys.exit(cli.main(["cluster", "--ps", "1", {str(program)!r}]))
            """)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = [tmp_path / f"{job}.pid" for job in ("chief", "worker", "ps")]
    wait_until(lambda: all(path.exists() and path.read_text() for path in pids))
    launcher.send_signal(number)
    assert launcher.wait(30) == 130
    for path in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_cluster_needs_a_program(capsys):
    assert cli.main(["cluster", "--ps", "2"]) == 2
    assert "`cluster` needs a program: `cluster PROGRAM.py`" in capsys.readouterr().err
