# SPDX-License-Identifier: Apache-2.0
"""A batch that is enqueued device by device, kept until every replica has its share."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks

Leaves = Sequence[Any]


class DeviceShares:
    """The shares of one batch received so far.

    >>> shares = DeviceShares(["/device:CPU:0", "/device:CPU:1"])
    >>> shares.add("/TPU:1", [11], training=True)
    >>> shares.add("/TPU:0", [10], training=True)
    [[10], [11]]
    """

    def __init__(self, devices: Sequence[str]) -> None:
        """Takes the device of each replica."""
        self._devices = list(devices)
        self._shares: dict[int, Leaves] = {}
        self._training = False
        self._graph: tf.Graph | None = None  # of the function that added the shares

    def add(self, device: str, leaves: Leaves, training: bool) -> list[Leaves] | None:
        """Takes the share of the replica on a device.

        Args:
            device: the device of a replica, or "/TPU:r" for replica r.
            leaves: what it is given.
            training: whether gradients will follow, the same for all replicas.

        Returns:
            The shares of all replicas, when this was the last one.

        Raises:
            ValueError: if no replica has the device, it is given inside `strategy.run` or
                with distributed values, or `training` differs between the shares.
            RuntimeError: if the device has its share, or another function left shares.
        """
        replica = self._replica(device)
        _check_is_one_share(device, leaves)
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if self._shares and graph is not self._graph:
            self.check_complete()
        checks.check(not self._shares or training == self._training, "training",
                     f"{self._training}, as for the devices before", training)
        if replica in self._shares:
            raise RuntimeError(f"`device` must be that of a replica without ids, got {device!r} "
                               f"twice, and none yet for {self._missing()}.")
        self._shares[replica], self._training, self._graph = leaves, training, graph
        return None if self._missing() else self._take()

    def check_complete(self) -> None:
        """Raises RuntimeError if some replicas have shares and others none, and drops them."""
        if not self._shares:
            return
        missing = self._missing()
        self._take()
        raise RuntimeError(f"`enqueue` must be called for every device, got no ids for {missing}. "
                           "The ids of the others are dropped.")

    def _replica(self, device: str) -> int:
        spec = tf.DeviceSpec.from_string(device)
        ours = [tf.DeviceSpec.from_string(name) for name in self._devices]
        found = [replica for replica, own in enumerate(ours)
                 if (spec.device_type, spec.device_index) in (
                     (own.device_type, own.device_index), ("TPU", replica))]
        checks.check(bool(found), "device", f"None, one of {self._devices}, or '/TPU:0' to "
                     f"'/TPU:{len(ours) - 1}' for the replicas in turn", device,
                     sentence=f"Non-TPU device {device} passed to enqueue.")
        return found[0]

    def _missing(self) -> list[str]:
        return [name for replica, name in enumerate(self._devices) if replica not in self._shares]

    def _take(self) -> list[Leaves]:
        shares = [self._shares[replica] for replica in sorted(self._shares)]
        self._shares, self._graph = {}, None
        return shares


def _check_is_one_share(device: str, leaves: Leaves) -> None:
    checks.check(tf.distribute.in_cross_replica_context() or not tf.distribute.has_strategy(),
                 "device", "None inside strategy.run, where each replica has its own", device)
    checks.check(not any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in leaves),
                 "device", "None for distributed values, which have a part for each", device)
