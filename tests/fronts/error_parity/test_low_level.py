# SPDX-License-Identifier: Apache-2.0
"""The engine of programs without an Estimator refuses with TensorFlow's sentences."""

import pytest
import tensorflow as tf

from tests.fronts.error_parity.refusals import check_refusal
from tests.fronts.low_level.tensorflows_own import load_tensorflows_own
from tpu_estimator_embedding.compat.modules import tpu_embedding


def make(api, tables=None, features=None, batch_size=4, mode=None, **options):
    mode = api.TRAINING if mode is None else mode
    if mode == api.TRAINING:
        options.setdefault("optimization_parameters", api.AdagradParameters(0.1))
    options.setdefault("device_config", api.DeviceConfig(1, 2, "/job:worker"))
    return api.TPUEmbedding(tables or {"words": api.TableConfig(10, 2)},
                            features or {"title": api.FeatureConfig("words")}, batch_size, mode,
                            **options)


def enqueue(api, make_data, **options):
    make(api, **options).generate_enqueue_ops(make_data(api))


def data(api, device="CPU:0"):
    with tf.device(device):
        return api.EnqueueData(tf.constant([1, 2]), tf.constant([[0, 0], [1, 0]]))


def send(api, **options):
    make(api, **options).generate_send_gradients_op({"title": tf.zeros([2, 2])})


CASES = [
    (lambda api: make(api, mode=7), ValueError, "`mode` only supports "),
    (lambda api: make(api, mode=api.INFERENCE,
                      optimization_parameters=api.AdagradParameters(0.1)), ValueError,
     "`optimization_parameters` should be `None` for inference mode."),
    (lambda api: make(api, device_config=None), ValueError,
     "When master and cluster_def are both None,device_config must be set but is not."),
    (lambda api: make(api, {"words": "table"}), ValueError,
     "Value of `table_to_config_dict` must be of type `TableConfig`"),
    (lambda api: make(api, {name: api.TableConfig(10, 2) for name in ("words", "more")}),
     ValueError,
     "`table_to_config_dict` specifies table that is not used in `feature_to_config_dict`"),
    (lambda api: make(api, features={"title": api.FeatureConfig("words"),
                                     "user": api.FeatureConfig("users")}), ValueError,
     "`feature_to_config_dict` refers to a table that is not specified in "
     "`table_to_config_dict`"),
    (lambda api: make(api, batch_size=5), ValueError,
     "`batch_size` is not a multiple of number of cores."),
    (lambda api: make(api, optimization_parameters=None), ValueError,
     "`optimization_parameters` is missing."),
    (lambda api: make(api, optimization_parameters="adagrad"), ValueError,
     "`optimization_parameters` must inherit from `_OptimizationParameters`."),
    (lambda api: make(api, device_config=api.DeviceConfig(2, 3, "/job:worker"), batch_size=6),
     ValueError, "num_hosts ("),
    (lambda api: enqueue(api, lambda api: [{}, {}]), ValueError,
     "`enqueue_datas_list[0]` misses a feature that is in `feature_to_config_dict`"),
    (lambda api: enqueue(api, lambda api: [{"title": data(api), "user": data(api)}] * 2),
     ValueError, "`enqueue_datas_list[0]` has a feature that is not in `feature_to_config_dict`"),
    (lambda api: enqueue(api, lambda api: [{"title": "ids"}] * 2), ValueError,
     "`enqueue_datas_list[0]` has a feature that is not mapped to `EnqueueData` or "
     "`RaggedEnqueueData`."),
    (lambda api: enqueue(
        api, lambda api: [{"title": data(api), "body": data(api, "CPU:1")}] * 2,
        features={name: api.FeatureConfig("words") for name in ("title", "body")}), ValueError,
     "Devices are different between features in `enqueue_datas_list[0]`"),
    (lambda api: enqueue(
        api, lambda api: [{"title": data(api, f"CPU:{core}")} for core in range(2)]), ValueError,
     "We expect the `enqueue_datas` which are on the same host to be contiguous in "
     "`enqueue_datas_list`"),
    (lambda api: send(api, mode=api.INFERENCE), RuntimeError,
     "Only in training mode gradients need to be sent to TPU embedding"),
    (lambda api: send(api, tables={"words": api.TableConfig(10, 2, learning_rate_fn=abs)}),
     ValueError, "There are dynamic learning rates but step is None."),
]


@pytest.mark.parametrize("trigger, error, beginning", CASES)
def test_ours(trigger, error, beginning):
    with tf.Graph().as_default():
        check_refusal(lambda: trigger(tpu_embedding), error, beginning)


@pytest.mark.parametrize("trigger, error, beginning", CASES)
def test_tensorflows(trigger, error, beginning):
    try:
        theirs = load_tensorflows_own()
    except FileNotFoundError:
        pytest.skip("TensorFlow 2.16 dropped the module")
    with tf.Graph().as_default():
        check_refusal(lambda: trigger(theirs), error, beginning)
