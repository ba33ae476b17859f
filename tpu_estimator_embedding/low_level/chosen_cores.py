# SPDX-License-Identifier: Apache-2.0
"""The cores and hosts that environment variables choose for this machine as a stub for a TPU.

`run --cores` and `run --hosts` set the variables. All hosts are this machine: they are the tasks of
the topology, each with an equal part of the cores.
"""

import os

from tpu_estimator_embedding import checks

CORES = "TPU_ESTIMATOR_EMBEDDING_CORES"
HOSTS = "TPU_ESTIMATOR_EMBEDDING_HOSTS"


def num_cores() -> int | None:
    """Returns the number of cores on all hosts; None if neither variable is set.

    Without a number of cores, each host has one.

    Raises:
        ValueError: if a variable is not a positive int, or the cores are not a multiple of the
            hosts.
    """
    cores, hosts = _number(CORES, "cores"), _number(HOSTS, "hosts")
    checks.check(not cores or not hosts or cores % hosts == 0, CORES,
                 f"a multiple of {HOSTS}, {hosts}", cores)
    return cores or hosts


def num_hosts() -> int:
    """Returns the number of hosts; 1 if its variable is not set.

    Raises:
        ValueError: see `num_cores`.
    """
    num_cores()
    return _number(HOSTS, "hosts") or 1


def _number(variable: str, of: str) -> int | None:
    text = os.environ.get(variable, "")
    if not text:
        return None
    checks.check(text.isdecimal() and int(text) > 0, variable, f"a positive number of {of}", text)
    return int(text)
