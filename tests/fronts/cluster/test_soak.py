# SPDX-License-Identifier: Apache-2.0
"""The tasks of a long synchronous training keep their size.

    pytest -m soak -n 0 -s tests/fronts/cluster/test_soak.py

The variable NUM_STEPS changes its length.
"""

import os
import pathlib
import re
import time

import pytest

from tests.fronts.cluster import train_together
from tests.fronts.cluster.faults import FaultyCluster, check_checkpoints
from tpu_estimator_embedding.cluster.task import new_tasks, run_command

NUM_STEPS = int(os.environ.get("NUM_STEPS", "20000"))
FIRST_STEP = 1000  # until then pools and buffers grow, such as TensorFlow's with its second save
EVERY = 1000
GROWTH = 1.02
SECONDS = 3 * 3600


def resident_megabytes(pid):
    """Returns the memory that a process has allocated; the kernel drops pages of files at will."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) / 1000


def last_step(task):
    lines = "\n".join(line for _, line in task.lines[-20:])
    return max(map(int, re.findall(r"step = (\d+)", lines)), default=0)


def watch(cluster):
    """Waits for the end of training; returns step -> task -> its resident memory."""
    samples, next_step = {}, FIRST_STEP
    deadline = time.monotonic() + SECONDS
    while cluster["chief 0"].status is None:
        assert time.monotonic() < deadline, cluster.log
        step = last_step(cluster["chief 0"])
        if next_step <= step < NUM_STEPS - 100:  # later, tasks may have ended
            samples[step] = {name: resident_megabytes(task.pid)
                             for name, task in cluster.tasks.items()}
            next_step = step + EVERY
            print(f"step {step}: " + ", ".join(
                f"{name} {size:.1f} MB" for name, size in samples[step].items()), flush=True)
        time.sleep(0.2)
    return samples


@pytest.mark.soak
def test_memory_of_synchronous_tasks_does_not_grow(tmp_path):
    command = run_command(["--synchronous", train_together.__file__, str(tmp_path),
                           str(NUM_STEPS), "mod", "saves"])
    cluster = FaultyCluster(new_tasks(command, workers=2, servers=2, evaluator=False), tmp_path)
    start = time.monotonic()
    try:
        cluster.start(*cluster.tasks)
        samples = watch(cluster)
        assert cluster["chief 0"].status == 0, cluster.log
        cluster.wait_for_end("worker 0")
        cluster.wait_for_end("worker 1")
    finally:
        for task in cluster.tasks.values():
            task.kill()
    print(f"{NUM_STEPS} steps in {time.monotonic() - start:.0f} s", flush=True)
    check_checkpoints(tmp_path, NUM_STEPS)
    first, *later = samples.values()
    assert len(later) >= NUM_STEPS // EVERY // 2
    for name, size in first.items():
        growth = max(sample[name] for sample in later) / size
        print(f"{name}: {size:.1f} MB at step {min(samples)}, at most {growth - 1:+.1%} later")
        assert growth <= GROWTH, name
