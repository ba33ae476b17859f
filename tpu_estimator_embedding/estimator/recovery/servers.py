# SPDX-License-Identifier: Apache-2.0
"""Asks the parameter servers of a cluster whether they answer."""

import concurrent.futures
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

LINE_SECONDS = 30.0  # between two lines about a server that does not answer
ANSWER_SECONDS = 5.0
_NO_ANSWER = (tf.errors.DeadlineExceededError, tf.errors.UnavailableError,
              tf.errors.AbortedError, tf.errors.CancelledError)


class Server(NamedTuple):
    """A parameter server.

    Attributes:
        number: its index in TF_CONFIG.
        address: its host and port.
    """

    number: int
    address: str

    def __str__(self) -> str:
        """Returns its name for logs.

        >>> print(Server(1, "host:2222"))
        ps 1 (host:2222)
        """
        return f"ps {self.number} ({self.address})"

    @property
    def device(self) -> str:
        """The device of its tables."""
        return f"/job:ps/task:{self.number}/device:CPU:0"

    def ask(self, make: Callable[[], Any] = lambda: tf.constant(True)) -> Any:
        """Returns the value of a tensor, which the server computes in a short session.

        The server itself creates the session, so that no other task is involved.

        Args:
            make: creates the tensor in the current graph.

        Raises:
            tf.errors.OpError: if the server does not answer within a few seconds, or cannot
                compute the tensor.
        """
        settings = tf.compat.v1.ConfigProto(
            device_filters=[f"/job:ps/task:{self.number}"],
            operation_timeout_in_ms=int(ANSWER_SECONDS * 1000))
        with tf.Graph().as_default():
            with tf.device(self.device):
                tensor = make()
            with tf.compat.v1.Session(f"grpc://{self.address}", config=settings) as session:
                return session.run(tensor)

    def answers(self) -> bool:
        """Whether the server answers within a few seconds."""
        try:
            self.ask()
        except _NO_ANSWER:
            return False
        return True


def servers_of(config: Any) -> tuple[Server, ...]:
    """Returns the servers of a RunConfig."""
    addresses = config.cluster_spec.job_tasks("ps")
    return tuple(Server(number, address) for number, address in enumerate(addresses))


def silent(servers: Sequence[Server]) -> list[Server]:
    """Returns the servers that do not answer; asks all at once."""
    with concurrent.futures.ThreadPoolExecutor(len(servers)) as pool:
        answers = list(pool.map(Server.answers, servers))
    return [server for server, answer in zip(servers, answers, strict=True) if not answer]


def wait_for(servers: Sequence[Server]) -> None:
    """Waits until all servers have answered; logs repeatedly which servers it waits for."""
    start, next_line = time.monotonic(), 0.0
    while missing := silent(servers):
        now = time.monotonic()
        if now >= next_line:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: waiting for %s, for %.0f s so far: no answer",
                names(missing), now - start)
            next_line = now + LINE_SECONDS
        servers = missing
        time.sleep(0.5)


def names(servers: Sequence[Server]) -> str:
    """Returns the names of servers, for logs."""
    return ", ".join(map(str, servers))
