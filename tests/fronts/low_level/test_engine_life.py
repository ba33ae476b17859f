# SPDX-License-Identifier: Apache-2.0
"""How long an engine keeps what it made in graphs."""

import gc
import weakref

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules import tpu_embedding as te


@pytest.mark.slow
def test_the_engine_that_is_configured_keeps_no_graph():
    engine = te.TPUEmbedding(
        {"words": te.TableConfig(13, 1)}, {"title": te.FeatureConfig("words")}, 4, te.TRAINING,
        optimization_parameters=te.AdagradParameters(0.1),
        device_config=te.DeviceConfig(1, 1, "/job:localhost"))
    graphs = []
    for _ in range(3):
        with tf.Graph().as_default() as graph:
            engine.create_variables_and_ops()
            activations = engine.get_activations()
            engine.generate_send_gradients_op(activations)
            graphs.append(weakref.ref(graph))
    del graph, activations
    gc.collect()
    assert [graph() for graph in graphs] == [None, None, None]
