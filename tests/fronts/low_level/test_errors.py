# SPDX-License-Identifier: Apache-2.0
"""What a TPUEmbedding refuses, with the type and the sentence of each."""

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat.modules import tpu_embedding as te

ADAGRAD = te.AdagradParameters(0.1)


class UnknownParameters(te._OptimizationParameters):
    """An optimizer of the program's own."""


def make(tables=None, features=None, batch_size=4, mode=te.TRAINING, **options):
    if mode == te.TRAINING:
        options.setdefault("optimization_parameters", ADAGRAD)
    options.setdefault("device_config", te.DeviceConfig(1, 2, "/job:worker"))
    return te.TPUEmbedding(tables or {"words": te.TableConfig(10, 2)},
                           features or {"title": te.FeatureConfig("words")}, batch_size, mode,
                           **options)


@pytest.mark.parametrize("arguments, sentence", [
    ({"batch_size": 0}, "`batch_size` must be an int of at least 1, got 0"),
    ({"device_config": te.DeviceConfig(1, 0, "/job:worker")},
     "`num_cores` must be an int of at least 1, got 0"),
    ({"device_config": te.DeviceConfig(0, 2, "/job:worker")},
     "`num_hosts` must be an int of at least 1, got 0"),
    ({"optimization_parameters": UnknownParameters()},
     "`optimization_parameters` must be one of AdagradMomentumParameters, .* got "
     "<.*UnknownParameters"),
    ({"mode": "train"}, r"`mode` must be TRAINING \(2\) or INFERENCE \(1\), got 'train'"),
    ({"optimization_parameters": te.FrequencyEstimatorParameters(0.1, 10.0, 2.0, 1.0)},
     "Dimension of table 'words' must be 1 under FrequencyEstimatorParameters, got 2"),
])
def test_constructor(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**arguments)


def test_job_of_hosts_has_to_be_named():
    cluster = tf.train.ClusterSpec({"a": ["h:1"], "b": ["h:2"], "c": ["h:3"]}).as_cluster_def()
    with pytest.raises(ValueError, match="`master_job_name` must be given where cluster_def has "
                                         "several jobs, got None"):
        make(batch_size=1, device_config=None, master="grpc://h:1", cluster_def=cluster)


def data(ids=(1, 2)):
    return te.EnqueueData(tf.constant(ids), tf.constant([[0, 0], [1, 0]]))


def ragged():
    return te.RaggedEnqueueData(tf.constant([1, 2]), tf.constant([0, 1, 2]))


def enqueue(datas_list, engine=None, **options):
    with tf.Graph().as_default():
        (engine or make()).generate_enqueue_ops(
            datas_list() if callable(datas_list) else datas_list, **options)


@pytest.mark.parametrize("datas_list, sentence", [
    (lambda: [{"title": data()}],
     "`enqueue_datas_list` must be a list of 2 dictionaries, one for each core, got 1"),
    (lambda: {"title": data()}, "`enqueue_datas_list` must be a list of 2 dictionaries"),
    (lambda: [{"title": data()}, {"title": ragged()}],
     r"`enqueue_datas_list\[1\]\['title'\]` must be of class EnqueueData for ragged=False"),
])
def test_enqueue_list(datas_list, sentence):
    with pytest.raises(ValueError, match=sentence):
        enqueue(datas_list)


def test_sparse_ids_where_ragged_ones_are_promised():
    with pytest.raises(ValueError, match=r"\['title'\]` must be of class RaggedEnqueueData for "
                                         "ragged=True, .*RaggedEnqueueData.from_ragged_tensor"):
        enqueue(lambda: [{"title": ragged()}, {"title": data()}], ragged=True)


def on(device, make_data=data):
    with tf.device(device):
        return make_data()


def test_parts_of_a_feature_on_several_devices():
    def mixed():
        return [{"title": te.EnqueueData(on("CPU:0", lambda: tf.constant([1, 2])),
                                         on("CPU:1", lambda: tf.constant([0, 1])))}] * 2

    with pytest.raises(ValueError, match="must be all on one device"):
        enqueue(mixed)


def send(gradients, engine=None, **options):
    with tf.Graph().as_default():
        (engine or make()).generate_send_gradients_op(
            gradients() if callable(gradients) else gradients, **options)


@pytest.mark.parametrize("gradients, sentence", [
    ({}, r"feature_to_gradient_dict: `features` must be exactly .* Missing: \['title'\]"),
    (lambda: {"title": tf.zeros([2, 2]), "user": tf.zeros([2, 2])},
     r"feature_to_gradient_dict: .* Not configured: \['user'\]"),
    ({"title": None}, r"`feature_to_gradient_dict\['title'\]` must be a float32 tensor of shape "
                      r"\[2, 2\], got None. The loss does not depend on this activation"),
    (lambda: {"title": tf.zeros([4, 2])}, r"must be a float32 tensor of shape \[2, 2\], got"),
    (lambda: {"title": tf.zeros([2, 2], tf.float64)}, r"must be a float32 tensor of shape"),
])
def test_gradients(gradients, sentence):
    with pytest.raises(ValueError, match=sentence):
        send(gradients)
