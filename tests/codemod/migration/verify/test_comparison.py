# SPDX-License-Identifier: Apache-2.0
"""What `verify` says that it has not compared, and how it reads tables."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from tests.fronts.mid_level.keras_layers.test_pipelined_inference import new_model
from tpu_estimator_embedding.migration.verify import comparison
from tpu_estimator_embedding.migration.verify.recording import RecordedResult
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
