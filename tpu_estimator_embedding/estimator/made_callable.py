# SPDX-License-Identifier: Apache-2.0
"""A session's callable, made once, for running the same part of a graph often.

It skips the overhead of every `Session.run` call, which exceeds the time of a small step.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2

from tpu_estimator_embedding.types import Tensor

_CALLING_THREAD = -1  # as RunOptions.inter_op_thread_pool
_NUM_TIMED = 10
_SHORT_SECONDS = 0.001


def made_callable(session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Any = (), *,
                  on_calling_thread: bool = False) -> Callable[[], list[Any]]:
    """Returns a function that runs `targets` and returns `fetches`; errors are those of `run`.

    Args:
        session: the session.
        fetches: tensors of its graph.
        targets: a nest of operations, and of tensors whose values nobody needs.
        on_calling_thread: whether to run ops one after the other on the thread that calls,
            instead of waking threads of the session. Ops still use threads of their own.

    >>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    ...     print(*made_callable(session, [tf.constant(3) + tf.constant(4)])())
    7
    """
    if session.sess_str:  # a session on a server: calls between tasks cost more than this saves
        return lambda: session.run((list(fetches), targets))[0]
    elements = [session.graph.as_graph_element(target) for target in tf.nest.flatten(targets)]
    run = session._make_callable_from_options(config_pb2.CallableOptions(
        target=sorted({getattr(element, "op", element).name for element in elements}),
        fetch=[fetch.name for fetch in fetches],
        run_options=tf.compat.v1.RunOptions(
            inter_op_thread_pool=_CALLING_THREAD if on_calling_thread else 0)))
    return lambda: session._do_call(run)


class StepCallable:
    """Like `made_callable`; small steps run on the calling thread.

    Waking other threads and being woken by them takes longer than the ops of a small step. The
    first calls are timed to tell. Larger steps may gain from ops that run at the same time.
    """

    def __init__(self, session: tf.compat.v1.Session, fetches: Sequence[Tensor], targets: Any):
        """Takes the arguments of `made_callable`."""
        self._arguments = session, fetches, targets
        self._run = made_callable(*self._arguments)
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
            self._run = made_callable(*self._arguments, on_calling_thread=True)
        return values
