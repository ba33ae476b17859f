# SPDX-License-Identifier: Apache-2.0
"""RunConfig where no server answers at its master: this machine is the master."""

import functools
from typing import Any

from tpu_estimator_embedding.compat import tpu_system
from tpu_estimator_embedding.estimator import upstream

_upstream_init = upstream.tpu_config.RunConfig.__init__


@functools.wraps(_upstream_init)
def initialize(self: Any, tpu_config: Any = None, evaluation_master: str | None = None,
               master: str | None = None, cluster: Any = None, **kwargs: Any) -> None:
    """Makes a RunConfig whose masters are this machine where no server answers at them.

    A configuration with a cluster, of TF_CONFIG or of a TPU that answers, stays as it is.
    """
    _upstream_init(self, tpu_config, evaluation_master, master, cluster, **kwargs)
    if self._cluster_spec:
        return
    masters = {self._master, self._evaluation_master}
    answering = {address: _or_this_machine(address) for address in masters}
    self._master = answering[self._master]
    self._evaluation_master = answering[self._evaluation_master]


def _or_this_machine(master: str | None) -> str | None:
    if not master or not master.startswith("grpc://"):
        return master
    if tpu_system.device_types(master) is not None:
        return master
    tpu_system.say_this_machine_stands_in(master)
    return ""
