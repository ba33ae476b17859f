# SPDX-License-Identifier: Apache-2.0
"""Servers that answer and servers that do not, and the lines about them."""

import threading
import time

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.estimator.recovery.conftest import free_address
from tpu_estimator_embedding.estimator.cluster import servers as servers_module
from tpu_estimator_embedding.estimator.cluster.servers import Server, Watchdog, silent, wait_for

# With install(), and without TF_CONFIG, this machine stands in for a server that does not answer.
pytestmark = pytest.mark.usefixtures("tensorflows_own")


@pytest.fixture
def present(cluster):
    return Server(0, cluster["ps"][0].target.removeprefix("grpc://"))


@pytest.fixture
def absent(monkeypatch):
    monkeypatch.setattr(servers_module, "ANSWER_SECONDS", 0.5)
    return Server(1, free_address())


def test_a_server_computes_what_it_is_asked(present):
    assert present.ask(lambda: tf.constant(2) + 3) == 5


def test_servers_that_do_not_answer_are_found(present, absent):
    assert silent([present, absent]) == [absent]


def test_a_trainer_waits_for_its_servers_and_says_for_whom(present, absent, logged, monkeypatch):
    answers = iter([[absent], [absent], []])
    monkeypatch.setattr(servers_module, "silent", lambda servers: next(answers))
    wait_for([present, absent])
    [line] = logged()  # the next one would be due after 30 seconds
    assert line.endswith(f"waiting for ps 1 ({absent.address}), for 0 s so far: no answer")


def test_a_server_that_is_late_is_named_with_the_likely_cause(absent, logged, monkeypatch):
    answers = iter([[absent], []])
    monkeypatch.setattr(servers_module, "silent", lambda servers: next(answers))
    monkeypatch.setattr(servers_module, "_STARTING_SECONDS", 0.0)
    wait_for([absent])
    [line] = logged()
    assert "no answer. Is it running, at this address of TF_CONFIG?" in line
    assert line.endswith("called tf.estimator.train_and_evaluate.")


@pytest.mark.parametrize("is_there", [True, False])
def test_the_watchdog_says_who_does_not_answer(present, absent, logged, is_there):
    watchdog = Watchdog([present] if is_there else [present, absent], seconds=0.2)
    watchdog.start()
    wait_until(lambda: len(logged()) > 1)
    watchdog.stop()
    ending = "all servers answer" if is_there else f"ps 1 ({absent.address}) does not answer"
    assert all("no step for" in line and line.endswith(ending) for line in logged())


def test_the_watchdog_is_quiet_while_there_are_steps(present, logged):
    watchdog = Watchdog([present], seconds=0.5)
    watchdog.start()
    for _ in range(50):
        watchdog.after_run(None, None)
        time.sleep(0.02)
    watchdog.stop()
    assert not logged()


def test_a_server_whose_port_is_in_use_names_its_task_and_address(cluster):
    tpu_estimator_embedding.install()
    address = cluster["ps"][0].target.removeprefix("grpc://")
    with pytest.raises(tf.errors.UnknownError, match="^Could not start gRPC server. The port of "
                       f"chief 0 must be free, got '{address}'. End the process"):
        tf.distribute.Server({"ps": ["127.0.0.1:1"], "chief": [address]}, "chief", 0)


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.05)
