# SPDX-License-Identifier: Apache-2.0
"""RunConfigs in which this machine replaces a master that does not answer."""

import functools
from typing import Any

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.tf_config import check_form, check_tf_config

_upstream_init = upstream.tpu_config.RunConfig.__init__
_plain_init = upstream.run_config.RunConfig.__init__


@functools.wraps(_upstream_init)
def initialize(self: upstream.tpu_config.RunConfig,
               tpu_config: Any = None,
               evaluation_master: str | None = None, master: str | None = None, cluster: Any = None,
               **kwargs: Any) -> None:
    """Creates a RunConfig in which this machine replaces masters that do not answer.

    A configuration with a cluster, from TF_CONFIG or of a TPU that answers, is not changed.

    Raises:
        ValueError: if TF_CONFIG is wrong.
    """
    check_tf_config()
    _upstream_init(self, tpu_config, evaluation_master, master, cluster, **kwargs)
    if self._cluster_spec:
        return
    masters = {self._master or "", self._evaluation_master or ""}
    answering = {master: tpu_system.or_this_machine(master) for master in masters}
    self._master = answering[self._master or ""]
    self._evaluation_master = answering[self._evaluation_master or ""]


@functools.wraps(_plain_init)
def initialize_plain(self: Any, *args: Any, **kwargs: Any) -> None:
    """Creates a `tf.estimator.RunConfig`.

    Raises:
        ValueError: if TF_CONFIG, or a part of it, is of a wrong type.
    """
    check_form()
    _plain_init(self, *args, **kwargs)


class RunConfig(upstream.tpu_config.RunConfig):
    """`tf.compat.v1.estimator.tpu.RunConfig`; this machine replaces masters that do not answer."""

    __init__ = initialize
