# SPDX-License-Identifier: Apache-2.0
"""The end of the input: other OutOfRangeErrors must not end a session, and hooks log at the end.

A MonitoredSession treats every OutOfRangeError as the end of the input, even one raised by an op
of the model, or by a save whose file exceeds a size limit.
"""

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

import tensorflow as tf

from tpu_estimator_embedding.ops.readable_errors import readable


class NotTheEndOfInputError(tf.errors.OutOfRangeError):
    """An OutOfRangeError that has nothing to do with the input.

    A MonitoredSession lets it pass, because it checks for the exact type.
    """


# How TensorFlow's message names an op that the graph itself does not have.
_OP_OF_FUNCTION = re.compile(r"\{\{node ([^}\s]*)")


@contextlib.contextmanager
def only_input_ends(input_ops: Collection[str] = ()) -> Iterator[None]:
    """Raises NotTheEndOfInputError if an op that does not read input raises OutOfRangeError.

    What Python code raises itself ends the input: hooks do so.

    Args:
        input_ops: names of the ops whose OutOfRangeError is the end of the input.
    """
    try:
        yield
    except tf.errors.OutOfRangeError as error:
        name = _raised_by(error)
        if not name or name in input_ops or isinstance(error, NotTheEndOfInputError):
            raise
        raise readable(
            NotTheEndOfInputError(error.node_def, None, error.message),
            f"{name} ran out of range, which is not the end of the input: ") from None


def _raised_by(error: tf.errors.OpError) -> str:
    if error.node_def:
        return error.node_def.name
    found = _OP_OF_FUNCTION.search(error.message or "")
    return found[1] if found else ""


@contextlib.contextmanager
def ops_of_input() -> Iterator[set[str]]:
    """Yields a set that afterwards has the names of the ops created within the context."""
    graph = tf.compat.v1.get_default_graph()
    before = {op.name for op in graph.get_operations()}
    names: set[str] = set()
    yield names
    names |= {op.name for op in graph.get_operations()} - before


class LogAtEndHook(tf.compat.v1.train.SessionRunHook):
    """Runs a `LoggingTensorHook(at_end=True)` whose last line needs no further batch.

    That hook evaluates its tensors once more at the end. If the input has ended, this would
    fail and prevent the last checkpoint; the values of the last step are logged instead.
    """

    def __init__(self, hook: tf.compat.v1.train.LoggingTensorHook):
        """Takes the hook."""
        self._hook = hook
        self._last_values: Mapping[str, object] | None = None

    def begin(self) -> None:
        """Begins the hook."""
        self._hook.begin()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Passes on the session."""
        self._hook.after_create_session(session, coord)

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Fetches what the hook fetches, and what it would log at the end."""
        asked = self._hook.before_run(run_context) or tf.compat.v1.train.SessionRunArgs(None)
        fetches = [] if asked.fetches is None else [asked.fetches]
        return asked._replace(fetches=(fetches, self._hook._current_tensors))

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Passes on the values."""
        asked, self._last_values = run_values.results
        self._hook.after_run(run_context, run_values._replace(
            results=asked[0] if asked else None))

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the hook."""
        try:
            self._hook.end(session)
        except tf.errors.OutOfRangeError:
            if self._last_values is not None:
                self._hook._log_tensors(self._last_values)


def logging_without_input(hooks: Iterable[tf.compat.v1.train.SessionRunHook] | None
                          ) -> list[tf.compat.v1.train.SessionRunHook]:
    """Returns the hooks; those that log at the end do so even if the input has ended."""
    return [LogAtEndHook(hook) if isinstance(hook, tf.compat.v1.train.LoggingTensorHook)
            and hook._log_at_end else hook for hook in hooks or ()]
