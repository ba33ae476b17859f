# SPDX-License-Identifier: Apache-2.0
"""Watching the tasks of a cluster until its chief has ended."""

import time
from collections.abc import Sequence

from tpu_estimator_embedding.cluster.task import TRAINERS, Task
from tpu_estimator_embedding.processes.child_process import (
    POLL_SECONDS,
    sigterm_as_interrupt,
    wait_for_all,
)

# In which order tasks are asked to end, and the seconds that they get for it: a chief has to make
# a step and save a checkpoint, for which it needs the servers, and workers in a synchronous step.
_ENDINGS = ((("chief",), 60.0), (("worker", "evaluator"), 10.0), (("ps",), 10.0))
_WORKER_SECONDS = 5.0  # after the chief; workers of a ClusterCoordinator never end by themselves
_EVALUATOR_SECONDS = 600.0  # for the evaluation of the last checkpoint


def supervise(tasks: Sequence[Task], restarts: int) -> int:
    """Starts the tasks, restarts those that die, and ends all when the chief has ended.

    No process is left behind, even after Ctrl-C or SIGTERM.

    Args:
        tasks: the tasks of a cluster, one chief among them.
        restarts: how often each task may be restarted.

    Returns:
        The chief's exit status, or that of a task that has no restarts left.

    Raises:
        KeyboardInterrupt: after all tasks have ended.
    """
    with sigterm_as_interrupt():
        try:
            for task in tasks:
                task.start()
            status = _watch(tasks, restarts)
            if status == 0:
                wait_for_all([task for task in tasks if task.job in TRAINERS], _WORKER_SECONDS)
                wait_for_all([task for task in tasks if task.job == "evaluator"],
                             _EVALUATOR_SECONDS)
            return status
        finally:
            _end(tasks)


def _watch(tasks: Sequence[Task], restarts: int) -> int:
    while True:
        for task in tasks:
            if task.status is None or (task.status == 0 and task.job != "chief"):
                continue
            if task.status == 0:
                return 0
            if task.num_starts > restarts:
                task.say(f"ended with status {task.status}, after {restarts} restarts. The "
                         "cluster ends; --restart N allows more.")
                return abs(task.status)
            task.say(f"ended with status {task.status}: restart {task.num_starts} of {restarts}")
            task.start()
        time.sleep(POLL_SECONDS)


def _end(tasks: Sequence[Task]) -> None:
    servers = [task for task in tasks if task.job == "ps"]
    try:
        for jobs, seconds in _ENDINGS:
            if any(server.status is not None for server in servers):
                return  # without it no task can save
            ending = [task for task in tasks if task.job in jobs]
            for task in ending:
                task.interrupt()
            wait_for_all(ending, seconds)
    finally:
        for task in tasks:
            task.kill()
