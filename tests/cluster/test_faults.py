# SPDX-License-Identifier: Apache-2.0
"""Tasks of a cluster die, stop or run out of disk; training goes on from what is left."""

import errno
import os
import resource
import signal
import subprocess

import pytest

from tests.cluster.faults import check_checkpoints, training

STEPS = 2500
TRAINS = "loss = "


def test_every_task_dies(tmp_path):
    with training(tmp_path, STEPS) as cluster:
        cluster.wait_for("worker 0", TRAINS)
        cluster.kill("worker 0")
        cluster.kill("chief 0")
        cluster.start("worker 0", "chief 0")
        cluster.wait_for("chief 0", "the servers hold all variables of this training")
        cluster.wait_for("worker 0", TRAINS, count=2)
        assert "Restoring" not in cluster["chief 0"].text
        cluster.wait_for("chief 0", "Saving checkpoints for", count=3)
        cluster.kill("ps 1")
        cluster.start("ps 1")
        cluster.wait_for("chief 0", "Restoring parameters from")
        cluster.wait_for("worker 0", "Done running local_init_op", count=3)
        cluster.kill(*cluster.tasks)
        cluster.start(*cluster.tasks)
        cluster.wait_for("chief 0", "Restoring parameters from", count=2)
        cluster.hurry()
        cluster.wait_for_end()
    check_checkpoints(tmp_path, STEPS)


def test_a_server_stops_answering_and_an_evaluator_dies(tmp_path):
    with training(tmp_path, STEPS, evaluator=True) as cluster:
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
        cluster.wait_for("evaluator 0", rf"Saving dict for global step {STEPS // 10}\d")
    check_checkpoints(tmp_path, STEPS)


def test_a_file_of_a_server_may_not_grow(tmp_path):
    """The error is OutOfRangeError, which a MonitoredSession takes for the end of the input."""
    def limit(cluster, size):
        resource.prlimit(cluster["ps 0"].pid, resource.RLIMIT_FSIZE,
                         (size, resource.RLIM_INFINITY))

    recover_from_failed_save(tmp_path, lambda cluster: limit(cluster, 64),
                             lambda cluster: limit(cluster, resource.RLIM_INFINITY))


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk],
                      capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_disk_is_full(small_disk):
    filler = small_disk / "filler"

    def fill(cluster):
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError) as raised:
            while True:
                file.write(bytes(1 << 12))
        assert raised.value.errno == errno.ENOSPC

    recover_from_failed_save(small_disk, fill, lambda cluster: os.remove(filler))


def recover_from_failed_save(model_dir, provoke, undo):
    with training(model_dir, STEPS, workers=0) as cluster:
        cluster.wait_for("chief 0", "Saving checkpoints for", count=2)
        provoke(cluster)
        cluster.wait_until(lambda: cluster["chief 0"].status is not None, "a failed save")
        assert cluster["chief 0"].status == 1, cluster.log
        assert check_checkpoints(model_dir, 0) >= 1
        undo(cluster)
        cluster.start("chief 0")
        cluster.wait_for("chief 0", "Restoring parameters from")
        cluster.hurry()
        cluster.wait_for_end()
    check_checkpoints(model_dir, STEPS)


def test_a_wrong_id_of_one_worker_ends_the_job(tmp_path, monkeypatch):
    monkeypatch.setenv("TASK_WITH_WRONG_ID", "worker 0")
    with training(tmp_path, STEPS) as cluster:
        for name in ("worker 0", "chief 0"):
            cluster.wait_until(lambda name=name: cluster[name].status is not None, name)
            assert cluster[name].status == 1
            cluster.wait_for(name, r"InvalidArgumentError.*: worker 0: `ids of feature 'first'` "
                                   r"must be in \[0, 11\), .* got 9\d")
