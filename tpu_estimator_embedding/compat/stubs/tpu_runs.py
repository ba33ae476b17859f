# SPDX-License-Identifier: Apache-2.0
"""Watches runs of sessions that wait at a channel, and ends waits that nothing can end.

A program that feeds a TPU by hand runs a session in each of several threads. When one of them fails
or ends, the others would wait forever. A thread of this module looks twice a second, while such
runs are active. An end of a channel that waits while no run is active at the other end

* fails when every thread of the program waits like this, or is gone;
* fails after `PATIENCE` when all threads that ran the other end have ended, or the last run there
  has failed; sooner when both are true;
* logs who waits for what, every `PATIENCE`, otherwise.

A run that fails leaves parts of a batch behind: it took some tensors of it and not others. All
feeds that it dequeues are emptied, so that the next run does not join parts of two batches. An
update that pipelined execution has delayed stays.
Runs that reach their time limit or the end of the input, or are cancelled, leave them as they are.

Ctrl-C ends all waits: Python's own handler runs only when the session returns.
"""

import contextlib
import functools
import signal
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.channels import channel, waits
from tpu_estimator_embedding.channels.waits import End
from tpu_estimator_embedding.low_level.core_queue import DELAYED_UPDATE
from tpu_estimator_embedding.ops.readable_errors import readable
from tpu_estimator_embedding.types import Tensor

PATIENCE = 30.0  # seconds
_LOOK_EVERY = 0.5
_MOST_PAST = 1000  # ends that are remembered; every engine has its own channels
_CERTAIN_AFTER = 2.0
_AFTER_AN_ERROR = 5.0
_LEAVE_CHANNELS = (tf.errors.OutOfRangeError, tf.errors.DeadlineExceededError,
                   tf.errors.CancelledError)
# Threads of libraries, which never run the program's sessions.
_NOT_OF_PROGRAMS = ("_EventLoggerThread", "TMonitor", "_DummyThread")


class Run(NamedTuple):
    """A run of a session in progress.

    Attributes:
        thread: the thread that waits for the run.
        ends: the ends of channels that it uses.
    """

    thread: threading.Thread
    ends: frozenset[End]


class Past(NamedTuple):
    """What is known of earlier runs at one end of a channel.

    Attributes:
        threads: the threads that ran it.
        error: what ended the last run, or None. The exception would keep the graphs of its frames.
        has_failed: whether that is an error, not the end of the input.
        end: when the last run ended, by `time.monotonic`.
    """

    threads: "weakref.WeakSet[threading.Thread]"
    error: str | None
    has_failed: bool
    end: float

    def gives_up(self, seconds: float, blocked: set[threading.Thread]) -> bool:
        """Whether a wait of so many seconds at the other end is not expected to end."""
        is_alive = any(thread.is_alive() and thread not in blocked for thread in self.threads)
        if is_alive and not self.has_failed:
            return False
        patience = _AFTER_AN_ERROR if self.has_failed and not is_alive else PATIENCE
        return min(seconds, time.monotonic() - self.end) >= patience


def running(original: Callable[..., list[object]]) -> Callable[..., list[object]]:
    """Returns a `_do_run` that calls another one, under observation if the graph has channels."""
    @functools.wraps(original)
    def do_run(self: tf.compat.v1.Session, handle: object, target_list: Sequence[tf.Operation],
               fetch_list: Sequence[Tensor], *others: Any) -> list[object]:
        ends = (_ends_of(self.graph, [*target_list, *fetch_list]) if channel.is_in(self.graph)
                else None)
        with _watch.observed(ends) if ends else contextlib.nullcontext():
            return original(self, handle, target_list, fetch_list, *others)

    return do_run


# Keyed by graph, then by what a run computes.
_known_ends: "weakref.WeakKeyDictionary[tf.Graph, dict[Any, frozenset[End]]]" = (
    weakref.WeakKeyDictionary())


def _ends_of(graph: tf.Graph, wanted: Sequence[tf.Operation | Tensor]) -> frozenset[End]:
    """Returns the ends of channels that a run of these tensors and ops uses."""
    ops = [value if isinstance(value, tf.Operation) else value.op for value in wanted]
    key = tuple(op.name for op in ops)
    known = _known_ends.setdefault(graph, {})
    if key not in known:
        known[key] = frozenset(_ends_of_nodes(graph, _needed(ops)))
    return known[key]


def _needed(ops: Iterable[tf.Operation]) -> set[tf.Operation]:
    found, waiting = set(), list(ops)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found.add(op)
            waiting += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return found


def _ends_of_nodes(graph: tf.Graph, ops: Iterable[tf.Operation]) -> Iterator[End]:
    nodes = [op.node_def for op in ops]
    functions = {function.signature.name: function
                 for function in graph.as_graph_def().library.function}
    seen: set[str] = set()
    while nodes:
        node = nodes.pop()
        if node.op in waits.OPS:
            yield End(node.attr["channel"].s.decode(), waits.OPS[node.op])
        for attribute in node.attr.values():
            called = [attribute.func.name, *(function.name for function in attribute.list.func)]
            for name in {node.op, *called} - seen:
                seen.add(name)
                if name in functions:
                    nodes.extend(functions[name].node_def)


class _Watch:
    """The runs of this process, and the thread that looks after them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[Run] = []
        self._past: dict[End, Past] = {}
        self._logged: dict[End, float] = {}
        self._has_runs = threading.Event()
        self._thread: threading.Thread | None = None
        self._interrupts: socket.socket | None = None

    @contextlib.contextmanager
    def observed(self, ends: frozenset[End]) -> Iterator[None]:
        """Observes a run at these ends."""
        run = Run(threading.current_thread(), ends)
        with self._lock:
            self._runs.append(run)
            self._has_runs.set()
            self._start()
        error: BaseException | None = None
        try:
            with self._interrupts_noticed():
                yield
        except BaseException as raised:
            error = raised
            _drain_after(raised, run)
            raise
        finally:
            with self._lock:
                self._runs.remove(run)
                for end in ends:
                    past = self._past.pop(end, None)  # the newest stand last
                    threads = past.threads if past else weakref.WeakSet()
                    threads.add(run.thread)
                    self._past[end] = _past(threads, error)
                while len(self._past) > _MOST_PAST:
                    del self._past[next(iter(self._past))]
                if not self._runs:
                    self._has_runs.clear()

    @contextlib.contextmanager
    def _interrupts_noticed(self) -> Iterator[None]:
        """Lets Ctrl-C end a run of the main thread that waits."""
        if threading.current_thread() is not threading.main_thread() or self._interrupts:
            yield
            return
        noticed, written = socket.socketpair()
        noticed.setblocking(False)
        written.setblocking(False)
        before = signal.set_wakeup_fd(written.fileno(), warn_on_full_buffer=False)
        self._interrupts = noticed
        try:
            yield
        finally:
            self._interrupts = None
            signal.set_wakeup_fd(before)
            waits.interrupt(False)
            noticed.close()
            written.close()

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._look_on, name="tpu_embedding_channels",
                                            daemon=True)
            self._thread.start()

    def _look_on(self) -> None:
        while True:
            self._has_runs.wait()
            time.sleep(_LOOK_EVERY)
            self._pass_interrupt_on()
            with self._lock:
                if not self._runs:  # ended while this thread slept
                    continue
                found = [wait for wait in waits.waiting() if wait.seconds >= _CERTAIN_AFTER]
                verdicts = [(wait, self._verdict(wait, found)) for wait in found]
            for wait, verdict in verdicts:
                if verdict is not None:
                    waits.fail(wait.end, verdict)
                else:
                    self._log(wait)

    def _pass_interrupt_on(self) -> None:
        interrupts = self._interrupts
        with contextlib.suppress(OSError):  # no byte yet, or the run has ended
            if interrupts and signal.SIGINT in interrupts.recv(100):
                waits.interrupt(True)

    def _verdict(self, wait: waits.Wait, found: Sequence[waits.Wait]) -> str | None:
        """Returns the error of a wait that nothing can end; None to go on waiting."""
        other = wait.end.other
        if any(other in run.ends for run in self._runs):
            return None
        stuck = {wait.end for wait in found}
        blocked = {run.thread for run in self._runs if stuck.intersection(run.ends)}
        past = self._past.get(other)
        is_certain = not [thread for thread in threading.enumerate()
                          if thread.is_alive() and thread not in blocked
                          and thread is not self._thread
                          and type(thread).__name__ not in _NOT_OF_PROGRAMS]
        if not is_certain and not (past and past.gives_up(wait.seconds, blocked)):
            return None
        return f"{wait.sentence} {_reason(other, past)}"

    def _log(self, wait: waits.Wait) -> None:
        now = time.monotonic()
        if wait.seconds < PATIENCE or now - self._logged.get(wait.end, -PATIENCE) < PATIENCE:
            return
        waiting = {each.end for each in waits.waiting()}
        self._logged = {end: last for end, last in self._logged.items() if end in waiting}
        self._logged[wait.end] = now
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: %s Each batch that is %s must be %s once.", wait.sentence,
            wait.end.verb, wait.end.other.verb)


def _drain_after(error: BaseException, run: Run) -> None:
    if not isinstance(error, tf.errors.OpError) or isinstance(error, _LEAVE_CHANNELS):
        return
    for end in run.ends:
        if end.side == "take" and not end.channel.endswith(DELAYED_UPDATE):
            waits.drain(end.channel, f"{end.channel!r} was emptied, because the run that dequeues "
                        f"it, in {run.thread.name}, failed: {_described(error)}")


def _described(error: BaseException) -> str:
    cause = str(readable(error) if isinstance(error, Exception) else error)
    return f"{type(error).__name__}: {cause}"


def _past(threads: "weakref.WeakSet[threading.Thread]", error: BaseException | None) -> Past:
    has_failed = error is not None and not isinstance(error, tf.errors.OutOfRangeError)
    return Past(threads, None if error is None else _described(error), has_failed, time.monotonic())


def _reason(other: End, past: Past | None) -> str:
    if past is None:
        return (f"No thread has {other.verb} a batch yet, and none is left to do so. Start the "
                "thread that does before the run that waits.")
    names = ", ".join(sorted(thread.name for thread in past.threads)) or "a thread that has ended"
    if past.error is None:
        return (f"No run is left to end the wait; the last one was in {names}. Enqueue and dequeue "
                "the same number of batches.")
    return f"The last run at the other end, in {names}, failed: {past.error}"


_watch = _Watch()
