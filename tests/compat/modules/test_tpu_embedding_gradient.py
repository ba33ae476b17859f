# SPDX-License-Identifier: Apache-2.0
"""The restored `tpu_embedding_gradient` module."""

import collections

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules import tpu_embedding_gradient


def test_gradients_keep_order_and_keys():
    with tf.Graph().as_default():
        activations = collections.OrderedDict(
            b=tf.constant([[1.0, 2.0]]), a=tf.constant([[3.0]]), unused=tf.constant([[5.0]]))
        loss = tf.reduce_sum(2 * activations["b"]) + tf.reduce_sum(activations["a"] ** 2)
        gradients = tpu_embedding_gradient.get_gradients_through_compute_gradients(
            tf.compat.v1.train.GradientDescentOptimizer(1.0), loss, activations)
        assert list(gradients) == ["b", "a", "unused"]
        assert gradients["unused"] is None
        with tf.compat.v1.Session() as session:
            b, a = session.run([gradients["b"], gradients["a"]])
    assert (b.tolist(), a.tolist()) == ([[2.0, 2.0]], [[6.0]])


@pytest.mark.parametrize("call", [
    lambda: tpu_embedding_gradient.create_dummy_table_variables(None),
    lambda: tpu_embedding_gradient.hook_dummy_table_variables_to_activations(None, {}, {}),
    lambda: tpu_embedding_gradient.get_gradients_through_dummy_table_variables(None)])
def test_functions_on_a_tpu_embedding_name_the_way_out(call):
    with pytest.raises(RuntimeError, match=r"TPUEstimator\(embedding_config_spec=\.\.\.\)"):
        call()
