# SPDX-License-Identifier: Apache-2.0
"""TPUClusterResolver without a TPU: it describes this machine, as one host or several.

The class stays TensorFlow's, so that subclasses and `isinstance` work; these functions replace some
of its methods. If a TPU answers, they behave like TensorFlow's.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system

_Resolver = tf.distribute.cluster_resolver.TPUClusterResolver
_tensorflow_init = _Resolver.__init__
_tensorflow_num_accelerators = _Resolver.num_accelerators
_tensorflow_metadata = _Resolver.get_tpu_system_metadata
_tensorflow_cluster_spec = _Resolver.cluster_spec

Resolver: TypeAlias = tf.distribute.cluster_resolver.TPUClusterResolver
Address = str | bytes | Sequence[str] | None  # of a TPU: its name, or where it listens


def initialize(self: Resolver, tpu: Address = None, zone: str | None = None,
               project: str | None = None,
               job_name: str = "worker", coordinator_name: str | None = None,
               coordinator_address: str | None = None, credentials: object = "default",
               service: object = None, discovery_url: str | None = None) -> None:
    """Creates the resolver of a TPU if one answers, otherwise of this machine.

    For this machine, `master()` is the empty string and `cluster_spec()` is empty, so no
    coordinator is needed.
    """
    arguments = (tpu, zone, project, job_name, coordinator_name, coordinator_address,
                 credentials, service, discovery_url)
    found, sought = _find_tpu(self, tpu, arguments)
    if found:
        return
    tpu_system.log_stub(sought)
    vars(self).clear()  # removes attributes that the search for a TPU has set
    _tensorflow_init(self, "local", job_name=job_name)
    self.rpc_layer = None
    self.is_this_machine = True
    self._cloud_tpu_client = _NoCloudClient()


def num_accelerators(self: Resolver, task_type: str | None = None, task_id: int | None = None,
                     config_proto: tf.compat.v1.ConfigProto | None = None) -> dict[str, int]:
    """Returns device type -> number of cores on each host."""
    if tpu_system.is_this_machine(self):
        return {"TPU": tpu_cores.count() // settings.num_hosts()}
    return _tensorflow_num_accelerators(self, task_type, task_id, config_proto)


def get_tpu_system_metadata(self: Resolver) -> tf.tpu.experimental.TPUSystemMetadata:
    """Returns the cores and hosts; those of this machine have its own devices."""
    found = _tensorflow_metadata(self)
    if tpu_system.is_this_machine(self):
        cores, hosts = tpu_cores.count(), settings.num_hosts()
        return found._replace(num_cores=cores, num_hosts=hosts,
                              num_of_cores_per_host=cores // hosts)
    return found


def cluster_spec(self: Resolver) -> tf.train.ClusterSpec:
    """Returns the cluster; for this machine, its tasks have no address."""
    if tpu_system.is_this_machine(self):
        return _ThisProcess(self.task_type, settings.num_hosts())
    return _tensorflow_cluster_spec(self)


class TPUClusterResolver(tf.distribute.cluster_resolver.TPUClusterResolver):
    """`tf.distribute.cluster_resolver.TPUClusterResolver`, of this machine if no TPU answers."""

    __init__ = initialize
    num_accelerators = num_accelerators
    get_tpu_system_metadata = get_tpu_system_metadata
    cluster_spec = cluster_spec


class _ThisProcess(tf.train.ClusterSpec):
    """The cluster of this process: one task without an address for each host."""

    def __init__(self, job: str, hosts: int) -> None:
        super().__init__({})
        self._job, self._hosts = job, hosts

    def num_tasks(self, job_name: str) -> int:
        """Returns the number of hosts; ValueError for another job."""
        return len(self.task_indices(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Returns `[0]`, or one index for each host; ValueError for another job."""
        if job_name != self._job:
            raise ValueError(f"No such job in cluster: {job_name!r}. The job of this machine is "
                             f"{self._job!r}.")
        return list(range(self._hosts))


class _NoCloudClient:
    """The client of a Cloud TPU for this machine, which needs no preparation."""

    def configure_tpu_version(self, version: str, restart_type: str = "always") -> None:
        """Does nothing, because the installed TensorFlow runs the program."""

    def wait_for_healthy(self, timeout_s: int = 1200, interval: int = 30) -> None:
        """Returns immediately."""


def _find_tpu(resolver: Resolver, tpu: Address,
              arguments: tuple[object, ...]) -> tuple[bool, str]:
    """Initializes `resolver` for a TPU; returns (whether it answers, where it was searched)."""
    name = _name_of(tpu)
    if name in tpu_system.LOCAL:
        is_here = tpu_system.is_present()
        if is_here:
            _tensorflow_init(resolver, *arguments)
        return is_here, ""
    if _is_address(name):
        is_there = tpu_system.answers(name.split(",")[0])
        if is_there:
            _tensorflow_init(resolver, *arguments)
        return is_there, name
    if not tpu_system.is_on_google_cloud():
        return False, repr(name)
    return _find_by_name(resolver, name, arguments)


def _find_by_name(resolver: Resolver, name: str,
                  arguments: tuple[object, ...]) -> tuple[bool, str]:
    try:
        _tensorflow_init(resolver, *arguments)
        return tpu_system.answers(resolver.master()), repr(name)
    except Exception as error:  # of any client library: there is no such TPU
        return False, f"{name!r} ({type(error).__name__}: {error})"


def _name_of(tpu: Any) -> str:
    """Returns the name or addresses of the TPU, determined like TensorFlow's client does."""
    if isinstance(tpu, (list, tuple)):
        tpu = tpu[0] if tpu else ""
    if isinstance(tpu, bytes):
        tpu = tpu.decode()
    return (tpu or settings.KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS.read()
            or settings.TPU_NAME.read() or "")


def _is_address(name: str) -> bool:
    return name.startswith("grpc://") or ":" in name
