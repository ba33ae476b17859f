# SPDX-License-Identifier: Apache-2.0
"""Pipelined lookups: one step stale, no update lost, complete wherever tables are read."""

import numpy as np
import pytest
import tensorflow as tf

from tests.batches import random_gradients
from tests.fronts.mid_level.oracle_configs import to_feature_config
from tests.fronts.mid_level.test_tpu_embedding import (
    BATCH_SIZE,
    CASES,
    check_tables,
    new_batch,
    new_oracle,
    to_inputs,
)
from tests.spec.oracle import train
from tpu_estimator_embedding.mid_level import SGD, FeatureConfig, TableConfig, TPUEmbedding

TOLERANCE = {"rtol": 1e-5, "atol": 2e-6}
IDS = tf.constant([0])


def one_row(optimizer=None):
    table = TableConfig(2, 1, tf.zeros_initializer(), name="row")
    return table, TPUEmbedding(FeatureConfig(table), optimizer or SGD(1.0), True)


def step(embedding, gradient=-1.0):
    embedding.enqueue(IDS)
    seen = float(embedding.dequeue()[0, 0])
    embedding.apply_gradients(tf.constant([[gradient]]))
    return seen


def test_activations_miss_the_update_before():
    oracle, rng = new_oracle(CASES["Adagrad"]), np.random.default_rng(0)
    embedding = TPUEmbedding(to_feature_config(oracle), None,
                             pipeline_execution_with_tensor_core=True)
    embedding.build(BATCH_SIZE)

    @tf.function(reduce_retracing=True)
    def trained(features, gradients):
        embedding.enqueue(features)
        activations = embedding.dequeue()
        embedding.apply_gradients(gradients)
        return activations

    batches = [new_batch(rng, oracle) for _ in range(4)]
    gradients = [random_gradients(rng, oracle.activations(batch)) for batch in batches]
    seen = [trained(to_inputs(batch)[0], {name: tf.constant(value) for name, value in of.items()})
            for batch, of in zip(batches, gradients, strict=True)]
    expected = train(oracle, batches, lambda step, _: gradients[step], pipelined=True)
    for found, activations in zip(seen, expected, strict=True):
        for name, values in activations.items():
            np.testing.assert_allclose(found[name], values, **TOLERANCE)
    check_tables(embedding, oracle, TOLERANCE)


def test_loops_are_one_step_stale():
    table, embedding = one_row()

    @tf.function
    def run(steps):
        seen = tf.TensorArray(tf.float32, steps)
        for k in tf.range(steps):
            embedding.enqueue(IDS)
            seen = seen.write(k, embedding.dequeue()[0, 0])
            embedding.apply_gradients(tf.constant([[-1.0]]))
        return seen.stack()

    embedding.build(1)
    assert run(4).numpy().tolist() == [0.0, 0.0, 1.0, 2.0]
    assert embedding.embedding_tables[table][0].numpy() == 4.0


def test_tables_are_complete_where_they_are_read():
    table, embedding = one_row()
    assert [step(embedding) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert embedding.embedding_tables[table][0].numpy() == 3.0
    # Nothing is left that the next step could miss.
    assert [step(embedding), step(embedding)] == [3.0, 3.0]


def test_tables_are_complete_in_evaluation():
    _, embedding = one_row()
    step(embedding)
    embedding.enqueue(IDS, training=False)
    assert float(embedding.dequeue()[0, 0]) == 1.0


@pytest.mark.parametrize("in_function", [False, True])
def test_checkpoints_are_complete(in_function, tmp_path):
    table, embedding = one_row()
    embedding.build(1)
    tf.function(lambda: step_of(embedding))() if in_function else step(embedding)
    path = tf.train.Checkpoint(embedding=embedding).save(tmp_path / "model")
    value = tf.train.load_checkpoint(path).get_tensor(
        "embedding/row/.ATTRIBUTES/VARIABLE_VALUE")
    assert value.tolist() == [[1.0], [0.0]]


def test_asynchronous_checkpoints_are_complete(tmp_path):
    _, embedding = one_row()
    step(embedding)
    checkpoint = tf.train.Checkpoint(embedding=embedding)
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for saved in (1.0, 2.0, 3.0):
        checkpoint.save(tmp_path / "model", options=options)
        checkpoint.sync()
        values = tf.train.load_checkpoint(tf.train.latest_checkpoint(tmp_path))
        assert values.get_tensor("embedding/row/.ATTRIBUTES/VARIABLE_VALUE")[0, 0] == saved
        step(embedding)


def step_of(embedding):
    embedding.enqueue(IDS)
    embedding.dequeue()
    embedding.apply_gradients(tf.constant([[-1.0]]))


def test_restored_tables_do_not_get_the_update_of_others(tmp_path):
    table, embedding = one_row()
    checkpoint = tf.train.Checkpoint(embedding=embedding)
    step(embedding)
    path = checkpoint.save(tmp_path / "model")
    step(embedding, -100.0)
    checkpoint.restore(path)
    assert step(embedding) == 1.0
    assert embedding.embedding_tables[table][0].numpy() == 2.0


def test_late_updates_have_the_learning_rate_of_their_step():
    rate = tf.Variable(1.0)
    table, embedding = one_row(SGD(lambda: rate))
    step(embedding)
    rate.assign(10.0)
    assert embedding.embedding_tables[table][0].numpy() == 1.0


class FailingEngine:
    variables: dict[str, object] = {}

    def update(self, ids, update):
        raise RuntimeError("no memory")


def test_update_that_fails_stays_pending():
    table, embedding = one_row()
    step(embedding)
    delayed = embedding._batches._delayed
    with pytest.raises(RuntimeError, match="no memory"):
        delayed.apply(FailingEngine())
    with pytest.raises(RuntimeError, match="no memory"), delayed.applied(FailingEngine()):
        pass
    with pytest.raises(ValueError, match="full disk"), embedding._completed():
        raise ValueError("full disk")
    assert step(embedding) == 0.0  # misses the update before, as ever
    assert embedding.embedding_tables[table][0].numpy() == 2.0
