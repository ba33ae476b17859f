# SPDX-License-Identifier: Apache-2.0
"""What `verify` says that it has not compared, and how it reads tables."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.fronts.mid_level.keras_layers.test_pipelined_inference import new_model
from tpu_estimator_embedding.migration.verify import comparison, step_checkpoints
from tpu_estimator_embedding.migration.verify.recording import (
    ESTIMATOR,
    KERAS3,
    TF2,
    RecordedResult,
)
from tpu_estimator_embedding.migration.verify.steps import Step
from tpu_estimator_embedding.migration.verify.watched_tables import stored

PHASES = (("training", 3), ("evaluation", 3), ("prediction", 3), ("second training", 4))


def recorded(*phases, **settings):
    return RecordedResult((0.5,) * 3, {}, (), (), True, phases=phases, again=(0.5,), **settings)


@pytest.mark.parametrize("num_replicas, reason", [
    (1, "the legacy program does not {}"),
    (2, "verify follows programs with several replicas in their training only")])
def test_phases_that_are_not_compared_have_the_reason(num_replicas, reason):
    legacy = recorded(PHASES[0], PHASES[3], num_replicas=num_replicas)
    assert comparison._not_compared(legacy, recorded(*PHASES)) == tuple(
        f"{phase} ({reason.format(verb)})"
        for phase, verb in (("evaluation", "evaluate"), ("prediction", "predict")))
    assert comparison._not_compared(recorded(*PHASES), recorded(*PHASES)) == ()


def test_reading_tables_applies_no_pending_update():
    layer, _ = new_model(tf_keras)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer({"f": tf.constant([0, 0])})["f"])
    layer.apply_gradients(tape.gradient(loss, layer.trainable_variables))
    variables = layer._tables.variables
    for _ in range(2):
        np.testing.assert_array_equal(stored(variables)["t"][:, 0], [1, 1, 1, 1, 1])
    np.testing.assert_array_equal(variables["t"].numpy()[:, 0], [-1, 1, 1, 1, 1])


v1 = tf.compat.v1
DRAWS = {  # name of the op -> what a step computes of a tensor
    "dropout/random_uniform/RandomUniform": lambda net: v1.nn.dropout(net, rate=0.5),
    "sampled_softmax_loss/LogUniformCandidateSampler": lambda net: tf.nn.sampled_softmax_loss(
        tf.ones([5, 2]), tf.ones([5]), tf.constant([[1], [2]], tf.int64), net, 2, 5),
    "categorical/Multinomial": lambda net: tf.cast(tf.random.categorical(net, 1), tf.float32),
    "cond": lambda net: tf.cond(net[0, 0] > 0, lambda: tf.random.normal([]), lambda: 1.0),
    "": lambda net: tf.random.stateless_normal([2], [1, 2]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_ops_that_draw_in_each_step_are_found(name):
    with tf.Graph().as_default() as graph:
        batches = tf.data.Dataset.range(4).shuffle(4).map(lambda one: tf.random.uniform([2, 2]))
        net = v1.data.make_one_shot_iterator(batches).get_next()
        net += v1.get_variable("drawn", [2, 2], initializer=v1.random_normal_initializer())
        fetches = [tf.reduce_sum(net) + DRAWS[name](net)]
        assert step_checkpoints.drawing_ops(graph, fetches) == tuple(filter(None, [name]))


@pytest.mark.parametrize("draws, stage, evaluation, problem, is_told", [
    (1, TF2, (), "a shape", True), (7, KERAS3, (), "a shape", True), (0, TF2, (), "a shape", False),
    (1, ESTIMATOR, (), "a shape", False), (1, TF2, ("loss",), "", False)])
def test_differences_of_programs_that_draw_have_the_reason(
        draws, stage, evaluation, problem, is_told):
    steps = [Step(1, (0.5, 0.6), False, None, problem)] if problem else []
    text = comparison.Verification(
        (), (), evaluation, (), tuple(steps), stages=(ESTIMATOR, stage),
        draws=("dropout/RandomUniform",) * draws).to_text()
    assert ("random numbers in each step: dropout/RandomUniform" in text) is is_told
    assert (" and 2 more. The migrated one draws others, so the two cannot agree" in text) is (
        draws == 7)
