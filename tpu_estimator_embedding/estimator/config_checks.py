# SPDX-License-Identifier: Apache-2.0
"""Settings of a RunConfig that only a TPU has."""

from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks


def check_can_honour(config: Any) -> None:
    """Logs settings that only a TPU uses; ValueError for those that would change results."""
    tpu_config = getattr(config, "tpu_config", None)
    if tpu_config is None:
        return  # upstream checks the type of config
    if tpu_config.num_cores_per_replica:
        tf.compat.v1.logging.info(
            "tpu_estimator_embedding: num_cores_per_replica=%d is a layout of a TPU's memory: each "
            "replica has one device here.", tpu_config.num_cores_per_replica)
    if tpu_config.experimental_feed_hook is not None:
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: experimental_feed_hook=%r is not used: there is no infeed or "
            "outfeed of a TPU to hook into. A SessionRunHook or host_call sees every step.",
            tpu_config.experimental_feed_hook)
    for name in ("train_distribute", "eval_distribute"):
        strategy = getattr(config, name)
        checks.check(strategy is None, name, "None when use_tpu=True", strategy,
                     "TPUConfig(num_shards=...) says how many replicas there are.")


def without_num_shards(config: Any) -> Any:
    """Hides num_shards from checks that compare it with the cores of a TPU."""
    tpu_config = getattr(config, "tpu_config", None)
    if tpu_config is None:
        return config
    return config.replace(tpu_config=tpu_config._replace(num_shards=None))
