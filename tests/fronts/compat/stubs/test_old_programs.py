# SPDX-License-Identifier: Apache-2.0
"""What programs of the time wrote around a TPU: layers, imported graphs, copies of TPUEstimator."""

import types

import pytest
import tensorflow as tf

import tpu_estimator_embedding
from tests.fronts.estimator.counting import new_estimator
from tests.subprocesses import run_python

tpu_estimator_embedding.install()

v1 = tf.compat.v1


def test_subclasses_of_batch_normalization_are_called_as_they_were_written():
    calls = []

    class TpuBatchNormalization(v1.layers.BatchNormalization):
        def _moments(self, inputs, reduction_axes, keep_dims):
            calls.append(type(self).__name__)
            return super()._moments(inputs, reduction_axes, keep_dims=keep_dims)

    class Derived(TpuBatchNormalization):
        pass

    with tf.Graph().as_default(), v1.Session() as session:
        outputs = [layer(fused=False, epsilon=0)(tf.constant([[1.0], [3.0]]), training=True)
                   for layer in (TpuBatchNormalization, Derived)]
        session.run(v1.global_variables_initializer())
        for output in session.run(outputs):
            assert output.ravel() == pytest.approx([-1, 1])
    assert calls == ["TpuBatchNormalization", "Derived"]


def test_a_copy_of_tpu_estimator_says_what_to_import_instead():
    copy = types.ModuleType("language_model.tpu_context")
    exec("from tensorflow.python.tpu import tpu_system_metadata\n"
         "def num_cores(**options):\n"
         "  return tpu_system_metadata._query_tpu_system_metadata('', **options).num_cores",
         vars(copy))
    for options in ({}, {"query_topology": True}):
        with pytest.raises(RuntimeError, match="^Cannot find any TPU cores in the system: "
                           "'language_model.tpu_context' .* Import `tensorflow.compat.v1"):
            copy.num_cores(**options)


IMPORT = """
import os, tpu_estimator_embedding
tpu_estimator_embedding.install()
import tensorflow as tf
v1 = tf.compat.v1
with tf.Graph().as_default(), v1.Session() as session:
    checkpoint = os.environ["CHECKPOINT"]
    v1.train.import_meta_graph(checkpoint + ".meta").restore(session, checkpoint)
    [table] = [each for each in v1.global_variables() if "counts" in each.op.name]
    print("sum", float(session.run(tf.reduce_sum(table.value()))))
"""


@pytest.mark.long
def test_the_graph_of_a_checkpoint_is_imported_before_a_table_exists(tmp_path):
    new_estimator(tmp_path).train(
        lambda params: tf.data.Dataset.from_tensors({"id": [1, 2]}).repeat(), max_steps=3)
    checkpoint = tf.train.latest_checkpoint(str(tmp_path))
    assert "sum 6.0" in run_python(IMPORT, CHECKPOINT=checkpoint).stdout
