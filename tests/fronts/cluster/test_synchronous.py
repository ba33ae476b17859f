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
from tests.fronts.cluster import train, train_together
from tpu_estimator_embedding.estimator.cluster.tasks import workers_of

PROGRAM = pathlib.Path(train_together.__file__)
COMMAND = [sys.executable, "-m", "tpu_estimator_embedding", "cluster"]
STEPS = 20


def values(model_dir):
    reader = tf.train.load_checkpoint(str(model_dir / f"model.ckpt-{STEPS}"))
    return {name: reader.get_tensor(name)
            for name, dtype in reader.get_variable_to_dtype_map().items() if dtype != tf.string}


def train_in_one_process(model_dir, num_workers, pipelined, num_batches):
    """Trains with a replica for each worker, from the batches of all."""
    tpu_estimator_embedding.install()
    estimator = tf.compat.v1.estimator.tpu.TPUEstimator(
        train.model_fn, config=tf.compat.v1.estimator.tpu.RunConfig(
            model_dir=str(model_dir),
            tpu_config=tf.compat.v1.estimator.tpu.TPUConfig(num_shards=num_workers)),
        train_batch_size=num_workers * train.BATCH_SIZE, eval_batch_size=train.BATCH_SIZE,
        embedding_config_spec=train.embedding_config_spec(
            "mod", pipeline_execution_with_tensor_core=pipelined), num_hosts=2)
    estimator.train(lambda params: train_together.batches_of(
        range(num_workers), params["batch_size"], num_batches),
                    max_steps=STEPS)


@pytest.mark.parametrize("num_workers, options", [(2, []), (2, ["deaths"]), (3, ["pipelined"])])
def test_workers_train_as_replicas(tmp_path, num_workers, options):
    done = subprocesses.start([
        *COMMAND, "--workers", num_workers - 1, "--ps", "2", "--restart", "1", "--",
        "--synchronous", PROGRAM, tmp_path / "together", STEPS, "mod", *options])
    assert done.returncode == 0, done.stdout + done.stderr
    died = re.findall(r"\[(\w+) 0\] ended with status -9: restart", done.stdout)
    restored = re.findall(r"\[chief 0\] .*Restoring parameters from", done.stdout)
    # A part of an update was made when the chief died, and none when the worker did.
    assert (died, len(restored)) == ((["chief", "worker"], 1) if "deaths" in options else ([], 0))
    train_in_one_process(tmp_path / "alone", num_workers, "pipelined" in options,
                         1 if "deaths" in options else train_together.NUM_BATCHES)
    together, alone = values(tmp_path / "together"), values(tmp_path / "alone")
    assert together.keys() == alone.keys()
    for name, value in alone.items():  # three workers add their gradients in another order
        np.testing.assert_allclose(together[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


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


@pytest.mark.parametrize("job", ["chief", "worker"])
def test_without_servers_nothing_sums_the_gradients_of_all(monkeypatch, job):
    tpu_estimator_embedding.install()
    config = config_of(monkeypatch, job, chief=1, worker=1)
    with pytest.raises(ValueError, match="must have parameter servers, which sum the gradients of "
                                         'chief 0, worker 0, got no ps task. Add "ps" to'):
        workers_of(config, tpu_estimator_embedding.ClusterConfig(synchronous=True))
    assert workers_of(config, tpu_estimator_embedding.ClusterConfig()) is None


def test_cluster_config_is_checked():
    with pytest.raises(ValueError, match="`timeout_seconds` must be positive, got 0"):
        tpu_estimator_embedding.ClusterConfig(timeout_seconds=0)
    with pytest.raises(TypeError, match="`timeout_seconds` must be a number, got '5'"):
        tpu_estimator_embedding.ClusterConfig(timeout_seconds="5")
    with pytest.raises(ValueError, match="`synchronous` must be one of True, False, got 'no'"):
        tpu_estimator_embedding.ClusterConfig(synchronous="no")
    tpu_estimator_embedding.install()
    with pytest.raises(TypeError, match="`cluster_config` must be"):
        train.new_estimator("/tmp/unused", "mod", cluster_config=True)
