# SPDX-License-Identifier: Apache-2.0
"""The devices of table parts, and of the ops that read and write them."""

import contextlib
import inspect
import re
from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.types import Initializer, Tensor

THIS_PROCESS = "/device:CPU:0"


def is_here(device: str | None) -> bool:
    """Whether a device, "" or None for no particular one, is in this process.

    >>> is_here(THIS_PROCESS), is_here("/job:localhost/task:0"), is_here("/job:ps/task:0")
    (True, True, False)
    """
    return tf.DeviceSpec.from_string(device or "").job in (None, "localhost")


def beside(part: tf.Variable) -> contextlib.AbstractContextManager[None]:
    """Places ops on the server of a table part; does nothing for parts in this process.

    Args:
        part: a table part or a part of a slot.
    """
    return contextlib.nullcontext() if is_here(part.device) else tf.device(part.device)


def by_part(name: str, devices: Sequence[str]) -> Callable[[tf.Operation], str]:
    """Returns a device function that places part h of a partitioned variable on `devices[h]`.

    Args:
        name: the variable's name, as `tf.compat.v1.get_variable` gets it.
        devices: one for each part.

    >>> servers = ["/job:ps/task:0", "/job:ps/task:1"]
    >>> with tf.Graph().as_default() as graph, graph.device(by_part("t", servers)):
    ...     table = tf.compat.v1.get_variable(
    ...         "t", [4, 2], partitioner=tf.compat.v1.fixed_size_partitioner(2), use_resource=True)
    >>> [part.device for part in table]
    ['/job:ps/task:0', '/job:ps/task:1']
    """
    if set(devices) == {THIS_PROCESS}:
        return lambda op: THIS_PROCESS
    number = re.compile(rf"(?:^|/){re.escape(name)}/part_(\d+)(?:/|$)")

    def device(op: tf.Operation) -> str:
        match = number.search(op.name)
        return devices[int(match[1])] if match else THIS_PROCESS

    return device


def placed_initializer(initializer: Initializer, device: Callable[[tf.Operation], str]
                       ) -> Initializer:
    """Returns an initializer whose ops a device function places, so that no table is transferred.

    TensorFlow does not assign a device to the ops of a variable's initializer; in a cluster they
    would run on the chief.
    """
    def initialize(*args: object, **kwargs: object) -> Tensor:
        with tf.compat.v1.get_default_graph().device(device):
            return initializer(*args, **kwargs)

    # TensorFlow inspects the signature to decide whether to pass the part to initialize.
    initialize.__signature__ = inspect.signature(initializer)  # type: ignore[attr-defined]
    return initialize
