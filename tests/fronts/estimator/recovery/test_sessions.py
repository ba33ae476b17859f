# SPDX-License-Identifier: Apache-2.0
"""A chief restores only while no task trains, and only if the servers lost something."""

import functools
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf

from tpu_estimator_embedding.estimator.cluster import recovery, server_state
from tpu_estimator_embedding.estimator.cluster.recovery import ClusterSessionManager
from tpu_estimator_embedding.estimator.cluster.server_state import ServerState
from tpu_estimator_embedding.estimator.step_session import StepSessionCreator, StepSessionManager

v1 = tf.compat.v1
DEVICES = ["/job:ps/task:0", "/job:ps/task:1"]
TASKS = ["chief/0", "worker/0"]


class Trainer:
    """A task whose step adds what a Python function returns to a variable of each server."""

    def __init__(self, cluster, job, directory, gradient=lambda: np.float32(1), *,
                 is_synchronous=False):
        self.graph, self.is_stopping = tf.Graph(), False
        self._target = cluster[job][0].target
        self._directory = str(directory)
        with self.graph.as_default():
            self.variables = []
            for number, device in enumerate(DEVICES):
                with tf.device(device):
                    self.variables.append(v1.get_variable(
                        f"{directory.name}{number}", [], initializer=tf.zeros_initializer(),
                        use_resource=True))
            with tf.device(f"/job:{job}/task:0"):
                value = tf.numpy_function(gradient, [], tf.float32)
                value.set_shape([])
            self.train_op = tf.group(*(each.assign_add(value) for each in self.variables))
            self.state = ServerState(DEVICES, f"{job}/0", TASKS, is_synchronous=is_synchronous)
            self.state.check_permits(self.train_op)
            self.lose = tf.raw_ops.DestroyResourceOp(resource=self.variables[1].handle)
            self.saver = v1.train.Saver(sharded=True)
            self._scaffold = v1.train.Scaffold(saver=self.saver).finalize()

    def session(self, **how):
        """Starts a session as a MonitoredSession does, which recovers from AbortedError."""
        with self.graph.as_default():
            return StepSessionCreator(
                self._scaffold, self._target, None, checkpoint_dir=self._directory,
                max_wait_secs=3, manager=functools.partial(
                    ClusterSessionManager, self.state, lambda: self.is_stopping),
                is_chief=how.get("is_chief", False)).create_session()

    def save(self, session, step):
        with self.graph.as_default():
            self.saver.save(session, f"{self._directory}/model.ckpt", step, write_meta_graph=False)

    def values(self, session):
        return [float(value) for value in session.run(self.variables)]


@pytest.fixture
def chief(cluster, tmp_path):
    return Trainer(cluster, "chief", tmp_path)


@pytest.fixture
def worker(cluster, tmp_path):
    return Trainer(cluster, "worker", tmp_path)


def test_a_restarted_chief_keeps_what_the_servers_hold(chief, worker, cluster, tmp_path):
    chiefs = chief.session(is_chief=True)
    chief.save(chiefs, 7)
    workers = worker.session()
    for trainer, session in ((chief, chiefs), (worker, workers)):
        session.run(trainer.train_op)
    again = Trainer(cluster, "chief", tmp_path)
    session = again.session(is_chief=True)
    assert again.values(session) == [2, 2]
    assert again.saver.last_checkpoints == [str(tmp_path / "model.ckpt-7")]
    session.run(again.train_op)
    workers.run(worker.train_op)  # the worker has not noticed anything
    assert again.values(session) == [4, 4]


@pytest.mark.parametrize("loss", ["variable", "model_dir"])
def test_a_chief_that_has_to_restore_stops_workers_first(chief, worker, cluster, tmp_path, loss):
    chiefs = chief.session(is_chief=True)
    chiefs.run(chief.train_op)
    chief.save(chiefs, 1)
    workers = worker.session()
    workers.run(worker.train_op)
    if loss == "variable":  # as a server that restarts does
        chiefs.run(chief.lose)
        expected = [1, 1]
    else:  # the servers hold what another training left there
        for path in tmp_path.iterdir():
            path.unlink()
        expected = [0, 0]
    again = Trainer(cluster, "chief", tmp_path)
    session = again.session(is_chief=True)
    assert again.values(session) == expected
    with pytest.raises(tf.errors.AbortedError, match="this step changed nothing"):
        workers.run(worker.train_op)
    assert again.values(session) == expected
    worker.session().run(worker.train_op)
    assert again.values(session) == [value + 1 for value in expected]


def test_a_step_that_began_before_a_restore_changes_nothing(chief, cluster, tmp_path):
    began, go_on = threading.Event(), threading.Event()

    def slow_gradient():
        began.set()
        go_on.wait(30)
        return np.float32(1)

    slow = Trainer(cluster, "worker", tmp_path, slow_gradient)
    chiefs = chief.session(is_chief=True)
    workers = slow.session()
    errors = []

    def step():
        try:
            workers.run(slow.train_op)
        except tf.errors.AbortedError as error:
            errors.append(error)

    thread = threading.Thread(target=step)
    thread.start()
    assert began.wait(30)
    chief.state.stop_steps(chiefs)
    chief.state.start_training(chiefs, str(tmp_path))
    go_on.set()
    thread.join()
    assert errors and chief.values(chiefs) == [0, 0]


@pytest.mark.parametrize("is_updating", [True, False])
def test_a_signal_ends_a_step_that_waits_for_others_unless_it_updates(
        cluster, tmp_path, monkeypatch, is_updating):
    monkeypatch.setattr(recovery, "_STEP_SECONDS", 0.3)
    go_on = threading.Event()

    def gradient():
        go_on.wait(30)
        return np.float32(1)

    chief = Trainer(cluster, "chief", tmp_path, gradient, is_synchronous=True)
    chiefs = chief.session(is_chief=True)
    chief.is_stopping = True
    monkeypatch.setattr(chief.state, "has_unfinished_update", lambda session: is_updating)
    if is_updating:
        threading.Timer(1.0, go_on.set).start()
        chiefs.run(chief.train_op)
    else:
        with pytest.raises(tf.errors.OutOfRangeError, match="A signal ended the wait for other"):
            chiefs.run(chief.train_op)
        go_on.set()
        time.sleep(0.5)
    assert chief.values(chiefs) == ([1, 1] if is_updating else [0, 0])
    chiefs.close()


def test_a_signal_ends_the_wait_for_the_chief(worker):
    worker.is_stopping = True
    with pytest.raises(tf.errors.OutOfRangeError, match="A signal ended the wait for other tasks"):
        worker.session()


def test_workers_wait_for_the_chief_and_say_so(chief, worker, logged):
    with pytest.raises(tf.errors.DeadlineExceededError,
                       match="Session was not ready after waiting 3 secs. The chief has not"):
        worker.session()
    assert logged("waiting for the chief to initialize or restore")
    chief.session(is_chief=True)
    worker.session().run(worker.train_op)


def test_a_worker_whose_permit_is_removed_while_it_starts_waits(monkeypatch):
    answers = iter([5, None, 6, 6])
    state = types.SimpleNamespace(training=lambda session: next(answers), is_synchronous=False,
                                  training_is_synchronous=lambda session: False,
                                  failure=lambda session: "",
                                  permit_steps=lambda session: None)
    with tf.Graph().as_default():
        manager = ClusterSessionManager(state, lambda: False)
    monkeypatch.setattr(StepSessionManager, "may_start", lambda manager, session: True)
    assert not manager.may_start(None)
    assert manager.may_start(None)


@pytest.mark.parametrize("is_synchronous", [True, False])
def test_workers_train_as_the_chief_that_was_started_last(cluster, tmp_path, is_synchronous,
                                                          monkeypatch):
    monkeypatch.setattr(recovery, "_RESTART_SECONDS", 0.5)
    started = Trainer(cluster, "chief", tmp_path, is_synchronous=not is_synchronous)
    started.session(is_chief=True)
    Trainer(cluster, "worker", tmp_path, is_synchronous=not is_synchronous).session()
    again = Trainer(cluster, "chief", tmp_path, is_synchronous=is_synchronous)
    again.session(is_chief=True)
    Trainer(cluster, "worker", tmp_path, is_synchronous=is_synchronous).session()
    with pytest.raises(ValueError, match=f"^`synchronous` must be {is_synchronous}, as in the "
                       f"ClusterConfig of the chief, got {not is_synchronous}. Start all tasks"):
        Trainer(cluster, "worker", tmp_path, is_synchronous=not is_synchronous).session()


@pytest.mark.parametrize("content", [None, "", "text"])
def test_a_model_directory_without_a_training(tmp_path, content):
    if content is not None:
        (tmp_path / server_state._FILE).write_text(content)
    assert server_state.training_of(str(tmp_path)) is None


def test_a_training_that_failed_is_forgotten(chief, tmp_path):
    chief.session(is_chief=True)
    assert server_state.training_of(str(tmp_path)) is not None
    for _ in range(2):
        server_state.forget_training(str(tmp_path))
        assert server_state.training_of(str(tmp_path)) is None
