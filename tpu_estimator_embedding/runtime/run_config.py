# SPDX-License-Identifier: Apache-2.0
"""RunConfigs in which this machine replaces a master that does not answer."""

import functools
from collections.abc import Callable
from typing import Any

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.compat.stubs import tpu_system
from tpu_estimator_embedding.tf_config import check_form, check_tf_config


def initializing(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a constructor of RunConfigs in which this machine replaces silent masters.

    A configuration with a cluster, from TF_CONFIG or of a TPU that answers, is not changed. It
    raises ValueError if TF_CONFIG is wrong.
    """
    @functools.wraps(original)
    def initialize(self: upstream.tpu_config.RunConfig, tpu_config: Any = None,
                   evaluation_master: str | None = None, master: str | None = None,
                   cluster: Any = None, **kwargs: Any) -> None:
        check_tf_config()
        original(self, tpu_config, evaluation_master, master, cluster, **kwargs)
        if self._cluster_spec:
            return
        masters = {self._master or "", self._evaluation_master or ""}
        answering = {master: tpu_system.or_this_machine(master) for master in masters}
        self._master = answering[self._master or ""]
        self._evaluation_master = answering[self._evaluation_master or ""]

    return initialize


def initializing_plain(original: Callable[..., None]) -> Callable[..., None]:
    """Returns a constructor of `tf.estimator.RunConfig` that checks the form of TF_CONFIG.

    It raises ValueError if TF_CONFIG, or a part of it, is of a wrong type.
    """
    @functools.wraps(original)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        check_form()
        original(self, *args, **kwargs)

    return initialize


class RunConfig(upstream.tpu_config.RunConfig):
    """`tf.compat.v1.estimator.tpu.RunConfig`; this machine replaces masters that do not answer."""

    __init__ = initializing(upstream.tpu_config.RunConfig.__init__)
