# SPDX-License-Identifier: Apache-2.0
"""The variables of a strategy over the devices of this machine."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import mirrored_strategy


class TPUExtended(mirrored_strategy.MirroredExtended):
    """Mirrors variables on every replica, except those colocated with an unmirrored variable.

    All replicas share the tables of TPUEmbedding. Keras' legacy optimizers create the slots of a
    table under the strategy, colocated with it; all replicas share these too.
    """

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        if not _is_of(self, colocate_with_variable):
            super()._validate_colocate_with_variable(colocate_with_variable)

    def _create_variable(self, next_creator: Callable[..., tf.Variable],
                         **kwargs: Any) -> tf.Variable:
        table: Any = kwargs.get("colocate_with")
        if not _is_of(self, table):
            return super()._create_variable(next_creator, **kwargs)
        del kwargs["colocate_with"]
        with tf.device(table.device):
            return next_creator(**kwargs)


def _is_of(extended: TPUExtended, variable: Any) -> bool:
    """Whether the variable belongs to the strategy and all replicas share it."""
    return (isinstance(variable, tf.Variable) and extended.variable_created_in_scope(variable)
            and not isinstance(variable, tf.distribute.DistributedValues))
