# SPDX-License-Identifier: Apache-2.0
"""Programs on parameter servers train the tables that they train in one process."""

import pathlib
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests import subprocesses
from tests.fronts.cluster import train as program
from tests.kernel_choice import choose_kernels

pytestmark = pytest.mark.every_tensorflow

PROGRAM = pathlib.Path(program.__file__)
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding", "cluster"]
STEPS = 20


def values(model_dir):
    reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{STEPS}"))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.smoke
def test_tables_are_those_of_one_process(tmp_path, monkeypatch):
    done = subprocesses.start(
        [*COMMAND, "--workers", "0", "--ps", "2", PROGRAM, tmp_path / "cluster", STEPS, "mod"],
        TPU_ESTIMATOR_EMBEDDING_KERNELS="native")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\[chief 0\] .*train with the embedding engine .*, 2 hosts", done.stdout)
    assert re.search(r"\[ps 1\] .*server 1 of 2 holds one host's part", done.stdout)
    on_servers = values(tmp_path / "cluster")

    tpu_estimator_embedding.install()
    choose_kernels("native", monkeypatch)
    alone = program.new_estimator(str(tmp_path / "alone"), "mod", num_hosts=2)
    alone.train(program.input_fn, max_steps=STEPS)
    in_one_process = values(tmp_path / "alone")
    assert on_servers.keys() == in_one_process.keys()
    for name, value in in_one_process.items():
        np.testing.assert_array_equal(on_servers[name], value, err_msg=name)
    # And a process without a cluster goes on from what the servers saved.
    estimator = program.new_estimator(str(tmp_path / "cluster"), "mod")
    np.testing.assert_array_equal(
        estimator.evaluate(program.input_fn, steps=2)["loss"],
        alone.evaluate(program.input_fn, steps=2)["loss"])


def train_until_interrupt(model_dir, log):
    """Trains on two servers and sends Ctrl-C to the launcher; returns the step that was saved."""
    with log.open("w") as file:
        launcher = subprocess.Popen(
            [*COMMAND, "--workers", "0", "--ps", "2", PROGRAM, model_dir, "100000", "mod", "0.1"],
            stdout=file, stderr=subprocess.STDOUT)
    try:
        deadline = time.monotonic() + subprocesses.TIMEOUT
        while "loss = " not in log.read_text():
            assert time.monotonic() < deadline and launcher.poll() is None, log.read_text()
            time.sleep(0.1)
        launcher.send_signal(signal.SIGINT)
        assert launcher.wait(subprocesses.TIMEOUT) == 130
    finally:
        launcher.kill()
    return tf.train.load_checkpoint(str(model_dir)).get_tensor("global_step")


def test_an_interrupted_training_goes_on_on_another_number_of_servers(tmp_path):
    saved = train_until_interrupt(tmp_path / "cluster", tmp_path / "log")
    assert saved > 0, (tmp_path / "log").read_text()
    done = subprocesses.start([*COMMAND, "--workers", "0", "--ps", "3", PROGRAM,
                               tmp_path / "cluster", saved + STEPS, "mod"])
    assert done.returncode == 0, done.stdout + done.stderr
    tpu_estimator_embedding.install()
    for steps in (saved, saved + STEPS):  # each starts with the first batch
        alone = program.new_estimator(str(tmp_path / "alone"), "mod")
        alone.train(program.input_fn, max_steps=steps)
    on_servers = program.new_estimator(str(tmp_path / "cluster"), "mod")
    assert sorted(on_servers.get_variable_names()) == sorted(alone.get_variable_names())
    for name in alone.get_variable_names():  # hosts add the parts of a sum in another order
        np.testing.assert_allclose(on_servers.get_variable_value(name),
                                   alone.get_variable_value(name), rtol=1e-5, atol=1e-6,
                                   err_msg=name)
