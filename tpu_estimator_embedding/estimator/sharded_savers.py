# SPDX-License-Identifier: Apache-2.0
"""Makes Savers of a program sharded: each server of a cluster writes and reads its own parts."""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf


def shard_savers(scaffold: Any, hooks: Iterable[Any]) -> None:
    """Makes every Saver of a training sharded, because others collect all tables in one process.

    Savers are modified in place, because a program's hooks may use them as well.

    Args:
        scaffold: the Scaffold of the training, which may have a Saver.
        hooks: hooks of the session, some of which may save.
    """
    savers = [scaffold.saver, *tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.SAVERS),
              *(hook._saver for hook in hooks
                if isinstance(hook, tf.compat.v1.train.CheckpointSaverHook))]
    for saver in savers:
        if isinstance(saver, tf.compat.v1.train.Saver) and not saver._sharded:
            _shard(saver)


def _shard(saver: Any) -> None:
    if not saver._is_built:
        saver._sharded = True
    elif saver._var_list is not None:  # else it was made from a SaverDef
        saver._sharded, saver._is_built, saver.saver_def = True, False, None
        saver.build()
