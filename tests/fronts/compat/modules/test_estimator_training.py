# SPDX-License-Identifier: Apache-2.0
"""The restored `estimator_training` module: RunConfigs with strategies."""

import json

import pytest
import tensorflow as tf

from tpu_estimator_embedding.compat import restored_modules
from tpu_estimator_embedding.compat.modules import estimator_training

restored_modules.restore()

from tensorflow.python.distribute.distribute_config import DistributeConfig  # noqa: E402
from tensorflow_estimator.python.estimator import (  # noqa: E402
    estimator,
    run_config,
    training,
)
from tensorflow_estimator.python.estimator import model_fn as model_fn_lib  # noqa: E402

CLUSTER = {"chief": ["localhost:1"], "worker": ["localhost:2"], "ps": ["localhost:3"]}


@pytest.fixture(name="ours", autouse=True)
def estimator_uses_our_module(monkeypatch):
    for user in (estimator, run_config, training):
        monkeypatch.setattr(user, "distribute_coordinator_training", estimator_training)


@pytest.fixture(name="cluster")
def a_cluster(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(
        {"cluster": CLUSTER, "task": {"type": "worker", "index": 0}}))


@pytest.fixture(name="strategy")
def a_strategy():
    return tf.distribute.MirroredStrategy(["CPU:0"])


def test_strategy_on_one_machine_needs_no_coordinator(strategy):
    config = run_config.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    assert config.train_distribute is strategy and config.eval_distribute is strategy
    assert (config.is_chief, config.num_worker_replicas, config.task_type) == (True, 1, "worker")
    assert not estimator_training.should_run_distribute_coordinator(config)


def test_strategies_of_distribute_config_are_taken(strategy):
    config = run_config.RunConfig(experimental_distribute=DistributeConfig(
        train_distribute=strategy, eval_distribute=strategy))
    assert config.train_distribute is strategy and config.eval_distribute is strategy


@pytest.mark.parametrize("argument", ["train_distribute", "eval_distribute"])
def test_strategy_given_twice_is_refused(argument, strategy):
    with pytest.raises(ValueError, match=rf"`{argument}` must be None if "
                                         rf"`experimental_distribute\.{argument}` is set"):
        run_config.RunConfig(experimental_distribute=DistributeConfig(**{argument: strategy}),
                             **{argument: strategy})


def test_cluster_with_eval_strategy_only_stays_a_cluster(cluster, strategy):
    config = run_config.RunConfig(eval_distribute=strategy)
    assert config.cluster_spec.as_dict() == CLUSTER
    assert (config.num_ps_replicas, config.num_worker_replicas) == (1, 2)
    assert list(config.session_config.device_filters) == ["/job:ps", "/job:worker/task:0"]
    assert not estimator_training.should_run_distribute_coordinator(config)


def test_strategy_in_a_cluster_asks_for_the_coordinator(cluster, strategy):
    config = run_config.RunConfig(train_distribute=strategy)
    assert config.cluster_spec.as_dict() == CLUSTER
    assert estimator_training.should_run_distribute_coordinator(config)


def test_remote_cluster_asks_for_the_coordinator(strategy):
    config = run_config.RunConfig(experimental_distribute=DistributeConfig(
        train_distribute=strategy, remote_cluster=tf.train.ClusterSpec(CLUSTER)))
    assert estimator_training.should_run_distribute_coordinator(config)


def test_two_clusters_are_refused(cluster, strategy):
    with pytest.raises(ValueError, match=r"`experimental_distribute\.remote_cluster` must be "
                                         r"None if TF_CONFIG has a cluster"):
        run_config.RunConfig(experimental_distribute=DistributeConfig(
            train_distribute=strategy, remote_cluster=tf.train.ClusterSpec(CLUSTER)))


def test_running_under_the_coordinator_names_the_fix(cluster, strategy, tmp_path):
    config = run_config.RunConfig(str(tmp_path), train_distribute=strategy)
    model = estimator.EstimatorV2(lambda features, labels: None, config=config)
    with pytest.raises(RuntimeError, match="Estimator.train cannot use .* unset TF_CONFIG"):
        model.train(lambda: None, steps=1)
    with pytest.raises(RuntimeError, match="train_and_evaluate cannot use a tf.distribute"):
        training.train_and_evaluate(
            model, training.TrainSpec(lambda: None, max_steps=1),
            training.EvalSpec(lambda: None))
    with pytest.raises(RuntimeError, match="Estimator.evaluate cannot use a tf.distribute"):
        estimator_training.estimator_evaluate(model, None, None)


def test_mirrored_strategy_trains(strategy, tmp_path):
    def model_fn(features, labels, mode):
        weight = tf.compat.v1.get_variable("weight", initializer=0.0)
        loss = tf.reduce_mean((weight * features - labels) ** 2)
        train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(
            loss, tf.compat.v1.train.get_global_step())
        return model_fn_lib.EstimatorSpec(mode, loss=loss, train_op=train_op)

    def input_fn():
        return tf.data.Dataset.from_tensors((tf.constant([1.0]), tf.constant([2.0]))).repeat()

    config = run_config.RunConfig(str(tmp_path), train_distribute=strategy)
    model = estimator.EstimatorV2(model_fn, config=config)
    model.train(input_fn, steps=1)
    assert model.get_variable_value("weight") == pytest.approx(0.4)
