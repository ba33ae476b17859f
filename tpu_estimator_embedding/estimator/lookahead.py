# SPDX-License-Identifier: Apache-2.0
"""Pipelined execution: the lookup of step n + 1 comes before the update of step n.

    run 0        look up 1
    run n        model n · look up n + 1 · update n

The activations of a step miss the update of the step before, exactly as when a TPU's
embedding engine and its tensor cores work at the same time. Every run ends with its own
update, so tables are complete between steps.
"""

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.estimator.step_input import StepInput
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


class Lookahead:
    """Holds the step whose activations were looked up in the run before.

    Attributes:
        step_input: the input of the step to compute now.
        stacked: table name -> its activations `[num_rows, dim]`.
    """

    def __init__(self, plan: EmbeddingPlan, step_input: StepInput):
        """Makes room for steps like `step_input`."""
        stacked = {table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
                   for table in plan.tables}
        self._queue = TensorQueue((step_input, stacked), capacity=2)
        self.step_input, self.stacked = self._queue.dequeue()

    def look_up(self, engine: PartitionedEmbedding, next_input: StepInput) -> tf.Operation:
        """Returns the op that looks up the next step and keeps it for the next run."""
        return self._queue.enqueue((next_input, engine.lookup(next_input.ids)))

    def hook(self, look_up: tf.Operation, next_input: StepInput) -> "LookaheadHook":
        """Returns the hook that looks the first step up and stops after the last one."""
        return LookaheadHook(self._queue, look_up, next_input, self.step_input)


class LookaheadHook(tf.compat.v1.train.SessionRunHook):
    """Keeps one looked-up step ready, and stops the session when none is left."""

    def __init__(self, queue: TensorQueue, look_up: tf.Operation, next_input: StepInput,
                 step_input: StepInput):
        """Takes the parts of a `Lookahead`, in its graph."""
        self._size = queue.queue.size()
        self._close = queue.queue.close()
        self._discard = step_input.exists
        self._look_up = look_up
        self._next_exists = next_input.exists

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Looks the first step up; a session made again starts afresh."""
        try:
            self._fill(session)
        except tf.errors.OpError:
            coord.raise_requested_exception()  # what was wrong with the input comes first
            raise

    def before_run(self, run_context: tf.compat.v1.train.SessionRunContext
                   ) -> tf.compat.v1.train.SessionRunArgs:
        """Makes good for a step that another hook's run has taken."""
        if run_context.session.run(self._size) == 0:
            self._fill(run_context.session)
        return tf.compat.v1.train.SessionRunArgs(self._next_exists)

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Stops when the input has ended."""
        if not run_values.results:
            run_context.request_stop()

    def _fill(self, session: tf.compat.v1.Session) -> None:
        _, exists = session.run([self._look_up, self._next_exists])
        if not exists:
            session.run(self._discard)
            session.run(self._close)  # so that the step ends as at the end of any input
