# SPDX-License-Identifier: Apache-2.0
"""Pipelined execution: the lookup of step n + 1 comes before the update of step n.

    run 0        look up 1
    run n        model n · look up n + 1 · update n

The activations of a step do not include the update of the previous step, exactly as when a
TPU's embedding engine and its TensorCores run in parallel. Every run ends with its own update,
so tables are complete between steps.
"""

import tensorflow as tf

from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.stacked_activations import split_replicas
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.estimator.input.step_input import StepInput
from tpu_estimator_embedding.estimator.step.step_lookup import LookedUp
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class Lookahead:
    """Holds the step whose activations were looked up in the previous run.

    Only looking up the next step replaces it: a run that fetches a loss without training
    uses the step that is trained on next.

    Attributes:
        step_input, first: see `StepLookup`.
    """

    def __init__(self, plan: EmbeddingPlan, next_input: StepInput):
        """Creates a queue for steps like `next_input`."""
        self._next_input = next_input
        stacked = {table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
                   for table in plan.tables}
        self._queue = TensorQueue((next_input, stacked), capacity=1)
        taken = self._queue.dequeue()
        self._put_back = self._queue.enqueue(taken)
        with tf.control_dependencies([self._put_back]):
            self.step_input, stacked = tf.nest.map_structure(
                lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf, taken,
                expand_composites=True)
        self._replicas = split_replicas(plan, stacked, self.step_input.ids,
                                        len(next_input.replicas))
        self.first = self._replicas[0]

    def lookup(self, engine: PartitionedEmbedding) -> LookedUp:
        """Looks up the next step, if there is one, and keeps it."""
        with tf.device(THIS_PROCESS):
            return self._look_up_next(engine)

    def _look_up_next(self, engine: PartitionedEmbedding) -> LookedUp:
        next_input = self._next_input

        def keep() -> tf.Operation:
            return self._queue.enqueue((next_input, engine.lookup(next_input.ids)))

        def replace() -> tf.Operation:
            with tf.control_dependencies([self._queue.drop()]):
                return keep()

        # Inside the branch: the marker of the end of the input cannot be looked up.
        keep_first = tf.cond(next_input.exists, keep, tf.no_op)
        with tf.control_dependencies([self._put_back]):
            kept = tf.cond(next_input.exists, replace, tf.no_op)
        return LookedUp(self._replicas, [kept],
                        hooks=(LookaheadHook(self._queue, keep_first, next_input),))


class LookaheadHook(tf.compat.v1.train.SessionRunHook):
    """Looks up the first step. The hook that feeds the input handles its end."""

    def __init__(self, queue: TensorQueue[tuple[StepInput, dict[str, Tensor]]],
                 keep_first: tf.Operation, next_input: StepInput):
        """Takes the parts of a `Lookahead`, in its graph."""
        self._size, self._drop, self._close = queue.size(), queue.drop(), queue.close()
        self._keep_first = keep_first
        self._first_exists = next_input.exists

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Looks up the first step, again if the session was recreated."""
        if session.run(self._size):  # on a server, a queue survives the session
            session.run(self._drop)
        try:
            _, exists = session.run([self._keep_first, self._first_exists])
        except tf.errors.OpError as error:
            coord.request_stop(error)  # unless the input failed before
            coord.join()  # nothing else does where a session is not finished; raises
            raise
        if not exists:
            session.run(self._close)  # so that no thread waits for a step
