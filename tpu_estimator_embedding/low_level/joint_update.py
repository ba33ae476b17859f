# SPDX-License-Identifier: Apache-2.0
"""One update of the tables from the gradients of all cores.

Every core sends its gradients separately. The last core to send in a step starts the update; a
lock makes sure that exactly one core does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.low_level.core_queue import (
    DELAYED_UPDATE,
    CoreIds,
    Share,
    channel_of,
    example_ids,
    join_cores,
)
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.ops.outermost_graph import outermost_graph
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

Build = Callable[[PartitionedEmbedding], Tensor]


class Sent(NamedTuple):
    """The gradients and the step of one core.

    Attributes:
        ids: the ids whose activations have these gradients.
        gradients: table name -> `[num_rows, dim]` float32.
        step: scalar float64, the global step; exact up to 2⁵³.
        learning_rates: table name -> scalar float32, of tables whose rate depends on the step;
            zeros if they are computed from the step.
    """

    ids: CoreIds
    gradients: Mapping[str, Tensor]
    step: Tensor
    learning_rates: Mapping[str, Tensor]


class JointUpdate:
    """Collects the gradients of all cores and updates the tables once per step.

    With pipelining, an update is delayed until the gradients of the next step have arrived, so
    the activations of a step lack the update of the previous step.
    """

    def __init__(self, share: Share):
        """Creates empty queues for the gradients of every core."""
        self._share = share
        with tf.Graph().as_default():
            sent = Sent(example_ids(share).without_own(), {
                table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
                for table in share.plan.tables}, tf.compat.v1.placeholder(tf.float64, []),
                {name: tf.compat.v1.placeholder(tf.float32, [])
                 for name in _tables_with_functions(share.plan)})
        self._step_dtype = tf.int64
        self._rates_are_sent = False
        self._sent = [TensorQueue(sent, capacity=1) for _ in range(share.num_cores)]
        self._lock = tf.CriticalSection()
        self._delayed = _delayed_update(share) if share.plan.pipelined else None
        self._functions: dict[PartitionedEmbedding, Callable[[], Tensor]] = {}

    def check_sent_by_all(self, core: int) -> list[tf.Operation]:
        """Returns ops that fail if `core` has sent its gradients and another core has not."""
        return assert_that(
            tf.equal(self._sent[core].size(), 0),
            f"Gradients must be sent by all {len(self._sent)} cores in every step, got "
            f"another step of core {core} while some cores have not sent theirs. Run the ops "
            "that generate_send_gradients_op returned for all cores.")

    def add(self, core: int, ids: CoreIds, gradients: Mapping[str, Tensor], step: Tensor,
            learning_rates: Mapping[str, Tensor]) -> Build:
        """Adds the gradients of one core to the step.

        Args:
            core: index of the core.
            ids: the ids of the core.
            gradients: table name -> `[num_rows, dim]` float32.
            step: scalar number, the global step.
            learning_rates: table name -> rate, which replaces a function of the step.

        Returns:
            A function of the tables that builds the update and returns a tensor to wait for. If
            other cores have not sent their gradients yet, nothing is updated.
        """
        with tf.control_dependencies([leaf for leaf in tf.nest.flatten(ids) if tf.is_tensor(leaf)]):
            sent = self._sent_by_core(ids.without_own(), gradients, step, learning_rates)
        if len(self._sent) == 1:
            return lambda engine: self._take_alone(engine, sent)
        with tf.control_dependencies(self.check_sent_by_all(core)):
            put = self._sent[core].enqueue(sent)

        def build(engine: PartitionedEmbedding) -> Tensor:
            with tf.control_dependencies([put]):
                return self._lock.execute(lambda: self._take_if_last(engine))

        return build

    def apply_delayed(self, engine: PartitionedEmbedding) -> Tensor:
        """Applies a delayed update, if there is one; returns a tensor to wait for."""
        delayed = self._delayed
        return self._lock.execute(lambda: delayed.apply(engine)) if delayed else after()

    def apply_before_inference(self, engine: PartitionedEmbedding,
                               trains: Tensor) -> list[Tensor]:
        """Applies a delayed update before a batch for inference; returns what to wait for."""
        if self._delayed is None:
            return []
        return [tf.cond(trains, lambda: tf.constant(True), lambda: tf.identity(
            self.apply_delayed(engine)))]

    def drop_delayed(self) -> Tensor:
        """Drops a delayed update, if there is one; returns a tensor to wait for."""
        return self._lock.execute(self._delayed.drop) if self._delayed else after()

    def _take_if_last(self, engine: PartitionedEmbedding) -> Tensor:
        sizes = tf.stack([queue.size() for queue in self._sent])
        take_all = self._take_all(engine)
        return tf.cond(tf.reduce_all(sizes > 0), lambda: tf.identity(take_all()),
                       lambda: tf.constant(True))

    def _take_all(self, engine: PartitionedEmbedding) -> Callable[[], Tensor]:
        """Returns the function that updates the tables; it is built once for all cores."""
        if engine not in self._functions:
            function = tf.function(
                lambda: self._update(engine, [queue.dequeue() for queue in self._sent]),
                autograph=False, experimental_attributes={"_noinline": True})
            with outermost_graph():
                self._functions[engine] = function.get_concrete_function()
        return self._functions[engine]

    def _sent_by_core(self, ids: CoreIds, gradients: Mapping[str, Tensor], step: Tensor,
                      learning_rates: Mapping[str, Tensor]) -> Sent:
        self._step_dtype, self._rates_are_sent = step.dtype, bool(learning_rates)
        rates = learning_rates or {name: tf.zeros([])
                                   for name in _tables_with_functions(self._share.plan)}
        return Sent(ids, gradients, tf.cast(step, tf.float64), dict(rates))

    def add_all(self, ids: Sequence[CoreIds], gradients: Sequence[Mapping[str, Tensor]],
                step: Tensor, learning_rates: Mapping[str, Tensor]) -> Build:
        """Returns the function that builds the update from all cores at once; see `add`."""
        sent = [self._sent_by_core(*of_core, step, learning_rates)
                for of_core in zip(ids, gradients, strict=True)]
        if self._delayed is None:
            return lambda engine: self._update(engine, sent)

        def build(engine: PartitionedEmbedding) -> Tensor:
            # Locks after the lookups only, for which the caller and the gradients wait.
            gradients = [value for core in sent for value in core.gradients.values()]
            with tf.control_dependencies(gradients):
                return self._lock.execute(lambda: self._update(engine, sent))

        return build

    def _take_alone(self, engine: PartitionedEmbedding, sent: Sent) -> Tensor:
        if self._delayed is None:
            return self._update(engine, [sent])
        with tf.control_dependencies([sent.step]):  # locks after the lookups only
            return self._lock.execute(lambda: self._update(engine, [sent]))

    def _update(self, engine: PartitionedEmbedding, sent: Sequence[Sent]) -> Tensor:
        ids = join_cores(self._share, [core.ids for core in sent])
        gradients = {table: values[0] if len(values) == 1 else tf.concat(values, 0)
                     for table in sent[0].gradients
                     for values in [[core.gradients[table] for core in sent]]}
        # A core may have read the step after its model incremented it; the minimum is right.
        step = tf.reduce_min(tf.stack([core.step for core in sent]))
        update = engine.step_gradients(gradients, tf.cast(step, self._step_dtype),
                                       sent[0].learning_rates if self._rates_are_sent else None)
        if self._delayed is None:
            return after(engine.update(ids, update))
        return self._delayed.delay(engine, ids, update)


def _delayed_update(share: Share) -> DelayedUpdate | None:
    if not share.training:
        return None
    with tf.Graph().as_default():
        ids = join_cores(share, [example_ids(share) for _ in range(share.num_cores)])
    return DelayedUpdate(share.plan, ids, channel_of(share, DELAYED_UPDATE)
                         if share.is_of_process else None)


def _tables_with_functions(plan: EmbeddingPlan) -> list[str]:
    """Returns the tables whose learning rate is a function of the step."""
    return [table.name for table in plan.tables
            if table.optimizer and callable(table.optimizer.learning_rate)]
