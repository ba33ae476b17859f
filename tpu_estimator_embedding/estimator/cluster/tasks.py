# SPDX-License-Identifier: Apache-2.0
"""The tasks of TF_CONFIG: parameter servers, each a host of the engine, and the workers."""

from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.cluster.cluster_config import ClusterConfig
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import RunConfig

_SERVER = "ps"
_ADD_SERVERS = 'Add "ps" to "cluster" in the TF_CONFIG of all tasks, and start these tasks.'
TRAINERS = ("chief", "master", "worker")  # the jobs that train; gradients are summed in this order


class Cluster(NamedTuple):
    """The devices of a training program.

    Attributes:
        servers: device of each host's tables; empty without servers.
        this_task: device of this process, for its input; empty outside of a cluster.
    """

    servers: tuple[str, ...]
    this_task: str

    def num_hosts(self, asked: int | None) -> int:
        """Returns the parts into which tables are split for training.

        Args:
            asked: the `num_hosts` of the program, or None.

        Raises:
            ValueError: if it is not the number of servers.
        """
        if not self.servers:
            return asked or 1
        checks.check(asked in (None, len(self.servers)), "num_hosts",
                     f"{len(self.servers)}, the number of ps tasks in TF_CONFIG", asked,
                     "Leave it out: every server is one host.")
        return len(self.servers)


def cluster_of(config: RunConfig | None) -> Cluster:
    """Returns the cluster that a RunConfig describes to the process of a trainer.

    Processes without a cluster, such as evaluators, hold all tables themselves.
    """
    if config is None or not config.cluster_spec or not config.num_ps_replicas:
        return Cluster((), "")
    servers = tuple(f"/job:{_SERVER}/task:{number}/device:CPU:0"
                    for number in range(config.num_ps_replicas))
    return Cluster(servers, f"/job:{config.task_type}/task:{config.task_id}/device:CPU:0")


def check_is_trainer(config: RunConfig) -> None:
    """Raises ValueError for a task that trains nothing, which otherwise would wait forever.

    Without servers, variables that nothing else places are in the task itself. The chief trains its
    own, and a worker waits for a chief that cannot reach its own: so does TensorFlow's Estimator.
    """
    checks.check_with_sentence(
        config.task_type not in (_SERVER, "evaluator"),
        "Train has been called wrong configuration. Please use tf.estimator.train_and_evaluate "
        "which calls proper API according to given configuration.",
        f"This task is {config.task_type} {config.task_id} of TF_CONFIG, which trains nothing.")
    is_placed = (cluster_of(config).servers or config.device_fn
                 or getattr(config, "cluster", None))  # a ClusterResolver: its hosts are no tasks
    of_others = [] if is_placed else _trainers(config)[1:]
    own = f"{config.task_type} {config.task_id}"
    checks.check_with_sentence(
        own not in of_others,
        f"The cluster of {own} must have parameter servers, which hold the variables that all "
        "workers train, got no ps task: no chief would initialize this worker's.", _ADD_SERVERS)
    if config.is_chief and of_others:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: the chief trains alone, without %s: the cluster has no ps "
            "task. %s", ", ".join(of_others), _ADD_SERVERS)


def with_device_filters(config: Any) -> Any:
    """Returns a RunConfig whose sessions do not wait for other workers.

    TensorFlow sets no device filters for a TPU's RunConfig, and a program's `session_config`
    replaces those of any other: a session would start only while all tasks of the cluster run,
    evaluators too if TF_CONFIG counts them among its tasks.
    """
    session_config = getattr(config, "session_config", None)
    cluster = getattr(config, "cluster_spec", None)
    if not cluster or sum(map(cluster.num_tasks, cluster.jobs)) == 1 or (
            session_config is not None and session_config.device_filters):
        return config
    merged = tf.compat.v1.ConfigProto()
    if session_config is not None:
        merged.CopyFrom(session_config)
    else:  # as Estimator does
        merged.allow_soft_placement = True
        merged.graph_options.rewrite_options.meta_optimizer_iterations = 1
    merged.device_filters.extend([f"/job:{_SERVER}",
                                  f"/job:{config.task_type}/task:{config.task_id}"])
    return config.replace(session_config=merged)


def prepare_for_server(config: RunConfig | None) -> None:
    """Loads the kernels before Estimator starts this process's server, so that it has their ops.

    A server without kernels fails on the first op from a worker that has them.
    """
    if config is None or not config.cluster_spec:
        return
    has_kernels = load.native_ops() is not None
    if config.task_type == _SERVER:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: server %d of %d holds one host's part of every table, "
            "kernels: %s", config.task_id, config.num_ps_replicas,
            load.description() if has_kernels else "TF ops")


class Workers(NamedTuple):
    """The workers of a cluster; the first one, the chief, makes the updates.

    Attributes:
        names: of all, in the order in which their gradients are summed.
        number: index of this process's.
        servers: devices of the parameter servers.
        timeout_seconds: how long to wait for one.
    """

    names: tuple[str, ...]
    number: int
    servers: tuple[str, ...]
    timeout_seconds: float

    @property
    def is_chief(self) -> bool:
        """Whether this process makes the updates."""
        return self.number == 0

    @property
    def size(self) -> int:
        """The number of workers."""
        return len(self.names)


def workers_of(config: Any, cluster_config: ClusterConfig) -> Workers | None:
    """Returns the workers of a RunConfig; None where one alone updates.

    Raises:
        ValueError: if several train synchronously, and no server takes their gradients.
    """
    if config is None or not config.cluster_spec or not cluster_config.synchronous:
        return None
    names, own = _trainers(config), f"{config.task_type} {config.task_id}"
    if len(names) == 1 or own not in names:
        return None
    cluster = cluster_of(config)
    checks.check_with_sentence(
        bool(cluster.servers), "A cluster whose workers train synchronously must have parameter "
        f"servers, which sum the gradients of {', '.join(names)}, got no ps task.", _ADD_SERVERS)
    return Workers(tuple(names), names.index(own), cluster.servers,
                   cluster_config.timeout_seconds)


def _trainers(config: Any) -> list[str]:
    jobs = config.cluster_spec.as_dict() if config.cluster_spec else {}
    return [f"{job} {number}" for job in TRAINERS for number in range(len(jobs.get(job, ())))]
