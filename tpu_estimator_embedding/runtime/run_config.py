# SPDX-License-Identifier: Apache-2.0
"""RunConfigs whose master does not answer: this machine replaces it."""

import functools
from typing import Any

from tpu_estimator_embedding.compat.stand_ins import tpu_system
from tpu_estimator_embedding.estimator import upstream
from tpu_estimator_embedding.runtime.tf_config import check_tf_config

_upstream_init = upstream.tpu_config.RunConfig.__init__


@functools.wraps(_upstream_init)
def initialize(self: Any, tpu_config: Any = None, evaluation_master: str | None = None,
               master: str | None = None, cluster: Any = None, **kwargs: Any) -> None:
    """Creates a RunConfig in which this machine replaces masters that do not answer.

    A configuration with a cluster, of TF_CONFIG or of a TPU that answers, stays as it is.

    Raises:
        ValueError: if TF_CONFIG is no JSON object.
    """
    check_tf_config()
    _upstream_init(self, tpu_config, evaluation_master, master, cluster, **kwargs)
    if self._cluster_spec:
        return
    masters = {self._master or "", self._evaluation_master or ""}
    answering = {master: tpu_system.or_this_machine(master) for master in masters}
    self._master = answering[self._master or ""]
    self._evaluation_master = answering[self._evaluation_master or ""]


class RunConfig(upstream.tpu_config.RunConfig):
    """`tf.compat.v1.estimator.tpu.RunConfig` whose masters are this machine where none answers."""

    __init__ = initialize
