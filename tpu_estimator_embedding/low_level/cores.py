# SPDX-License-Identifier: Apache-2.0
"""How many hosts hold the tables, and how many cores look them up."""

import collections
from typing import NamedTuple

import tensorflow as tf
from tensorflow.python.tpu import tpu_system_metadata

from tpu_estimator_embedding import checks, settings

DeviceConfig = collections.namedtuple("DeviceConfig", ["num_hosts", "num_cores", "job_name"])
DeviceConfig.__doc__ = """The hosts and cores of a program that does not query a TPU system.

Attributes:
    num_hosts: parts into which every table is split.
    num_cores: parts into which every batch is split; a multiple of num_hosts. Each core
        receives activations and sends gradients separately.
    job_name: prefix of the device names of the hosts, such as "/job:localhost".

>>> DeviceConfig(num_hosts=1, num_cores=2, job_name="/job:localhost").num_cores
2
"""


class Cores(NamedTuple):
    """The hosts and cores of an engine.

    Attributes:
        hosts: device name of each host.
        num_cores: number of cores on all hosts.
    """

    hosts: tuple[str, ...]
    num_cores: int

    @property
    def per_host(self) -> int:
        """Number of cores on each host."""
        return self.num_cores // len(self.hosts)


def find_cores(master: str | None, cluster_def: tf.train.ClusterDef | None,
               device_config: DeviceConfig | None, master_job_name: str | None) -> Cores:
    """Returns the hosts and cores of `device_config`; without it, those of this machine.

    On a TPU, a program without a device_config uses all cores of the TPU system at `master`.
    Here this machine stands in for one core, or for those that `run --cores` and `run --hosts`
    choose.

    Raises:
        ValueError: if master, cluster_def and device_config are all None; if a count in
            device_config is not a positive int, or num_cores not a multiple of num_hosts; or
            if cluster_def has several jobs and master_job_name is None; or if the environment
            variables of `run --cores` and `run --hosts` are wrong.
    """
    if device_config is not None:
        return _configured(device_config, master_job_name)
    checks.check(master is not None or cluster_def is not None, "device_config",
                 "given where master and cluster_def are None", device_config,
                 "Pass master='' for the cores of this machine, or device_config=DeviceConfig("
                 "num_hosts=1, num_cores=N, job_name='/job:localhost') for N.", sentence=
                 "When master and cluster_def are both None,device_config must be set but is not.")
    job = f"/job:{master_job_name or _job(master, cluster_def)}"
    return Cores(_hosts(job, settings.num_hosts()), settings.num_cores() or 1)


def _configured(device_config: DeviceConfig, master_job_name: str | None) -> Cores:
    num_hosts, num_cores, job_name = device_config
    checks.check_positive_int("num_hosts", num_hosts)
    checks.check_positive_int("num_cores", num_cores)
    checks.check(num_cores % num_hosts == 0, "num_cores",
                 f"a multiple of num_hosts, {num_hosts}", num_cores, sentence=
                 f"num_hosts ({num_hosts}) should divide num_cores ({num_cores}) but does not.")
    job = f"/job:{master_job_name}" if master_job_name else job_name
    return Cores(_hosts(job, num_hosts), num_cores)


def _hosts(job: str, number: int) -> tuple[str, ...]:
    return tuple(f"{job}/replica:0/task:{task}/device:CPU:0" for task in range(number))


def _job(master: str | None, cluster_def: tf.train.ClusterDef | None) -> str:
    try:
        return tpu_system_metadata.master_job(master, cluster_def) or "localhost"
    except ValueError as error:
        raise ValueError(checks.complaint(
            "master_job_name", "given where cluster_def has several jobs", None,
            "Pass the name of the job that holds the tables.")) from error
