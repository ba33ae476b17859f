# SPDX-License-Identifier: Apache-2.0
"""The launcher's processes, with programs that exit in a given way, without TensorFlow."""

import json
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time

import pytest

from tests.subprocesses import is_running, wait_until
from tpu_estimator_embedding import cli
from tpu_estimator_embedding.cluster import supervisor
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


@pytest.mark.parametrize("number, status", [
    (signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_no_process_is_left_when_the_launcher_is_ended(tmp_path, number, status):
    program = tmp_path / "program.py"
    program.write_text(PREFACE + textwrap.dedent("""
        import subprocess
        child = subprocess.Popen(["sleep", "60"])
        pathlib.Path(f"{job}.pid").write_text(f"{os.getpid()} {child.pid} ")
        child.wait()
        """))
    launcher = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(f"""
            import sys
            from tpu_estimator_embedding.cluster import cluster_command
            cluster_command.run_command = lambda arguments: [sys.executable, *arguments]
            from tpu_estimator_embedding import cli
            sys.exit(cli.main(["cluster", "--ps", "1", {str(program)!r}]))
            """)], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pids = [tmp_path / f"{job}.pid" for job in ("chief", "worker", "ps")]
    wait_until(lambda: all(path.exists() and path.read_text() for path in pids))
    launcher.send_signal(number)
    assert launcher.wait(30) == status
    for pid in [int(word) for path in pids for word in path.read_text().split()]:
        wait_until(lambda pid=pid: not is_running(pid))


@pytest.mark.parametrize("restarts", [0, 1])
def test_no_child_is_left_of_a_task_that_ended(tasks, tmp_path, restarts):
    status = supervise(tasks("""
        import subprocess
        if job == "worker":
            child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL)
            with open("children", "a") as file:
                print(child.pid, file=file)
            sys.exit(3 if starts == 1 else 0)
        while job == "chief" and starts and not pathlib.Path("worker0.started").exists():
            time.sleep(0.05)
        time.sleep(60 if job == "ps" else 1)
        """), restarts)
    assert status == (0 if restarts else 3)
    children = [int(line) for line in (tmp_path / "children").read_text().splitlines()]
    assert len(children) == restarts + 1
    for child in children:
        wait_until(lambda child=child: not is_running(child))


def test_the_chief_ends_before_those_that_it_needs_to_save(tasks, capfd):
    with pytest.raises(KeyboardInterrupt):
        supervise(tasks("""
            import signal
            def end(number, frame):
                time.sleep(0.3)  # a step
                print("ended", flush=True)
                os._exit(0)
            signal.signal(signal.SIGINT, end)
            signal.signal(signal.SIGTERM, end)
            pathlib.Path(f"{job}.ready").touch()
            if job == "chief":
                while len(list(pathlib.Path().glob("*.ready"))) < 3:
                    time.sleep(0.05)
                os.kill(os.getppid(), signal.SIGTERM)  # the launcher
            while True:
                time.sleep(0.05)
            """), 0)
    assert capfd.readouterr().out.splitlines() == [
        "[chief 0] ended", "[worker 0] ended", "[ps 0] ended"]


def test_a_worker_that_still_starts_when_the_chief_is_done_ends_without_a_traceback(
        tasks, capfd, monkeypatch):
    monkeypatch.setattr(supervisor, "_WORKER_SECONDS", 0.1)
    assert supervise(tasks("""
        if job == "worker":
            pathlib.Path("ready").touch()
        while job != "chief" or not pathlib.Path("ready").exists():
            time.sleep(0.05)
        """), 0) == 0
    assert "KeyboardInterrupt" not in capfd.readouterr().out


def test_ports_stay_reserved_and_servers_get_them(tasks):
    made = tasks("")  # which own the ports
    for address in {host for task in made
                    for hosts in json.loads(task._config)["cluster"].values() for host in hosts}:
        port = int(address.rpartition(":")[2])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as TensorFlow does
            server.bind(("", port))
            server.listen()
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                server.accept()[0].close()


def test_cluster_needs_a_program(capsys):
    assert cli.main(["cluster", "--ps", "2"]) == 2
    assert "`cluster` needs a program: `cluster PROGRAM.py`" in capsys.readouterr().err


@pytest.mark.parametrize("arguments, sentence", [
    (["missing.py"], r"can't open file '.*/missing\.py': \[Errno 2\] No such file"),
    (["--", "--tf1", "--cores", "2", "missing.py", "--steps", "3"], r"can't open file '.*/missing"),
    (["--", "--tf1"], "`run` needs a program")])
def test_a_program_that_cannot_be_read_starts_no_task(arguments, sentence, capfd, monkeypatch):
    monkeypatch.setattr("tpu_estimator_embedding.cluster.cluster_command.supervise", None)
    assert cli.main(["cluster", *arguments]) == 2
    assert re.match(f"tpu-estimator-embedding: {sentence}", capfd.readouterr().err)


@pytest.mark.parametrize("option", ["--workers", "--restart"])
@pytest.mark.parametrize("value", ["x", "-1", "1.5"])
def test_count_that_is_none_is_refused(option, value, capsys):
    with pytest.raises(SystemExit):
        cli.main(["cluster", f"{option}={value}", "program.py"])
    assert f"{option}: must be an integer of at least 0, got '{value}'" in capsys.readouterr().err
