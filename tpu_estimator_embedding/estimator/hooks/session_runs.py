# SPDX-License-Identifier: Apache-2.0
"""Runs of a session: loops of steps, as on a TPU, and callables instead of `Session.run`.

There is one mechanism, `made_callable`: a callable that the session makes once for what is run
again and again. Two classes use it:

* `StepLoop` runs all steps of a loop except the last, right before the session runs the last one
  with the fetches of hooks. There is no Estimator code between them. Each step does what a TPU does
  in every step: train or evaluate, and run host calls when they are due.
* `RepeatedRuns` serves the runs that remain: a MonitoredSession fetches the same nest of tensors in
  most of them, and `Session.run` takes the nest apart every time, which takes longer than a small
  step.
"""

import enum
import math
import operator
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2
from tensorflow.python.client import session as client_session

from tpu_estimator_embedding.estimator.hooks.input_end import only_input_ends
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.hooks.session_start import add_ready_ops
from tpu_estimator_embedding.types import Structure, Tensor

_CALLING_THREAD = -1  # as RunOptions.inter_op_thread_pool
_NUM_TIMED = 10  # calls that show whether a step is small
_SHORT_SECONDS = 0.001  # of a small step
_SECONDS_BETWEEN_NOTES = 60


class Threads(enum.Enum):
    """Which threads run the ops of a callable. Ops still use threads of their own."""

    SESSION = "the session's, several at the same time"
    CALLER = "the one that calls, one op after the other"
    MEASURED = "those of the session, or the caller's if the first calls are short"


def made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Structure = (),
                  *, threads: Threads = Threads.SESSION) -> Callable[[], list[Any]]:
    """Returns a function that runs `targets` and returns `fetches`; errors are those of `run`.

    Args:
        session: the session.
        fetches: tensors of its graph.
        targets: a nest of operations, and of tensors whose values nobody needs.
        threads: which threads run the ops.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     print(*made_callable(session, [tf.constant(3) + tf.constant(4)])())
    7
    """
    if session.sess_str:  # a session on a server: calls between tasks cost more than this saves
        return lambda: session.run((list(fetches), targets))[0]
    if threads is Threads.MEASURED:
        return _Measured(lambda choice: _made_callable(session, fetches, targets, choice))
    return _made_callable(session, fetches, targets, threads)


def _made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Structure,
                   threads: Threads) -> Callable[[], list[Any]]:
    elements = [session.graph.as_graph_element(target) for target in tf.nest.flatten(targets)]
    run = session._make_callable_from_options(config_pb2.CallableOptions(
        target=sorted({getattr(element, "op", element).name for element in elements}),
        fetch=[fetch.name for fetch in fetches],
        run_options=tf.compat.v1.RunOptions(
            inter_op_thread_pool=_CALLING_THREAD if threads is Threads.CALLER else 0)))
    return lambda: session._do_call(run)


class _Measured:
    """Calls a small step on the calling thread, and others on those of the session.

    Waking other threads and being woken by them takes longer than the ops of a small step. The
    first calls are timed to tell. Larger steps may gain from ops that run at the same time.
    """

    def __init__(self, make: Callable[[Threads], Callable[[], list[Any]]]):
        """Takes what makes the callable of a step."""
        self._make = make
        self._run = make(Threads.SESSION)
        self._num_timed = 0
        self._fastest = float("inf")

    def __call__(self) -> list[Any]:
        """Runs the targets; returns the fetches."""
        if self._num_timed == _NUM_TIMED:
            return self._run()
        start = time.perf_counter()
        values = self._run()
        self._fastest = min(self._fastest, time.perf_counter() - start)
        self._num_timed += 1
        if self._num_timed == _NUM_TIMED and self._fastest < _SHORT_SECONDS:
            self._run = self._make(Threads.CALLER)
        return values


class StepFeed(Protocol):
    """What feeds the steps.

    Attributes:
        steps_left: how many steps are left in the queue when one was taken.
    """

    @property
    def steps_left(self) -> Tensor: ...

    def wait_for_step(self, session: tf.compat.v1.Session) -> None:
        """Waits for the input of the next step; raises OutOfRangeError if it has ended."""


class Steps(NamedTuple):
    """The steps that a loop runs.

    Attributes:
        counter: returns the variable that counts them, in the graph of the session.
        end: returns the number of the last step.
    """

    counter: Callable[[], tf.Variable]
    end: Callable[[], int]


class StepLoop(tf.compat.v1.train.SessionRunHook):
    """Makes every run of a session a loop; the last of the session's hooks.

    After a signal, the loop ends with one more step. If the input ends within a loop, or a thread
    asks the session to stop, the session ends after the steps that ran, and hooks are not called
    for that loop.
    """

    def __init__(self, length: LoopLength, steps: Steps, feed: StepFeed, *,
                 host_calls: Sequence[tf.compat.v1.train.SessionRunHook] = (),
                 host_call_every_n_steps: int = 1,
                 is_stopping: Callable[[], bool] = lambda: False):
        """Makes the hook.

        Args:
            length: the length of a loop.
            steps: the steps to run.
            feed: feeds the steps.
            host_calls: hooks that fetch the host calls.
            host_call_every_n_steps: they run in steps that are multiples of it, from 0.
            is_stopping: whether to end the loop.
        """
        self._length = length
        self._steps = steps
        self._feed = feed
        self._host_calls = host_calls
        self._every_n_steps = host_call_every_n_steps
        self._is_stopping = is_stopping
        self._run_step: Callable[[bool], bool] | None = None
        self._noted_at = 0.0
        self._needs_number = length.steps != 1 or bool(
            host_calls and host_call_every_n_steps != 1)

    def begin(self) -> None:
        """Begins the host calls; the session waits for all variables that exist then."""
        self._counter = tf.identity(self._steps.counter())
        for hook in self._host_calls:
            hook.begin()
        add_ready_ops()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Passes the session on."""
        self._coord = coord
        self._run_step = None
        if self._needs_number:
            self._read_counter = made_callable(session, [self._counter], threads=Threads.CALLER)
        for hook in self._host_calls:
            hook.after_create_session(session, coord)

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs | None:
        """Runs all steps of a loop except the last, and fetches the host calls of the last."""
        step = self._next_step()
        if self._length.steps != 1:
            self._run_step = self._run_step or self._new_step(run_context)
            step = self._run_all_but_last(run_context.session, self._run_step, step)
        if not self._is_call_due(step):
            return None
        return tf.compat.v1.train.SessionRunArgs(self._calls(run_context))

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the host calls."""
        for hook in self._host_calls:
            hook.end(session)

    def _next_step(self) -> int:
        return int(self._read_counter()[0]) if self._needs_number else 0

    def _is_call_due(self, step: int) -> bool:
        return bool(self._host_calls) and step % self._every_n_steps == 0

    def _calls(self, run_context: tf.compat.v1.train.SessionRunContext) -> list[Structure]:
        return [hook.before_run(run_context).fetches for hook in self._host_calls]

    def _run_all_but_last(self, session: tf.compat.v1.Session, run_step: Callable[[bool], bool],
                          step: int) -> int:
        """Runs steps starting at `step`; returns the step left to run."""
        last = self._last_step(step)
        self._noted_at = time.monotonic()
        stop_at = self._noted_at + (self._length.seconds or float("inf"))
        while step < last and time.monotonic() < stop_at and not self._is_stopping():
            if not run_step(self._is_call_due(step)):
                self._feed.wait_for_step(session)
            step += 1
            if self._coord.should_stop():  # and the input with it
                raise tf.errors.OutOfRangeError(None, None, "The session was asked to stop.")
            self._note(step, last + 1)
        return step

    def _note(self, step: int, end: int) -> None:
        """Logs a step, where hooks have not been called for a long time."""
        now = time.monotonic()
        if now - self._noted_at >= _SECONDS_BETWEEN_NOTES:
            self._noted_at = now
            tf.compat.v1.logging.info("tpu_estimator_embedding: step %d of a loop up to %d", step,
                                      end)

    def _last_step(self, first: int) -> int:
        end = self._steps.end()
        return (end if self._length.steps is None else min(end, first + self._length.steps)) - 1

    def _new_step(self, run_context: tf.compat.v1.train.SessionRunContext
                  ) -> Callable[[bool], bool]:
        """Returns a function that runs a step, given whether host calls are due.

        The function returns whether input for another step is ready.
        """
        session, left = run_context.session, self._feed.steps_left
        fetches = run_context.original_args.fetches
        bare = _step(session, [left], fetches)
        with_calls = _step(session, [left], [
            fetches, self._calls(run_context)]) if self._host_calls else bare
        return lambda is_call_due: bool((with_calls if is_call_due else bare)()[0])


def _step(session: tf.compat.v1.Session, fetches: Sequence[Tensor],
          targets: Structure) -> Callable[[], list[Any]]:
    return only_input_ends(made_callable(session, fetches, targets, threads=Threads.MEASURED))


class RepeatedRuns:
    """Replaces `Session.run` for nests of fetches without feeds and options, with its results.

    Everything else goes to `Session.run`.

    Attributes:
        number: how many runs `run` made; NaN once a callable was made, whose runs are not counted.
    """

    def __init__(self, session: tf.compat.v1.Session):
        """Takes a session whose graph does not change."""
        self._session = session
        self._run = session.run
        self._make_any_callable = session.make_callable
        self._is_here = not session.sess_str
        self._leaves: dict[int, object] = {}  # by id; kept, so that no other object gets the id
        self._made: dict[Hashable, Callable[[], Structure]] = {}
        self.number = 0.0

    def serve(self) -> None:
        """Becomes the `run` of the session."""
        self._session.run, self._session.make_callable = self.run, self._make_callable

    def run(self, fetches: Structure, feed_dict: Mapping[Tensor, object] | None = None,
            options: tf.compat.v1.RunOptions | None = None,
            run_metadata: tf.compat.v1.RunMetadata | None = None) -> Structure:
        """Runs and returns what `Session.run` would."""
        self.number += 1
        has_options = options is not None and options.ByteSize()
        is_plain = self._is_here and not (feed_dict or has_options or self._session._closed)
        key = self._key(fetches) if is_plain else None
        if key is None:
            return self._run(fetches, feed_dict, options, run_metadata)
        if key not in self._made:
            self._made[key] = self._make(fetches)
        return self._made[key]()

    def _make_callable(self, *args: object, **kwargs: object) -> Callable[..., Structure]:
        self.number = math.nan
        return self._make_any_callable(*args, **kwargs)

    def _key(self, nest: Structure) -> Hashable | None:
        """Returns what identifies the nest; None if it has other leaves than fetches."""
        if type(nest) is dict:
            return self._key_of((dict, *nest), nest.values())
        if type(nest) is list or type(nest) is tuple:
            return self._key_of((type(nest),), nest)
        if id(nest) not in self._leaves:
            if not isinstance(nest, tf.Tensor | tf.Operation | tf.Variable):
                return None
            self._leaves[id(nest)] = nest
        return id(nest)

    def _key_of(self, head: tuple[Hashable, ...], values: Iterable[Structure]) -> Hashable | None:
        keys = tuple(self._key(value) for value in values)
        return None if None in keys else (head, keys)

    def _make(self, nest: Structure) -> Callable[[], Structure]:
        session = self._session
        handler = client_session._FetchHandler(session.graph, nest, {})
        if not handler.fetches() and not handler.targets():
            return lambda: handler.build_results(session, [])
        run = _step(session, handler.fetches(), handler.targets())
        positions = handler.build_results(session, list(range(len(handler.fetches()))))
        build = _builder(positions)
        return lambda: build(run())


def _builder(positions: Structure) -> Callable[[list[Any]], Structure]:
    """Returns a function that puts values into a nest, given the nest of their positions.

    >>> _builder({"loss": 1, "others": [0, None]})(["a", "b"])
    {'loss': 'b', 'others': ['a', None]}
    """
    if isinstance(positions, dict):
        items = [(key, _builder(value)) for key, value in positions.items()]
        return lambda values: {key: build(values) for key, build in items}
    if isinstance(positions, list | tuple):
        kind, parts = type(positions), [_builder(value) for value in positions]
        return lambda values: kind([build(values) for build in parts])
    if positions is None:  # of an operation
        return lambda values: None
    return operator.itemgetter(positions)
