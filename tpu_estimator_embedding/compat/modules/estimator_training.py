# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.distribute.estimator_training`: strategies in an Estimator's RunConfig.

A strategy on one machine works, and so does a `TF_CONFIG` cluster without a strategy. Both
together need the distribute coordinator, whose support for Estimators TensorFlow 2.16 removed. A
RunConfig can still describe such a job, but running it raises an error.
"""

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import tensorflow as tf

from tpu_estimator_embedding.types import RunConfig

STANDALONE_CLIENT = "standalone_client"
INDEPENDENT_WORKER = "independent_worker"


def init_run_config(config: "tf.estimator.RunConfig", tf_config: Mapping[str, Any]) -> None:
    """Sets the cluster properties of a RunConfig with a strategy.

    Args:
        config: a `tf.estimator.RunConfig` under construction.
        tf_config: the parsed `TF_CONFIG`; empty on one machine.

    Raises:
        ValueError: if a strategy or the cluster is given twice.
    """
    experimental = config._experimental_distribute
    config._train_distribute = _one_strategy(config, "train_distribute")
    config._eval_distribute = _one_strategy(config, "eval_distribute")
    cluster = tf.train.ClusterSpec(tf_config.get("cluster", {}))
    config._init_distributed_setting_from_environment_var({})
    remote_cluster = experimental.remote_cluster if experimental else None
    if config._train_distribute and remote_cluster:
        if cluster:
            raise ValueError(
                "`experimental_distribute.remote_cluster` must be None if TF_CONFIG has a "
                f"cluster, got {remote_cluster!r} and {tf_config['cluster']!r}.")
        config._cluster_spec = remote_cluster
        config._distribute_coordinator_mode = STANDALONE_CLIENT
    elif config._train_distribute and cluster and "master" not in cluster.jobs:
        config._cluster_spec = cluster
        config._distribute_coordinator_mode = INDEPENDENT_WORKER
    else:
        config._distribute_coordinator_mode = None
        config._init_distributed_setting_from_environment_var(tf_config)
        config._maybe_overwrite_session_config_for_distributed_training()


def should_run_distribute_coordinator(config: RunConfig) -> bool:
    """Whether the RunConfig has both a strategy and a cluster."""
    mode = getattr(config, "_distribute_coordinator_mode", None)
    return mode in (STANDALONE_CLIENT, INDEPENDENT_WORKER) and bool(config.cluster_spec)


def train_and_evaluate(estimator: object, train_spec: object, eval_spec: object,
                       executor_cls: type) -> NoReturn:
    """Raises RuntimeError: the distribute coordinator is gone."""
    raise _no_coordinator("tf.estimator.train_and_evaluate")


def estimator_train(estimator: object, train_distributed_fn: Callable[..., object],
                    hooks: object) -> NoReturn:
    """Raises RuntimeError: the distribute coordinator is gone."""
    raise _no_coordinator("Estimator.train")


def estimator_evaluate(estimator: object, evaluate_distributed_fn: Callable[..., object],
                       hooks: object) -> NoReturn:
    """Raises RuntimeError: the distribute coordinator is gone."""
    raise _no_coordinator("Estimator.evaluate")


def _one_strategy(config: "tf.estimator.RunConfig",
                  argument: str) -> tf.distribute.Strategy | None:
    experimental = config._experimental_distribute
    new, old = getattr(experimental, argument, None), getattr(config, f"_{argument}")
    if new and old:
        raise ValueError(
            f"`{argument}` must be None if `experimental_distribute.{argument}` is set, "
            f"got {old!r}.")
    return new or old


def _no_coordinator(function: str) -> RuntimeError:
    return RuntimeError(
        f"{function} cannot use a tf.distribute strategy and a cluster together, because "
        f"TensorFlow 2.16 removed their coordinator. Remove `train_distribute` and "
        f"`eval_distribute` from the RunConfig to use the servers of TF_CONFIG, or unset "
        f"TF_CONFIG to use the strategy on one machine.")
