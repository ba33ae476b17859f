# SPDX-License-Identifier: Apache-2.0
"""How workers wait for each other, with all of them in one session."""

import logging
import threading
import time

import pytest
import tensorflow as tf

from tpu_estimator_embedding.estimator.cluster import synchronous_step
from tpu_estimator_embedding.estimator.cluster.server_slots import ServerSlots
from tpu_estimator_embedding.estimator.cluster.synchronous_step import SynchronousHook
from tpu_estimator_embedding.estimator.cluster.tasks import Workers

NAMES = ("chief 0", "worker 0", "worker 1")
LIFE = 7
DEVICE = "/device:CPU:0"


class Cluster:
    """The slots of a chief and two workers, and the ops of one step of each."""

    def __init__(self):
        self.workers = [Workers(NAMES, number, (DEVICE,), 1.0) for number in range(3)]
        self.slots = [ServerSlots(workers) for workers in self.workers]
        tf.compat.v1.train.create_global_step()
        self.life = tf.compat.v1.placeholder(tf.int64, [])
        self.step = tf.compat.v1.placeholder(tf.int64, [])
        chief = self.slots[0]
        current = tf.stack([self.life, self.step])
        self.start = chief.start_life(self.life)
        self.wait_for_all = chief.wait_for_all(current)
        self.done = chief.say_done(current)
        self.sent = [slots.say_sent(current) for slots in self.slots]
        self.wait_for_chief = [None, *(slots.wait_for_chief(current) for slots in self.slots[1:])]
        self.value = tf.compat.v1.placeholder(tf.float32, [None])
        self.write = tf.group(*self.slots[1].send([self.value], DEVICE, "place"))
        [self.read] = chief.read(1, [self.value], DEVICE, "place")
        self.hooks = [SynchronousHook(*each) for each in zip(self.workers, self.slots, strict=True)]
        self.session = tf.compat.v1.Session()
        self.session.run(tf.compat.v1.global_variables_initializer())

    def run(self, op, step=0, life=LIFE):
        return self.session.run(op, {self.life: life, self.step: step})

    def start_run(self, op, step=0, life=LIFE):
        """Runs an op in a thread."""
        return Run(lambda: self.run(op, step, life))


class Run(threading.Thread):
    """A run of a session in a thread."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self._run, self.error = run, None
        self.start()

    def run(self):
        try:
            self._run()
        except tf.errors.OpError as error:
            self.error = error

    def is_waiting(self):
        time.sleep(0.2)
        return self.is_alive()

    def ends(self):
        self.join(10)
        return not self.is_alive()


@pytest.fixture
def cluster():
    with tf.Graph().as_default():
        made = Cluster()
        made.run(made.start)
        yield made
        made.session.close()


def test_the_chief_waits_for_every_worker(cluster):
    waiting = cluster.start_run(cluster.wait_for_all)
    cluster.run(cluster.sent[2])
    cluster.run(cluster.sent[2])  # again, after a restart
    assert waiting.is_waiting()
    cluster.run(cluster.sent[1])
    assert waiting.ends() and waiting.error is None


def test_tags_of_other_steps_and_lives_do_not_count(cluster):
    waiting = cluster.start_run(cluster.wait_for_all, step=5)
    cluster.run(cluster.sent[1], step=5)
    cluster.run(cluster.sent[2], step=4)
    cluster.run(cluster.sent[2], step=5, life=LIFE + 1)
    assert waiting.is_waiting()
    cluster.run(cluster.sent[2], step=5)
    assert waiting.ends() and waiting.error is None


def test_workers_wait_until_their_step_is_done(cluster):
    cluster.run(cluster.done, step=4)  # a message that was not taken
    waiting = [cluster.start_run(wait, step=5) for wait in cluster.wait_for_chief[1:]]
    assert all(run.is_waiting() for run in waiting)
    cluster.run(cluster.done, step=5)
    assert all(run.ends() and run.error is None for run in waiting)


def test_a_chief_that_starts_again_lets_workers_begin_the_step_again(cluster):
    waiting = cluster.start_run(cluster.wait_for_chief[1], step=5)
    cluster.run(cluster.start, life=LIFE + 1)
    assert waiting.ends() and waiting.error is None
    again = cluster.start_run(cluster.wait_for_chief[1], step=5, life=LIFE + 1)
    assert again.is_waiting()
    cluster.run(cluster.done, step=5, life=LIFE + 1)
    assert again.ends()


def test_what_is_sent_again_replaces_what_was_sent(cluster):
    for value in ([1.0], [2.0, 3.0]):
        cluster.session.run(cluster.write, {cluster.value: value})
    assert cluster.session.run(cluster.read).tolist() == [2.0, 3.0]


@pytest.mark.slow
def test_the_log_names_who_is_waited_for_and_then_the_step_fails(cluster, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="tensorflow")
    monkeypatch.setattr(synchronous_step, "LINE_SECONDS", 0.3)
    hook = cluster.hooks[0]
    hook._new_life, hook._start_life = cluster.life, tf.no_op()
    hook.after_create_session(cluster.session, tf.train.Coordinator())
    cluster.run(cluster.sent[1])
    waiting = cluster.start_run(cluster.wait_for_all)
    assert waiting.ends()
    hook.end(cluster.session)
    assert "longer than timeout_seconds" in str(waiting.error)
    lines = [line for line in caplog.messages if "step 0 has waited" in line]
    assert lines and all("for worker 1" in line and "worker 0" not in line for line in lines)
    assert "training fails" in lines[-1] and "training fails" not in lines[0]


def test_a_restarted_worker_does_not_send_a_step_twice(cluster):
    hook, coord = cluster.hooks[1], tf.train.Coordinator()
    cluster.run(cluster.sent[1], step=0)
    starting = Run(lambda: hook.after_create_session(cluster.session, coord))
    assert starting.is_waiting()
    cluster.session.run(tf.compat.v1.train.get_global_step().assign(1))
    assert starting.ends()
    hook.end(cluster.session)
