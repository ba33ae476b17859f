# SPDX-License-Identifier: Apache-2.0
"""Calls that all replicas of a strategy make together."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import distribute_utils

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.mid_level.execution.servers import is_cluster
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.autograph import not_converted

Leaves = Sequence[Any]


class ReplicaCalls:
    """Merges the calls of all replicas of the strategy under which it was created.

    Attributes:
        strategy: that strategy.
        scoped_strategy: the same, or None if it is the default strategy.
        count: number of replicas.
        devices: the device of each replica.

    Raises:
        RuntimeError: if the strategy has replicas in other processes, but for those of a
            ParameterServerStrategy, each of which makes its own updates.

    >>> calls = ReplicaCalls()
    >>> calls.together("sum", lambda shares: [sum(share) for share in shares], [1, 2])
    3
    """

    def __init__(self) -> None:
        self.strategy = tf.distribute.get_strategy()
        self.scoped_strategy = self.strategy if tf.distribute.has_strategy() else None
        self.count = self.strategy.num_replicas_in_sync
        self.devices = (self.strategy.extended.worker_devices if tf.distribute.has_strategy()
                        else (THIS_PROCESS,))
        if (getattr(self.strategy.extended, "_num_workers", 1) > 1
                and not is_cluster(self.strategy)):
            raise RuntimeError(checks.complaint(
                "strategy",
                "one whose replicas are all in this process, or a ParameterServerStrategy",
                type(self.strategy).__name__))

    def together(self, method: str, function: Callable[[list[Leaves]], list[Any]],
                 leaves: Leaves, *, from_outside: bool = False,
                 traced_outside: bool = False) -> Any:
        """Calls a function once with the values of all replicas.

        Args:
            method: name of the public method, for messages.
            function: called with the leaves of each replica; returns a result for each.
            leaves: the values of this replica; outside of `strategy.run`, distributed values or
                values that are the same for all replicas.
            from_outside: whether calls from outside of `strategy.run` are allowed with several
                replicas.
            traced_outside: whether the call may be traced outside of `strategy.run`, as Keras
                does to infer shapes. Running that graph is an error.

        Returns:
            The result for this replica.

        Raises:
            RuntimeError: if called under another strategy, or outside of `strategy.run` when
                each replica needs a result.
        """
        self._check_strategy(method)
        if self.count == 1:
            return function(self._shares(leaves))[0]
        if tf.distribute.has_strategy() and not tf.distribute.in_cross_replica_context():
            merged_call = not_converted(lambda _, *merged: distribute_utils.regroup(
                tuple(function(self._shares(merged)))))
            return tf.distribute.get_replica_context().merge_call(merged_call, args=tuple(leaves))
        if from_outside:
            return function(self._shares(leaves))
        sentence = (f"`{method}` must be called inside strategy.run, because each of the "
                    f"{self.count} replicas has its own values.")
        if tf.executing_eagerly() or not traced_outside:
            raise RuntimeError(sentence)
        with tf.control_dependencies(assert_that(tf.constant(False), sentence)):
            return tf.nest.map_structure(tf.identity, function(self._shares(leaves))[0])

    def _check_strategy(self, method: str) -> None:
        strategy = tf.distribute.get_strategy()
        if strategy.num_replicas_in_sync > 1 and strategy is not self.strategy:
            raise RuntimeError(
                f"`{method}` must be called under the strategy in whose scope the object was "
                f"created, got {type(strategy).__name__}. Create it inside strategy.scope().")

    def _shares(self, leaves: Leaves) -> list[Leaves]:
        values = [self.strategy.experimental_local_results(leaf) for leaf in leaves]
        return [[value[min(replica, len(value) - 1)] for value in values]
                for replica in range(self.count)]
