# SPDX-License-Identifier: Apache-2.0
"""The input of a step is read and prepared while the previous step computes."""

import threading

import numpy as np
import pytest
import tensorflow as tf

from tests.fronts.estimator.counting import (
    TPUEstimatorSpec,
    count,
    counts,
    counts_of,
    input_of,
    new_estimator,
)
from tests.fronts.estimator.hang import finish
from tests.graphs import ancestors
from tests.kernel_choice import choose_kernels


def test_next_batch_is_prepared_while_a_step_computes(tmp_path):
    """A batch is asked for once the one before it is prepared and waits in the queue."""
    computing, prepared, waited = threading.Event(), threading.Event(), []

    def input_fn(params):
        def generate():
            yield [0, 1]
            assert computing.wait(30)
            yield [2, 3]
            prepared.set()
        return tf.data.Dataset.from_generator(
            generate, output_signature=tf.TensorSpec([2], tf.int64)).map(lambda ids: {"id": ids})

    def wait(activations):
        computing.set()
        waited.append(prepared.wait(30))
        return activations

    def model_fn(features, labels, mode, params):
        computed = tf.numpy_function(wait, [tf.stop_gradient(features["id"])], tf.float32)
        loss = tf.stop_gradient(tf.reduce_sum(computed)) - tf.reduce_sum(features["id"])
        with tf.control_dependencies([computed]):
            return TPUEstimatorSpec(mode, loss=loss, train_op=count(tf.identity(loss)))

    estimator = new_estimator(tmp_path, model_fn)
    finish(estimator.train, input_fn, max_steps=100)
    assert waited == [True, True]
    assert counts(estimator) == counts_of(*range(4))


@pytest.mark.parametrize("kernels, write, preparing", [
    ("tf", "ResourceScatterUpdate", {"Assert", "Unique"}),
    ("native", "TpuEmbeddingUpdate", {"TpuEmbeddingPrepareIds"})])
def test_step_neither_reads_nor_prepares_its_input(tmp_path, monkeypatch, kernels, write,
                                                   preparing):
    """What the table's update waits for ends at the queue; the work is done before it.

    A loop in the graph does it, in its body, which is a function.
    """
    choose_kernels(kernels, monkeypatch)
    kinds = {}

    class Inspect(tf.compat.v1.train.SessionRunHook):
        def begin(self):
            graph = tf.compat.v1.get_default_graph()
            kinds["step"] = {ancestor.type for op in graph.get_operations() if op.type == write
                             for ancestor in ancestors(op)}
            kinds["input"] = {node.op for function in graph.as_graph_def().library.function
                              for node in function.node_def}

    new_estimator(tmp_path).train(input_of(np.arange(4)), max_steps=1, hooks=[Inspect()])
    reading_and_preparing = {"IteratorGetNext", *preparing}
    assert reading_and_preparing <= kinds["input"]
    assert not reading_and_preparing & kinds["step"]
    assert any(kind.startswith("QueueDequeue") for kind in kinds["step"])
