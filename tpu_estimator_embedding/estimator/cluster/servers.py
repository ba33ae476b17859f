# SPDX-License-Identifier: Apache-2.0
"""Asks the parameter servers of a cluster whether they answer, before and during training."""

import concurrent.futures
import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.step_ids import check_can_train_on_servers
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import RunConfig, Tensor

LINE_SECONDS = 30.0  # between two lines about a task that is waited for
_STARTING_SECONDS = 25.0  # in which a server that was started at the same time answers
ANSWER_SECONDS = 5.0
_LIKELY_CAUSE = (". Is it running, at this address of TF_CONFIG? It serves once its program has "
                 "called tf.estimator.train_and_evaluate.")
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

    def ask(self, make: Callable[[], Tensor] = lambda: tf.constant(True)) -> Any:
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


def servers_of(config: RunConfig) -> tuple[Server, ...]:
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
            tf.compat.v1.logging.warning(
                "tpu_estimator_embedding: waiting for %s, for %.0f s so far: no answer%s",
                names(missing), now - start,
                _LIKELY_CAUSE if now - start >= _STARTING_SECONDS else "")
            next_line = now + LINE_SECONDS
        servers = missing
        time.sleep(0.5)


def names(servers: Sequence[Server]) -> str:
    """Returns the names of servers, for logs."""
    return ", ".join(map(str, servers))


def meet_servers(config: RunConfig, plan: EmbeddingPlan) -> None:
    """Waits until all servers answer, and checks that they can train the tables.

    Args:
        config: the RunConfig of a trainer in a cluster with servers.
        plan: the tables.

    Raises:
        RuntimeError: if this task or a server has no native kernels.
        ValueError: if the kernels do not support a table.
    """
    check_can_train_on_servers(plan)
    servers = servers_of(config)
    wait_for(servers)
    without = [server for server in servers if plan.tables and not _has_kernels(server)]
    if without:
        raise RuntimeError(
            "Training on parameter servers requires the native kernels, and "
            f"{', '.join(map(str, without))} has none; its log says why. Run `{load.COMMAND}` "
            "there and restart it.")


def _has_kernels(server: Server) -> bool:
    try:
        server.ask(_nothing)
    except tf.errors.FailedPreconditionError:  # the op ran
        return True
    except (tf.errors.NotFoundError, tf.errors.InvalidArgumentError,
            tf.errors.UnimplementedError, tf.errors.InternalError):
        return False
    return True


def _nothing() -> Tensor:
    """Returns a snapshot of a variable that does not exist."""
    absent = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[1, 1],
                                    shared_name="tpu_estimator_embedding/absent")
    return load.native_ops().tpu_embedding_snapshot([absent])[0]


@contextlib.contextmanager
def watching(servers: Sequence[Server]) -> Iterator["Watchdog"]:
    """Yields the hook for a session; it watches from now on, until the context ends."""
    watchdog = Watchdog(servers, LINE_SECONDS)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()


class Watchdog(tf.compat.v1.train.SessionRunHook):
    """Logs repeatedly which servers do not answer if there is no step for 30 seconds.

    TensorFlow's session waits for its servers forever and logs nothing.
    """

    def __init__(self, servers: Sequence[Server], seconds: float):
        """Stores the servers, and the seconds without a step after which they are queried."""
        self._servers = servers
        self._seconds = seconds
        self._last_step = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Starts watching."""
        self._thread.start()

    def stop(self) -> None:
        """Stops watching."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(2 * ANSWER_SECONDS)  # a query may be in progress

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Records the time of a step."""
        self._last_step = time.monotonic()

    def _watch(self) -> None:
        next_line = self._last_step + self._seconds
        while not self._stopping.wait(max(0.0, next_line - time.monotonic())):
            if time.monotonic() - self._last_step >= self._seconds:
                self._say()
                next_line = time.monotonic() + self._seconds
            else:
                next_line = self._last_step + self._seconds

    def _say(self) -> None:
        missing = silent(self._servers)
        seconds = time.monotonic() - self._last_step
        if self._stopping.is_set() or seconds < self._seconds:
            return
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: no step for %.0f s: %s", seconds,
            f"{names(missing)} does not answer" if missing else "all servers answer")
