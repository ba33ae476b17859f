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
    ({"partition_strategy": "row"}, "`partition_strategy` must be one of 'div', 'mod', got 'row'"),
    ({"tables": {"words": (10, 2)}}, r"`table_to_config_dict\['words'\]` must be a TableConfig"),
    ({"features": {"title": "words"}},
     r"`feature_to_config_dict\['title'\]` must be a FeatureConfig, got 'words'"),
    ({"features": {"title": te.FeatureConfig("words"), "user": te.FeatureConfig("users")}},
     "Table of feature 'user' must be one of the tables .*'words'.*got 'users'"),
    ({"tables": {"words": te.TableConfig(10, 2), "users": te.TableConfig(10, 2)}},
     r"`tables` must be used by at least one feature each, got \['users'\]"),
    ({"batch_size": 5}, "`batch_size` must be a multiple of the number of cores, 2, got 5"),
    ({"batch_size": 0}, "`batch_size` must be an int of at least 1, got 0"),
    ({"device_config": te.DeviceConfig(1, 0, "/job:worker")},
     "`num_cores` must be an int of at least 1, got 0"),
    ({"device_config": te.DeviceConfig(0, 2, "/job:worker")},
     "`num_hosts` must be an int of at least 1, got 0"),
    ({"device_config": te.DeviceConfig(2, 3, "/job:worker")},
     "`num_cores` must be a multiple of num_hosts, 2, got 3"),
    ({"device_config": None},
     "`device_config` must be given where master and cluster_def are None, got None. "
     "Pass master=''"),
    ({"optimization_parameters": None},
     r"`optimization_parameters` is missing.* \['words'\]"),
    ({"optimization_parameters": "adagrad"},
     r"`optimization_parameters` must be one of the \*Parameters, .* got 'adagrad'"),
    ({"optimization_parameters": UnknownParameters()},
     "`optimization_parameters` must be one of AdagradMomentumParameters, .* got "
     "<.*UnknownParameters"),
    ({"mode": te.INFERENCE, "optimization_parameters": ADAGRAD},
     "`optimization_parameters` must be None where mode is INFERENCE, got Adagrad"),
    ({"mode": "train"}, r"`mode` must be TRAINING \(2\) or INFERENCE \(1\), got 'train'"),
    ({"mode": 3}, r"`mode` must be TRAINING \(2\) or INFERENCE \(1\), got 3"),
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
    (lambda: [{"title": data()}, {}],
     r"`enqueue_datas_list\[1\]` misses a feature .* must be exactly .* Missing: \['title'\]"),
    (lambda: [{"title": data(), "user": data()}, {"title": data()}],
     r"`enqueue_datas_list\[0\]` has a feature .* Not configured: \['user'\]"),
    (lambda: [{"title": data()}, {"title": tf.sparse.from_dense([[1], [2]])}],
     r"`enqueue_datas_list\[1\]\['title'\]` must be of class EnqueueData for ragged=False, .*"
     r"Make it with EnqueueData.from_sparse_tensor"),
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


def two_features():
    return make(features={name: te.FeatureConfig("words") for name in ("title", "body")})


def on(device, make_data=data):
    with tf.device(device):
        return make_data()


def test_features_of_a_core_on_several_devices():
    with pytest.raises(ValueError, match=r"`enqueue_datas_list\[0\]` must be all on one device, "
                                         "got .*'title': .*CPU:0.*'body': .*CPU:1"):
        enqueue(lambda: [{"title": on("CPU:0"), "body": on("CPU:1")}] * 2, two_features())


def test_parts_of_a_feature_on_several_devices():
    def mixed():
        return [{"title": te.EnqueueData(on("CPU:0", lambda: tf.constant([1, 2])),
                                         on("CPU:1", lambda: tf.constant([0, 1])))}] * 2

    with pytest.raises(ValueError, match="must be all on one device"):
        enqueue(mixed)


def test_cores_of_a_host_apart():
    engine = make(device_config=te.DeviceConfig(2, 4, "/job:worker"))
    devices = ["CPU:0", "CPU:1", "CPU:0", "CPU:1"]
    with pytest.raises(ValueError, match=r"`enqueue_datas_list\[1\]` must be on the device of core "
                                         "0, which is on the same host, .*CPU:0.*CPU:1.*Keep"):
        enqueue(lambda: [{"title": on(device)} for device in devices], engine)


def test_cores_of_hosts_together():
    engine = make(batch_size=8, device_config=te.DeviceConfig(2, 4, "/job:worker"))
    enqueue(lambda: [{"title": on(device)} for device in ("CPU:0", "CPU:0", "CPU:1", "CPU:1")],
            engine)


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


@pytest.mark.filterwarnings("ignore:Activations under FrequencyEstimator")
@pytest.mark.parametrize("table, optimizer", [
    (te.TableConfig(10, 1, learning_rate_fn=lambda step: 0.1), ADAGRAD),
    (te.TableConfig(10, 1), te.FrequencyEstimatorParameters(0.1, 10.0, 2.0, 1.0))],
    ids=["learning_rate_fn", "FrequencyEstimator"])
def test_step_is_needed(table, optimizer):
    engine = make({"words": table}, optimization_parameters=optimizer)
    with pytest.raises(ValueError, match=r"`step` must be the global step, because updates "
                                         r"of the tables \['words'\] depend on it, got None"):
        send(lambda: {"title": tf.zeros([2, 1])}, engine)
    send(lambda: {"title": tf.zeros([2, 1])}, engine, step=3)
