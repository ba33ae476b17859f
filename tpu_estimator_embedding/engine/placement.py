# SPDX-License-Identifier: Apache-2.0
"""The devices of table parts, and of the ops that read and write them."""

import contextlib
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

THIS_PROCESS = "/device:CPU:0"


def beside(part: tf.Variable) -> contextlib.AbstractContextManager[None]:
    """Places ops on the server of a table part; does nothing where it lies in this process.

    Args:
        part: a table part or a part of a slot.
    """
    job = tf.DeviceSpec.from_string(part.device or "").job
    return contextlib.nullcontext() if job in (None, "localhost") else tf.device(part.device)


def by_part(name: str, devices: Sequence[str]) -> Callable[[tf.Operation], str]:
    """Returns a device function that places part h of a partitioned variable on `devices[h]`.

    The initializer of a part runs on the part's device, too: no value of a table is sent.

    Args:
        name: the variable's name, as `tf.compat.v1.get_variable` gets it.
        devices: one for each part.

    >>> scope = tf.compat.v1.device(by_part("t", ["/job:ps/task:0", "/job:ps/task:1"]))
    >>> with tf.Graph().as_default(), scope:
    ...     table = tf.compat.v1.get_variable(
    ...         "t", [4, 2], partitioner=tf.compat.v1.fixed_size_partitioner(2), use_resource=True)
    >>> [part.device for part in table]
    ['/job:ps/task:0', '/job:ps/task:1']
    """
    number = re.compile(rf"(?:^|/){re.escape(name)}/part_(\d+)(?:/|$)")

    def device(op: tf.Operation) -> str:
        match = number.search(op.name)
        return devices[int(match[1])] if match else THIS_PROCESS

    return device
