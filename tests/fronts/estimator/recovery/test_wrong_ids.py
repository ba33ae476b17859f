# SPDX-License-Identifier: Apache-2.0
"""An id out of range that one worker of a cluster reads changes nothing on the servers."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.cluster import train as program

v1 = tf.compat.v1
STEPS = 3


@pytest.fixture
def be_task(cluster, monkeypatch):
    """Makes this process a trainer of the cluster."""
    tpu_estimator_embedding.install()
    addresses = {job: [server.target.removeprefix("grpc://") for server in servers]
                 for job, servers in cluster.items()}

    def be(job):
        monkeypatch.setenv("TF_CONFIG", json.dumps(
            {"cluster": addresses, "task": {"type": job, "index": 0}}))

    return be


def wrong_input_fn(params):
    return program.input_fn(params).map(lambda ids, label: (
        {**ids, "first": tf.sparse.map_values(lambda values: values + 90, ids["first"])}, label))


def train_wrongly(model_dir):
    estimator = program.new_estimator(model_dir, "mod", **(
        {} if v1.estimator.tpu.RunConfig().cluster_spec else {"num_hosts": 2}))
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        estimator.train(wrong_input_fn, steps=1)
    return raised.value


@pytest.mark.long
def test_tables_are_unchanged_and_the_message_is_that_of_one_machine(cluster, be_task, tmp_path):
    sentence = train_wrongly(str(tmp_path / "alone")).message
    assert sentence.startswith("Ids of feature 'first' must be in [0, 11)")

    be_task("chief")
    estimator = program.new_estimator(str(tmp_path / "cluster"), "mod")
    estimator.train(program.input_fn, max_steps=STEPS)
    with tf.Graph().as_default():
        # The variables by the names that the checkpoint has, two parts of each table and slot.
        saved = tf.train.load_checkpoint(str(tmp_path / "cluster"))
        handles = {name: [part_of(name, saved.get_tensor(name), host) for host in range(2)]
                   for name in saved.get_variable_to_shape_map() if name.startswith(
                       ("words", "items"))}
        with v1.Session(cluster["chief"][0].target) as session:
            before = session.run(handles)
            assert len(before) == 5  # two tables, and their slots
            assert np.ptp(before["words"][1]) > 0  # trained: at first all values are equal
            be_task("worker")
            error = train_wrongly(str(tmp_path / "cluster"))
            after = session.run(handles)
    assert error.message == f"worker 0: {sentence}"
    tf.nest.map_structure(np.testing.assert_array_equal, before, after)


def part_of(name, value, host):
    """Returns the tensor that reads the rows of a host."""
    shape = [len(value[host::2]), value.shape[1]]
    with tf.device(f"/job:ps/task:{host}"):
        handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=shape,
                                        shared_name=f"{name}/part_{host}")
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)
