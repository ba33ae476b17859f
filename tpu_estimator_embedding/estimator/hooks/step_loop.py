# SPDX-License-Identifier: Apache-2.0
"""Makes a run of a session a loop of steps, as on a TPU.

`StepLoop` runs all steps of a loop except the last, right before the session runs the last one with
the fetches of hooks. There is no Estimator code between them. Each step does what a TPU does in
every step: train or evaluate, and run host calls when they are due.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.estimator.hooks.loop_length import LoopLength
from tpu_estimator_embedding.estimator.step_session import StepSession, Threads, made_callable
from tpu_estimator_embedding.types import Structure, Tensor

_SECONDS_BETWEEN_NOTES = 60
_HostCallHook = upstream.tpu_estimator._OutfeedHostCallHook


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
                 host_call_every_n_steps: int = 1, fetches_values: bool = False,
                 is_stopping: Callable[[], bool] = lambda: False):
        """Makes the hook.

        Args:
            length: the length of a loop.
            steps: the steps to run.
            feed: feeds the steps.
            host_calls: hooks that fetch the host calls.
            host_call_every_n_steps: they run in steps that are multiples of it, from 0.
            fetches_values: whether every step fetches the values that the session's run does. Then
                the last one needs no separate callable, if hooks fetch no others.
            is_stopping: whether to end the loop.
        """
        self._length = length
        self._steps = steps
        self._feed = feed
        self._host_calls = host_calls
        self._every_n_steps = host_call_every_n_steps
        self._fetches_values = fetches_values
        self._is_stopping = is_stopping
        self._run_step: Callable[[bool], bool] | None = None
        self._noted_at = 0.0
        self._needs_number = length.steps != 1 or bool(
            host_calls and host_call_every_n_steps != 1)

    def begin(self) -> None:
        """Begins the host calls."""
        self._counter = tf.identity(self._steps.counter())
        for hook in self._host_calls:
            hook.begin()

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
        step = int(self._read_counter()[0]) if self._needs_number else 0
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
        session: StepSession = run_context.session
        calls = self._calls(run_context)
        elements = [session.graph.as_graph_element(fetch)
                    for fetch in tf.nest.flatten(run_context.original_args.fetches)]
        values = [element for element in elements if isinstance(element, tf.Tensor)]
        fetches = [self._feed.steps_left, *(values if self._fetches_values else ())]

        @functools.cache  # optimizing a graph takes long, and a loop of one step runs neither
        def step(is_call_due: bool) -> Callable[[], list[Any]]:
            return session.measured(fetches, [elements, calls] if is_call_due else elements)

        return lambda is_call_due: bool(step(is_call_due)()[0])


def in_loops(hooks: Sequence[tf.compat.v1.train.SessionRunHook], length: LoopLength, steps: Steps,
             feed: StepFeed, **options: Any) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the last hooks of a session, whose runs become loops of steps.

    Args:
        hooks: those of the model; the ones of host calls become part of the loop.
        length: the length of a loop.
        steps: the steps to run.
        feed: feeds the steps.
        **options: of a `StepLoop`.
    """
    host_calls = [hook for hook in hooks if isinstance(hook, _HostCallHook)]
    return [*(hook for hook in hooks if hook not in host_calls),
            StepLoop(length, steps, feed, host_calls=host_calls, **options)]
