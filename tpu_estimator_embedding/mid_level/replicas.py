# SPDX-License-Identifier: Apache-2.0
"""What replicas share: variables of which there is one copy, and one update from all of them.

Inside `strategy.run` every replica calls `apply_gradients` with its own gradients; the
update happens once, with those of all replicas.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.ops.resource_variable_ops import ResourceVariable


@contextlib.contextmanager
def one_copy() -> Iterator[None]:
    """Makes variables plain ones, under a strategy that would mirror them, too.

    A table is updated once per step, so replicas have nothing to keep in step.
    """
    def create(next_creator: Any, *, initial_value: Any, trainable: bool, name: str,
               **_: Any) -> tf.Variable:
        return ResourceVariable(initial_value=initial_value, trainable=trainable, name=name)

    with tf.init_scope(), tf.variable_creator_scope(create):
        yield


def over_replicas(update: Callable[[list[Any]], Any], value: Any) -> None:
    """Calls `update` once, with the values that all replicas gave.

    Args:
        update: called with one nest for each replica, in their order.
        value: this replica's nest of tensors.
    """
    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        update([value])
        return

    def merge(strategy: tf.distribute.Strategy, *leaves: Any) -> None:
        results = [strategy.experimental_local_results(leaf) for leaf in leaves]
        update([_pack(value, [leaf[min(replica, len(leaf) - 1)] for leaf in results])
                for replica in range(strategy.num_replicas_in_sync)])

    context.merge_call(merge, args=tuple(tf.nest.flatten(value, expand_composites=True)))


def _pack(structure: Any, leaves: list[Any]) -> Any:
    return tf.nest.pack_sequence_as(structure, leaves, expand_composites=True)
