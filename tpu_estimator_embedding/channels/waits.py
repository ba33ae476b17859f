# SPDX-License-Identifier: Apache-2.0
"""What waits at the channels of this process, and ways to end it from outside a session."""

import ctypes
from typing import Any, NamedTuple

from tpu_estimator_embedding.channels.channel import PUT, TAKE
from tpu_estimator_embedding.kernels import load

OPS = {PUT: "put", TAKE: "take"}
_VERBS = {"put": "enqueued", "take": "dequeued"}


class End(NamedTuple):
    """One end of a channel.

    Attributes:
        channel: name of the channel.
        side: "put" or "take".
    """

    channel: str
    side: str

    @property
    def other(self) -> "End":
        """The other end."""
        return End(self.channel, "take" if self.side == "put" else "put")

    @property
    def verb(self) -> str:
        """What is done at this end: "enqueued" or "dequeued"."""
        return _VERBS[self.side]


class Wait(NamedTuple):
    """An op that waits.

    Attributes:
        end: where it waits.
        op: its name in its graph.
        seconds: since when.
    """

    end: End
    op: str
    seconds: float

    @property
    def sentence(self) -> str:
        """Says who waits for what."""
        for_what = "no batch to dequeue" if self.end.side == "take" else "no room for a batch"
        return (f"{self.op} has waited {self.seconds:.0f} s: {self.end.channel!r} has "
                f"{for_what}.")


def waiting() -> list[Wait]:
    """Returns the op that has waited longest at each end where one waits."""
    function = _function("tpu_embedding_channel_waits")
    function.restype = ctypes.c_char_p
    found = []
    for line in function().decode().splitlines():
        channel, side, op, microseconds = line.split("\t")
        found.append(Wait(End(channel, side), op, int(microseconds) / 1e6))
    return found


def fail(end: End, message: str) -> None:
    """Ends all waits at one end with tf.errors.AbortedError."""
    _function("tpu_embedding_fail_channel")(
        end.channel.encode(), int(end.side == "put"), message.encode())


def drain(channel: str, message: str) -> None:
    """Drops the elements of a channel, and ends all its waits with tf.errors.AbortedError."""
    _function("tpu_embedding_drain_channel")(channel.encode(), message.encode())


def interrupt(is_interrupted: bool) -> None:
    """Ends all waits with tf.errors.CancelledError, and further ones until called with False."""
    _function("tpu_embedding_interrupt_channels")(int(is_interrupted))


def drop(prefix: str) -> None:
    """Drops all channels whose names begin with `prefix`, and what they hold."""
    _function("tpu_embedding_drop_channels")(prefix.encode())


def _function(name: str) -> Any:
    return getattr(load.kernels().functions, name)
