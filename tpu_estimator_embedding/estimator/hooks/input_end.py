# SPDX-License-Identifier: Apache-2.0
"""Distinguishes the end of the input from other OutOfRangeErrors, which must not end a session.

A MonitoredSession treats every OutOfRangeError as the end of the input, even one raised by an op
of the model, or by a save whose file exceeds a size limit.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.ops.readable_errors import readable


class NotTheEndOfInputError(tf.errors.OutOfRangeError):
    """An OutOfRangeError that has nothing to do with the input.

    A MonitoredSession lets it pass, because it checks for the exact type.
    """


class OnlyInputEnds(tf.compat.v1.train.SessionRunHook):
    """Raises NotTheEndOfInputError if an op that does not read input raises OutOfRangeError."""

    def __init__(self, input_ops: Collection[str] = ()):
        """Takes the names of the ops whose OutOfRangeError is the end of the input."""
        self._input_ops = input_ops

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Watches the session's runs, including those of hooks and savers."""
        session.run = only_input_ends(session.run, self._input_ops)


def only_input_ends(run: Callable[..., Any], input_ops: Collection[str] = ()
                    ) -> Callable[..., Any]:
    """Wraps `run` to raise NotTheEndOfInputError if other ops raise OutOfRangeError."""
    def watched(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except tf.errors.OutOfRangeError as error:
            name = error.node_def.name if error.node_def else ""
            if name in input_ops or isinstance(error, NotTheEndOfInputError):
                raise
            raise readable(
                NotTheEndOfInputError(error.node_def, None, error.message),
                f"{name or 'An op'} ran out of range, which is not the end of the input: "
            ) from None

    return watched


@contextlib.contextmanager
def ops_of_input() -> Iterator[set[str]]:
    """Yields a set that afterwards has the names of the ops created within the context."""
    graph = tf.compat.v1.get_default_graph()
    before = {op.name for op in graph.get_operations()}
    names: set[str] = set()
    yield names
    names |= {op.name for op in graph.get_operations()} - before
