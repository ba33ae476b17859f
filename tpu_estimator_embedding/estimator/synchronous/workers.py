# SPDX-License-Identifier: Apache-2.0
"""The workers of a cluster that make an update together, in a fixed order."""

from typing import Any, NamedTuple

from tpu_estimator_embedding.estimator.cluster import cluster_of
from tpu_estimator_embedding.estimator.cluster_config import ClusterConfig

_JOBS = ("chief", "master", "worker")


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
    """Returns the workers of a RunConfig; None where one alone updates."""
    cluster = cluster_of(config)
    if not cluster.servers or not cluster_config.synchronous:
        return None
    jobs = config.cluster_spec.as_dict()
    names = [f"{job} {number}" for job in _JOBS for number in range(len(jobs.get(job, ())))]
    own = f"{config.task_type} {config.task_id}"
    if len(names) == 1 or own not in names:
        return None
    return Workers(tuple(names), names.index(own), cluster.servers,
                   cluster_config.timeout_seconds)
