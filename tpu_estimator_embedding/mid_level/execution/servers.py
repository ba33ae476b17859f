# SPDX-License-Identifier: Apache-2.0
"""The parameter servers of a strategy, which hold the tables in a cluster."""

import contextlib

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.step_ids import check_can_train_on_servers, prepare_ids
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def is_cluster(strategy: tf.distribute.Strategy | None) -> bool:
    """Whether a ClusterCoordinator schedules the functions of a strategy."""
    return isinstance(strategy, tf.distribute.ParameterServerStrategy)


def servers_of(strategy: tf.distribute.Strategy | None) -> tuple[str, ...]:
    """Returns the device of each parameter server; none if the strategy has no servers.

    >>> servers_of(tf.distribute.MirroredStrategy(["/cpu:0"]))
    ()
    """
    return _devices("ps") if is_cluster(strategy) else ()


def check_not_pipelined(strategy: tf.distribute.Strategy | None, is_pipelined: bool) -> None:
    """Raises ValueError for a pipelined plan on a cluster."""
    checks.check(not (is_pipelined and is_cluster(strategy)),
                 "pipeline_execution_with_tensor_core", "False under a ParameterServerStrategy",
                 is_pipelined, "An update of one worker cannot wait for the lookup of another.")


def check_no_cluster(strategy: tf.distribute.Strategy | None, what: str) -> None:
    """Raises RuntimeError for what works in one process only."""
    if is_cluster(strategy):
        raise RuntimeError(
            f"{what} must have a single-process strategy, got "
            f"{type(strategy).__name__}. TPUEmbedding, in a scheduled function, trains tables on "
            "parameter servers.")


def check_kernels(plan: EmbeddingPlan, strategy: tf.distribute.Strategy | None) -> None:
    """Checks that every task of a cluster has compiled ops for a plan.

    Raises:
        RuntimeError: if a task of the cluster has no native kernels.
        ValueError: if the kernels do not support a table.
    """
    if not is_cluster(strategy):
        return
    check_can_train_on_servers(plan)
    without = [device for device in (*_devices("ps"), *_devices("worker"))
               if not _has_kernels(plan, device)]
    if without:
        raise RuntimeError(
            "Training on parameter servers requires the native kernels, and "
            f"{', '.join(without)} has none. Compile them (`{load.COMMAND}`), and start its "
            "program with `tpu-estimator-embedding run`.")


def _has_kernels(plan: EmbeddingPlan, device: str) -> bool:
    none = {feature.name: EnqueueData(
        tf.zeros([0], tf.int64),
        tf.zeros([0, 2] if feature.max_sequence_length else [0], tf.int64))
        for feature in plan.features}
    with tf.device(device), contextlib.suppress(tf.errors.UnavailableError):
        try:  # a task that is down now has what the others have when it is back
            prepare_ids(plan, none, 0, training=False)
        except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError):
            return False
    return True


def _devices(job: str) -> tuple[str, ...]:
    """Returns a device of each task of a job, once the strategy has connected to them."""
    tasks = {tf.DeviceSpec.from_string(device.name).replace(device_index=0).to_string()
             for device in tf.config.list_logical_devices("CPU")}
    specs = [spec for task in tasks for spec in [tf.DeviceSpec.from_string(task)]
             if spec.job == job]
    return tuple(spec.to_string() for spec in sorted(specs, key=lambda spec: spec.task))
