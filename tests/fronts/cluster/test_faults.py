# SPDX-License-Identifier: Apache-2.0
"""Tasks of a cluster die, stop or run out of disk; training goes on from what is left."""

import errno
import resource
import signal
import subprocess

import pytest

from tests.fronts.cluster.faults import check_checkpoints, training

STEPS = 500  # four minutes of one trainer, until it may hurry
TRAINS = "loss = "
SAVES = "Saving checkpoints for"
RESTORES = "Restoring parameters from"


def kill_trainers(cluster):
    cluster.wait_for("worker 0", TRAINS)
    cluster.kill("worker 0")
    cluster.kill("chief 0")
    cluster.start("worker 0", "chief 0")
    cluster.wait_for("chief 0", "the servers hold all variables of this training")
    cluster.wait_for("worker 0", TRAINS, count=2)
    assert "Restoring" not in cluster["chief 0"].text


def kill_server(cluster):
    cluster.wait_for("worker 0", TRAINS)
    cluster.wait_for("chief 0", SAVES, count=2)
    cluster.kill("ps 1")
    cluster.start("ps 1")
    cluster.wait_for("chief 0", RESTORES)
    cluster.wait_for("worker 0", "Done running local_init_op", count=2)


def kill_all(cluster):
    cluster.wait_for("chief 0", SAVES, count=2)
    cluster.kill(*cluster.tasks)
    cluster.start(*cluster.tasks)
    cluster.wait_for("chief 0", RESTORES)


@pytest.mark.parametrize("fault", [kill_trainers, kill_server, kill_all])
def test_tasks_die(tmp_path, fault):
    with training(tmp_path, STEPS) as cluster:
        fault(cluster)
        cluster.hurry()
        cluster.wait_for_end()
    check_checkpoints(tmp_path, STEPS)


@pytest.mark.soak
def test_a_server_stops_answering_and_an_evaluator_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("SECONDS_WITHOUT_STEP", "10")
    with training(tmp_path, STEPS, evaluator=True,
                  options=["--statistics", "every=100"]) as cluster:
        cluster.wait_for("worker 0", "train with the embedding engine .*, 2 hosts")
        cluster.wait_for("worker 0", TRAINS)
        cluster.send("ps 0", signal.SIGSTOP)
        cluster.kill("evaluator 0")
        cluster.start("evaluator 0")
        for name in ("chief 0", "worker 0"):
            cluster.wait_for(name, r"no step for \d+ s: ps 0 \([\d.:]+\) does not answer")
        cluster.send("ps 0", signal.SIGCONT)
        cluster.hurry()
        cluster.wait_for_end()
        cluster.wait_for_end("worker 0")
        cluster.wait_for_end("evaluator 0")
        assert "An error was raised" not in cluster["chief 0"].text + cluster["worker 0"].text
        cluster.wait_for("evaluator 0", rf"Saving dict for global step {STEPS // 10}\d.*loss = ")
        cluster.wait_for("chief 0", r"tables at step \d+: .*of rows ever trained")
        assert "tables at step" not in cluster["worker 0"].text
    check_checkpoints(tmp_path, STEPS)


@pytest.fixture
def small_disk(tmp_path):
    """A directory on a disk that can be filled; None where no disk can be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk],
                      capture_output=True, check=False).returncode:
        yield None
        return
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


@pytest.mark.soak
def test_a_file_may_not_grow_and_a_disk_is_full(tmp_path, small_disk):
    model_dir = small_disk or tmp_path
    with training(model_dir, STEPS, workers=0) as cluster:
        # The error is OutOfRangeError, which a MonitoredSession takes for the end of the input.
        recover_from_failed_save(cluster, lambda: limit_files(cluster, 64),
                                 lambda: limit_files(cluster, resource.RLIM_INFINITY))
        if small_disk:
            recover_from_failed_save(cluster, lambda: fill(small_disk / "filler"),
                                     (small_disk / "filler").unlink)
        cluster.hurry()
        cluster.wait_for_end()
    check_checkpoints(model_dir, STEPS)
    if not small_disk:
        pytest.skip("a full disk was not tested: mounting a file system needs root")


def limit_files(cluster, size):
    resource.prlimit(cluster["ps 0"].pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def fill(path):
    with path.open("wb", buffering=0) as file, pytest.raises(OSError) as raised:
        while True:
            file.write(bytes(1 << 12))
    assert raised.value.errno == errno.ENOSPC


def recover_from_failed_save(cluster, provoke, undo):
    chief = cluster["chief 0"]
    saves, restores = (chief.text.count(line) for line in (SAVES, RESTORES))
    cluster.wait_for("chief 0", SAVES, count=saves + 2)
    provoke()
    cluster.wait_until(lambda: chief.status is not None, "a failed save")
    assert chief.status == 1, cluster.log
    assert check_checkpoints(cluster.model_dir, 0) >= 1
    undo()
    cluster.start("chief 0")
    cluster.wait_for("chief 0", RESTORES, count=restores + 1)


def test_a_wrong_id_of_one_worker_ends_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("TASK_WITH_WRONG_ID", "worker 0")
    with training(tmp_path, STEPS, seconds_per_step=0.1) as cluster:
        for name in ("worker 0", "chief 0"):
            cluster.wait_until(lambda name=name: cluster[name].status is not None, name)
            assert cluster[name].status == 1
            cluster.wait_for(name, r"InvalidArgumentError.*: worker 0: Ids of feature 'first' "
                                   r"must be in \[0, 11\), .* got 9\d")
