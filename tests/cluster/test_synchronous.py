# SPDX-License-Identifier: Apache-2.0
"""Workers that update together train the tables of one process with as many replicas."""

import json
import pathlib
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests import subprocesses
from tests.cluster import train, train_together
from tpu_estimator_embedding.estimator.synchronous.workers import workers_of

PROGRAM = pathlib.Path(train_together.__file__)
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding", "cluster", "--workers", "1",
           "--ps", "2"]
STEPS = 20


def values(model_dir):
    reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{STEPS}"))
    return {name: reader.get_tensor(name)
            for name, dtype in reader.get_variable_to_dtype_map().items() if dtype != tf.string}


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory):
    """Returns what one process with two replicas trains from the batches of two workers."""
    tpu_estimator_embedding.install()
    model_dir = tmp_path_factory.mktemp("alone")
    estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
        train.model_fn, config=tf.compat.v1.estimator.tpu.RunConfig(
            model_dir=str(model_dir),
            tpu_config=tf.compat.v1.estimator.tpu.TPUConfig(num_shards=2)),
        train_batch_size=2 * train.BATCH_SIZE, eval_batch_size=train.BATCH_SIZE,
        embedding_config_spec=train.embedding_config_spec("mod"), num_hosts=2)
    estimator.train(lambda params: train_together.batches_of([0, 1], params["batch_size"]),
                    max_steps=STEPS)
    return values(model_dir)


@pytest.mark.parametrize("step_of_death", [[], [STEPS // 2]])
def test_two_workers_train_as_two_replicas(tmp_path, in_one_process, step_of_death):
    done = subprocesses.start([*COMMAND, "--restart", "1", "--", "--synchronous", PROGRAM,
                               tmp_path, STEPS, "mod", *step_of_death])
    assert done.returncode == 0, done.stdout + done.stderr
    assert bool(re.search(r"\[worker 0\] ended with status -9: restart", done.stdout)) == bool(
        step_of_death)
    together = values(tmp_path)
    assert together.keys() == in_one_process.keys()
    for name, value in in_one_process.items():
        np.testing.assert_allclose(together[name], value, rtol=1e-6, atol=1e-7, err_msg=name)


def config_of(monkeypatch, job, **jobs):
    monkeypatch.setenv("TF_CONFIG", json.dumps({
        "cluster": {name: [f"{name}{number}:1" for number in range(count)]
                    for name, count in jobs.items()}, "task": {"type": job, "index": 0}}))
    return tf.compat.v1.estimator.tpu.RunConfig()


def test_the_chief_is_the_first_worker(monkeypatch):
    tpu_estimator_embedding.install()
    config = config_of(monkeypatch, "worker", chief=1, worker=2, ps=2)
    workers = workers_of(config, tpu_estimator_embedding.ClusterConfig(synchronous=True))
    assert workers.names == ("chief 0", "worker 0", "worker 1")
    assert workers.number == 1 and not workers.is_chief
    assert workers_of(config, tpu_estimator_embedding.ClusterConfig()) is None


@pytest.mark.parametrize("job, jobs", [
    ("ps", {"chief": 1, "worker": 1, "ps": 1}), ("chief", {"chief": 1, "ps": 1}),
    ("evaluator", {"chief": 1, "worker": 1, "ps": 1})])
def test_others_update_on_their_own(monkeypatch, job, jobs):
    tpu_estimator_embedding.install()
    config = config_of(monkeypatch, job, **jobs)
    assert workers_of(config, tpu_estimator_embedding.ClusterConfig(synchronous=True)) is None


def test_cluster_config_is_checked():
    with pytest.raises(ValueError, match="`timeout_seconds` must be positive, got 0"):
        tpu_estimator_embedding.ClusterConfig(timeout_seconds=0)
    tpu_estimator_embedding.install()
    with pytest.raises(TypeError, match="`cluster_config` must be"):
        train.new_estimator("/tmp/unused", "mod", cluster_config=True)
