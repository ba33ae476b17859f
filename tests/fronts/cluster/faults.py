# SPDX-License-Identifier: Apache-2.0
"""A cluster of real processes whose tasks a test kills, stops and starts again."""

import contextlib
import os
import pathlib
import re
import signal
import time

import numpy as np
import tensorflow as tf

from tests.fronts.cluster import train
from tpu_estimator_embedding.cluster.task import Task, new_tasks, run_command
from tpu_estimator_embedding.kernels import load

SECONDS = 300  # a test that waits longer for something has failed
SECONDS_PER_CHECKPOINT = 2


class NotedTask(Task):
    """A task that keeps its lines.

    Attributes:
        lines: (seconds since the epoch, line), of all of its processes.
    """

    def say(self, line):
        """Keeps a line."""
        self.lines.append((time.time(), line.rstrip()))

    @property
    def text(self):
        """All lines."""
        return "\n".join(line for _, line in self.lines)


class FaultyCluster:
    """The tasks of a cluster, by name: `chief 0`."""

    def __init__(self, tasks, model_dir):
        self.model_dir = pathlib.Path(model_dir)
        self.tasks = {task.name: task for task in tasks}
        for task in tasks:
            task.__class__ = NotedTask
            task.lines = []

    def __getitem__(self, name):
        return self.tasks[name]

    def kill(self, *names):
        """Kills tasks by SIGKILL, all at once."""
        for name in names:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self[name].pid, signal.SIGKILL)
        for name in names:
            self[name].wait()

    def start(self, *names):
        """Starts tasks again."""
        for name in names:
            self[name].start()

    def send(self, name, number):
        """Sends a signal to a task."""
        os.killpg(self[name].pid, number)

    def wait_for(self, name, pattern, count=1):
        """Waits until a task has printed the pattern; returns the time of that line."""
        found = []

        def has_found():
            found[:] = [when for when, line in list(self[name].lines) if re.search(pattern, line)]
            return len(found) >= count

        self.wait_until(has_found, f"{pattern!r} of {name}")
        return found[count - 1]

    def hurry(self):
        """Makes the remaining steps fast."""
        (self.model_dir / "hurry").touch()

    def wait_for_end(self, name="chief 0"):
        """Waits until a task has ended with status 0."""
        self.wait_until(lambda: self[name].status is not None, f"the end of {name}")
        assert self[name].status == 0, self.log

    def wait_until(self, condition, what):
        """Waits for a condition; fails with all lines if it does not come true."""
        deadline = time.monotonic() + SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}\n{self.log}"
            time.sleep(0.1)

    @property
    def log(self):
        """The lines of all tasks."""
        return "\n".join(f"--- {name}\n{task.text}" for name, task in self.tasks.items())


def check_checkpoints(model_dir, steps, finite="words"):
    """Checks that all checkpoints can be read; returns their number.

    Args:
        model_dir: where they are.
        steps: the newest one has at least as many.
        finite: the name of a variable that has no NaN.
    """
    state = tf.train.get_checkpoint_state(str(model_dir))
    newest = 0
    for path in state.all_model_checkpoint_paths:
        reader = tf.train.load_checkpoint(path)
        values = {name: reader.get_tensor(name)  # which fails if a block does not have its checksum
                  for name in reader.get_variable_to_shape_map()}
        newest = int(values["global_step"])
        assert np.isfinite(values[finite]).all()
    assert newest >= steps
    return len(state.all_model_checkpoint_paths)


@contextlib.contextmanager
def training(model_dir, steps, *, workers=1, evaluator=False, options=(), strategy="mod",
             seconds_per_step=0.5):
    """Yields a cluster that trains `tests/fronts/cluster/train.py`; nothing is left of it.

    Args:
        model_dir: its model directory.
        steps: how many to train.
        workers: in addition to the chief; there are two servers.
        evaluator: whether there is one.
        options: of `run`.
        strategy: the partition strategy.
        seconds_per_step: until `hurry` is called.
    """
    load.native_ops()  # compiles the kernels, if they are not, before anybody waits for a task
    command = run_command([*options, train.__file__, str(model_dir), str(steps), strategy,
                           str(seconds_per_step), str(SECONDS_PER_CHECKPOINT)])
    cluster = FaultyCluster(new_tasks(command, workers=workers, servers=2, evaluator=evaluator),
                            model_dir)
    try:
        cluster.start(*cluster.tasks)
        yield cluster
    finally:
        for task in cluster.tasks.values():
            task.kill()
