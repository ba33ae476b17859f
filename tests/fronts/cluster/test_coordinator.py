# SPDX-License-Identifier: Apache-2.0
"""TF2 programs on parameter servers train the tables that they train in one process."""

import math
import os
import pathlib
import re
import signal
import sys
import time

import numpy as np
import tensorflow as tf

from tests import subprocesses
from tests.fronts.cluster import coordinator as program
from tpu_estimator_embedding.cluster.task import new_tasks, run_command

PROGRAM = pathlib.Path(program.__file__)
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding", "cluster", "--restart", "0"]
STEPS = 6


def run(directory, *options, servers):
    done = subprocesses.start(
        [*COMMAND, "--workers", "1", "--ps", servers, PROGRAM, directory, STEPS, *options])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_same(directory, other):
    values, others = (np.load(each / "tables.npz") for each in (directory, other))
    assert set(values) == set(others) and len(values.files) == 8
    for name, value in values.items():  # servers add the parts of a sum in another order
        np.testing.assert_allclose(others[name], value, rtol=1e-6, atol=1e-6, err_msg=name)


def test_tables_are_those_of_one_process_and_move_to_other_servers(tmp_path):
    alone, servers = tmp_path / "alone", tmp_path / "servers"
    for directory in (alone, servers):
        directory.mkdir()
    printed = run(servers, servers=2)
    program.main(alone, STEPS)
    check_same(alone, servers)

    # The checkpoint of two servers goes on with three, and in one process.
    for path in servers.glob("ckpt.*"):
        path.rename(alone / path.name)
    for path in alone.glob("ckpt.*"):
        (servers / path.name).write_bytes(path.read_bytes())
    printed = run(servers, "refusals", servers=3)
    program.main(alone, STEPS)
    check_same(alone, servers)

    refused = re.findall(r"refused: (.*)", printed)
    for sentence, expected in zip(refused, (
            "`pipeline_execution_with_tensor_core` must be False under a ParameterServerStrategy",
            "TPUEmbeddingV2 must have a single-process strategy",
            "Embedding layers must have a single-process strategy",
            "Under a ParameterServerStrategy the three calls for a batch must be in one function"),
            strict=True):
        assert expected in sentence


def test_a_worker_that_is_killed_comes_back(tmp_path):
    steps = 100
    tasks = new_tasks(run_command([str(PROGRAM), str(tmp_path), str(steps)]), workers=1,
                      servers=2, evaluator=False)
    chief, worker = (next(task for task in tasks if task.job == job)
                     for job in ("chief", "worker"))
    try:
        for task in tasks:
            task.start()
        wait_until(lambda: chief.status is not None or (tmp_path / "step").exists())
        os.kill(worker.pid, signal.SIGKILL)
        wait_until(lambda: worker.status is not None)
        worker.start()
        wait_until(lambda: chief.status is not None)
    finally:
        for task in tasks:
            task.kill()
    assert chief.status == 0
    reader = tf.train.load_checkpoint(str(tmp_path / "ckpt"))
    count = reader.get_tensor("embedding/multiplier_step/.ATTRIBUTES/VARIABLE_VALUE")
    assert steps <= count <= steps + 1  # a step that was not confirmed may be made twice
    table = reader.get_tensor("embedding/words/.ATTRIBUTES/VARIABLE_VALUE")
    assert table.shape == (11, 4) and math.isfinite(table.sum())


def wait_until(condition):
    deadline = time.monotonic() + 150
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
