# SPDX-License-Identifier: Apache-2.0
"""Collects a batch that is enqueued device by device, until every replica has its share."""

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
        """Starts without shares; `devices` has the device of each replica."""
        self._devices = list(devices)
        self._shares: dict[int, Leaves] = {}
        self._training = False
        self._graph: tf.Graph | None = None  # of the function that added the shares

    def add(self, device: str, leaves: Leaves, training: bool) -> list[Leaves] | None:
        """Adds the share of one replica.

        Args:
            device: the device of a replica, or "/TPU:r" for replica r.
            leaves: the values of the share.
            training: whether gradients will follow, the same for all replicas.

        Returns:
            The shares of all replicas if this was the last one, else None.

        Raises:
            ValueError: if no replica has the device, a device is given inside `strategy.run` or
                together with distributed values, or `training` differs between the shares.
            RuntimeError: if the device already has its share, or another function left shares.
        """
        replica = self._replica(device)
        _check_is_one_share(device, leaves)
        graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
        if self._shares and graph is not self._graph:
            self.check_complete()
        checks.check(not self._shares or training == self._training, "training",
                     f"{self._training}, as for the other devices", training)
        if replica in self._shares:
            raise RuntimeError(f"`device` must be the device of a replica without ids, got "
                               f"{device!r} twice. Devices without ids: {self._missing()}.")
        self._shares[replica], self._training, self._graph = leaves, training, graph
        return None if self._missing() else self._take()

    def check_complete(self) -> None:
        """Raises RuntimeError, and drops the shares, if only some replicas have one."""
        if not self._shares:
            return
        missing = self._missing()
        self._take()
        raise RuntimeError(f"`enqueue` must be called for every device, got no ids for {missing}. "
                           "The ids of the other devices are dropped.")

    def _replica(self, device: str) -> int:
        spec = tf.DeviceSpec.from_string(device)
        specs = [tf.DeviceSpec.from_string(name) for name in self._devices]
        found = [replica for replica, own in enumerate(specs)
                 if (spec.device_type, spec.device_index) in (
                     (own.device_type, own.device_index), ("TPU", replica))]
        checks.check(bool(found), "device", f"None, one of {self._devices}, or '/TPU:0' to "
                     f"'/TPU:{len(specs) - 1}' for the replicas in order", device,
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
                 "device", "None inside strategy.run, because each replica has its device", device)
    checks.check(not any(isinstance(leaf, tf.distribute.DistributedValues) for leaf in leaves),
                 "device", "None for distributed values, which contain all replicas", device)
