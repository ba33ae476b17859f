# SPDX-License-Identifier: Apache-2.0
"""Only the end of the input ends a session; other errors of its kind are errors.

A MonitoredSession takes every OutOfRangeError for the end of the input: that of a model's op,
and that of a save where a file grows beyond its limit.
"""

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.ops.readable_errors import readable


class NotTheEndOfInputError(tf.errors.OutOfRangeError):
    """An OutOfRangeError that has nothing to do with the input.

    A MonitoredSession lets it pass, because it asks for the type itself.
    """


class OnlyInputEnds(tf.compat.v1.train.SessionRunHook):
    """Raises NotTheEndOfInputError where an op runs out of range that does not read input."""

    def __init__(self, input_ops: Collection[str] = ()):
        """Takes the names of the ops whose OutOfRangeError is the end of the input."""
        self._input_ops = input_ops

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Watches the session's runs, those of hooks and savers too."""
        session.run = only_input_ends(session.run, self._input_ops)


def only_input_ends(run: Callable[..., Any], input_ops: Collection[str] = ()
                    ) -> Callable[..., Any]:
    """Returns `run`; it raises NotTheEndOfInputError where other ops run out of range."""
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
    """Passes a set that afterwards has the names of the ops that were made meanwhile."""
    graph = tf.compat.v1.get_default_graph()
    before = {op.name for op in graph.get_operations()}
    names: set[str] = set()
    yield names
    names |= {op.name for op in graph.get_operations()} - before
