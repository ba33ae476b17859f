# SPDX-License-Identifier: Apache-2.0
"""The start of a session: what it waits for, log lines while it is slow, no garbage collection.

`add_ready_ops` reports which variables are not initialized from ops that exist. By default a
Scaffold adds one more op for every variable and report.
"""

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator

import tensorflow as tf
from tensorflow.python.ops import resources

from tpu_estimator_embedding.compat.pause_gc import pause_gc
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

PATIENCE_SECONDS = 5.0
_DEVICE_VARIABLE = "TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING"  # TensorFlow's


@contextlib.contextmanager
def log_slow_start(plan: EmbeddingPlan) -> Iterator["SlowStartHook"]:
    """Yields the hook for a session; if the session fails to start, nothing keeps running."""
    hook = SlowStartHook(plan)
    try:
        yield hook
    finally:
        hook.stop()


class SlowStartHook(tf.compat.v1.train.SessionRunHook):
    """Logs what a slow session start is doing, and when it is ready."""

    def __init__(self, plan: EmbeddingPlan):
        """Takes the tables."""
        self._what = _describe(plan)
        self._has_tables = bool(plan.tables)
        self._timer = threading.Timer(PATIENCE_SECONDS, self._say)
        self._timer.daemon = True
        self._start = 0.0

    def begin(self) -> None:
        """Starts the timer."""
        self._start = time.monotonic()
        if self._has_tables:
            self._timer.start()

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Logs the time of a slow start; sessions that follow a fault are not starts."""
        self.stop()
        seconds = time.monotonic() - self._start
        self._start = float("inf")
        if seconds > PATIENCE_SECONDS and self._has_tables:
            _log(f"{self._what} are ready after {seconds:.0f} s")

    def stop(self) -> None:
        """Stops logging."""
        self._timer.cancel()
        if self._timer.is_alive():
            self._timer.join()

    def _say(self) -> None:
        _log(f"initializing or restoring {self._what} ...")


def _describe(plan: EmbeddingPlan) -> str:
    """Returns a description of the tables and slots.

    >>> _describe(EmbeddingPlan.build([], []))
    '0 tables and their slots (0.0 GB)'
    """
    values = sum(table.vocabulary_size * table.dimension * (1 + len(table.slot_initial_values))
                 for table in plan.tables)
    number = len(plan.tables)
    tables = "1 table and its" if number == 1 else f"{number} tables and their"
    return f"{tables} slots ({4 * values / 1e9:.1f} GB)"


def _log(line: str) -> None:
    tf.compat.v1.logging.info("tpu_estimator_embedding: %s", line)


@contextlib.contextmanager
def pause_gc_until_started() -> Iterator["ResumeGcHook"]:
    """Yields the hook for a session; no garbage is collected until the session is ready.

    A graph is made of many objects that stay, so it starts collections that free nothing and
    visit all objects of TensorFlow.
    """
    with contextlib.ExitStack() as pause:
        pause.enter_context(pause_gc())
        yield ResumeGcHook(pause)


class ResumeGcHook(tf.compat.v1.train.SessionRunHook):
    """Ends the pause when the session is ready."""

    def __init__(self, pause: contextlib.ExitStack):
        """Takes the pause."""
        self._pause = pause

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Ends the pause."""
        self._pause.close()


def add_ready_ops() -> None:
    """Adds the reports of uninitialized variables, of those that exist, where a Scaffold looks.

    They are those of its `ready_op` and `ready_for_local_init_op`; a program's own ones stay.
    """
    v1 = tf.compat.v1
    keys = v1.GraphKeys
    of_all = [*v1.global_variables(), *v1.local_variables()]
    for key, variables, others in (
            (keys.READY_OP, of_all, [*resources.shared_resources(), *resources.local_resources()]),
            (keys.READY_FOR_LOCAL_INIT_OP, v1.global_variables(), resources.shared_resources())):
        if not v1.get_collection(key):
            v1.add_to_collection(key, tf.concat(
                [_uninitialized(variables), resources.report_uninitialized_resources(others)], 0))


def _uninitialized(variables: Iterable[tf.Variable]) -> Tensor:
    """Returns the names of the variables that are not initialized."""
    variables = list(variables)
    if not variables:
        return tf.constant([], tf.string)
    are_initialized = [_is_initialized(variable) for variable in variables]
    with tf.device(os.environ.get(_DEVICE_VARIABLE, "/cpu:0")):
        return tf.boolean_mask(tf.constant([variable.op.name for variable in variables]),
                               tf.logical_not(tf.stack(are_initialized)))


def _is_initialized(variable: tf.Variable) -> Tensor:
    """Returns the output of the op that a resource variable was made with, or of a new op."""
    if variable.op.type == "VarHandleOp":
        own = f"{variable.op.name}/IsInitialized/"
        for op in variable.handle.consumers():
            if op.type == "VarIsInitializedOp" and op.name.startswith(own):
                return op.outputs[0]
    return tf.compat.v1.is_variable_initialized(variable)
