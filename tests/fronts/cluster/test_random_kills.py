# SPDX-License-Identifier: Apache-2.0
"""The demo on a cluster whose tasks are killed again and again learns what it learns in peace.

    pytest -m soak -n 0 -s tests/fronts/cluster/test_random_kills.py

The variables NUM_KILLS and NUM_EXAMPLES change its size, SEED its kills.
"""

import os
import random
import time

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.cluster.faults import FaultyCluster, check_checkpoints
from tpu_estimator_embedding.cluster.task import new_tasks, run_command
from tpu_estimator_embedding.demo import training
from tpu_estimator_embedding.demo.click_logs import ClickLogs
from tpu_estimator_embedding.demo.model import make_input_fn

NUM_KILLS = int(os.environ.get("NUM_KILLS", "30"))
NUM_EXAMPLES = int(os.environ.get("NUM_EXAMPLES", "4000000"))
SEED = int(os.environ.get("SEED", "1"))
BATCH_SIZE = 128  # so that there are many steps
SECONDS = 3 * 3600
DOWN_SECONDS = 3  # until a cluster manager starts a task again
BETWEEN_SECONDS = (1, 30)


def demo_cluster(directory):
    arguments = {"--model-dir": directory, "--examples": NUM_EXAMPLES, "--batch-size": BATCH_SIZE,
                 "--seed": SEED, "--multiplier": "1"}
    command = run_command(["-m", "tpu_estimator_embedding.demo.cluster_task",
                           *[str(text) for pair in arguments.items() for text in pair]])
    return FaultyCluster(new_tasks(command, workers=1, servers=2, evaluator=True),
                         directory / "model")


def train(directory, num_kills):
    """Trains the demo, with so many kills of random tasks; returns how many there were."""
    ClickLogs(directory / "click_logs", NUM_EXAMPLES, SEED).write()
    chance, killed = random.Random(SEED), 0
    cluster = demo_cluster(directory)
    deadline = time.monotonic() + SECONDS
    try:
        cluster.start(*cluster.tasks)
        while cluster["chief 0"].status is None:
            assert time.monotonic() < deadline, cluster.log
            names = []
            if killed < num_kills:
                time.sleep(chance.uniform(*BETWEEN_SECONDS))
                names = [chance.choice(sorted(cluster.tasks))]
                if chance.random() < 0.1:
                    names = list(cluster.tasks)
                if cluster["chief 0"].status is None:
                    print(f"kill {killed + 1}: {names}", flush=True)
                    cluster.kill(*names)
                    killed += 1
                    time.sleep(DOWN_SECONDS)
            cluster.start(*(name for name, task in cluster.tasks.items() if name in names
                            or name != "chief 0" and task.status not in (None, 0)))
            time.sleep(0.2)
        assert cluster["chief 0"].status == 0, cluster.log
    finally:
        for task in cluster.tasks.values():
            task.kill()
    return killed


def auc(directory):
    """Returns the AUC of the newest checkpoint, evaluated in this process."""
    logs = ClickLogs(directory / "click_logs", NUM_EXAMPLES, SEED)
    estimator = training.make_estimator(
        directory / "model", logs, BATCH_SIZE, lambda loss: tf.compat.v1.train.SessionRunHook())
    return float(estimator.evaluate(make_input_fn(logs.eval_files))["auc"])


@pytest.mark.soak
def test_random_kills_cost_nothing_but_time(tmp_path):
    tpu_estimator_embedding.install()
    results = {}
    for name, num_kills in (("in peace", 0), ("killed", NUM_KILLS)):
        start = time.monotonic()
        killed = train(tmp_path / name, num_kills)
        assert killed == num_kills, "Training ended before: set NUM_EXAMPLES to more."
        steps = training.total_steps(ClickLogs(tmp_path, NUM_EXAMPLES, SEED), BATCH_SIZE)
        check_checkpoints(tmp_path / name / "model", steps, "global_step")
        results[name] = auc(tmp_path / name)
        print(f"{name}: {killed} kills, {time.monotonic() - start:.0f} s, "
              f"AUC {results[name]:.4f}", flush=True)
    assert abs(results["in peace"] - results["killed"]) < 0.005
