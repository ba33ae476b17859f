# SPDX-License-Identifier: Apache-2.0
"""One update of the tables from the gradients of all cores.

Every core sends its gradients on its own. Those of the core that comes last, whichever it
is, start the update of the step; a lock makes sure that exactly one of them does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.delayed_update import DelayedUpdate
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.ordering import after
from tpu_estimator_embedding.types import Tensor
from tpu_estimator_embedding.v1_engine.core_ids import CoreIds, Share, example_ids, join_cores

Build = Callable[[PartitionedEmbedding], Tensor]


class Sent(NamedTuple):
    """The gradients and the step of one core.

    Attributes:
        ids: what the gradients are of the activations of.
        gradients: table name -> `[num_rows, dim]` float32.
        step: scalar float64, the global step: exact up to 2⁵³, whatever its own dtype.
    """

    ids: CoreIds
    gradients: Mapping[str, Tensor]
    step: Tensor


class JointUpdate:
    """Collects the gradients of all cores and updates the tables once per step.

    Pipelined, an update is put off until the gradients of the step after are there, so
    that the activations of a step miss the update of the step before.
    """

    def __init__(self, share: Share):
        """Makes room for the gradients of such shares."""
        self._share = share
        with tf.Graph().as_default():
            sent = Sent(example_ids(share).without_own(), {
                table.name: tf.compat.v1.placeholder(tf.float32, [None, table.dimension])
                for table in share.plan.tables}, tf.compat.v1.placeholder(tf.float64, []))
        self._step_dtype = tf.int64
        self._sent = [TensorQueue(sent, capacity=1) for _ in range(share.num_cores)]
        self._lock = tf.CriticalSection()
        self._put_off = _delayed_update(share) if share.plan.pipelined else None
        self._functions: dict[PartitionedEmbedding, Callable[[], Tensor]] = {}

    def check_sent_by_all(self, core: int) -> list[tf.Operation]:
        """Returns ops that fail while gradients of `core` wait for those of other cores."""
        return assert_that(
            tf.equal(self._sent[core].queue.size(), 0),
            f"Gradients must be sent by all {len(self._sent)} cores in every step, got "
            f"another step of core {core} while some cores have not sent theirs. Run what "
            "generate_send_gradients_op returned for every core.")

    def add(self, core: int, ids: CoreIds, gradients: Mapping[str, Tensor],
            step: Tensor) -> Build:
        """Adds the gradients of one core to the step.

        Args:
            core: number of the core.
            ids: the ids of the core.
            gradients: table name -> `[num_rows, dim]` float32.
            step: scalar number, the global step.

        Returns:
            A function of the tables that builds the update, and returns a tensor that
            exists when it is done: at once where other cores are still to come.
        """
        self._step_dtype = step.dtype
        with tf.control_dependencies([leaf for leaf in tf.nest.flatten(ids) if tf.is_tensor(leaf)]):
            sent = Sent(ids.without_own(), gradients, tf.cast(step, tf.float64))
        if len(self._sent) == 1:
            return lambda engine: self._take_alone(engine, sent)
        with tf.control_dependencies(self.check_sent_by_all(core)):
            put = self._sent[core].enqueue(sent)

        def build(engine: PartitionedEmbedding) -> Tensor:
            with tf.control_dependencies([put]):
                return self._lock.execute(lambda: self._take_if_last(engine))

        return build

    def finish(self, engine: PartitionedEmbedding) -> Tensor:
        """Applies an update that is put off; returns a tensor that exists when it is."""
        put_off = self._put_off
        return self._lock.execute(lambda: put_off.apply(engine)) if put_off else after()

    def forget(self) -> Tensor:
        """Drops an update that is put off; returns a tensor that exists when it is."""
        return self._lock.execute(self._put_off.drop) if self._put_off else after()

    def _take_if_last(self, engine: PartitionedEmbedding) -> Tensor:
        sizes = tf.stack([queue.queue.size() for queue in self._sent])
        take_all = self._take_all(engine)
        return tf.cond(tf.reduce_all(sizes > 0), lambda: tf.identity(take_all()),
                       lambda: tf.constant(True))

    def _take_all(self, engine: PartitionedEmbedding) -> Callable[[], Tensor]:
        """Returns a function that is built once, however many cores may call it."""
        if engine not in self._functions:
            function = tf.function(
                lambda: self._update(engine, [queue.dequeue() for queue in self._sent]),
                autograph=False, experimental_attributes={"_noinline": True})
            with tf.init_scope():
                self._functions[engine] = function.get_concrete_function()
        return self._functions[engine]

    def _take_alone(self, engine: PartitionedEmbedding, sent: Sent) -> Tensor:
        if self._put_off is None:
            return self._update(engine, [sent])
        with tf.control_dependencies([sent.step]):  # thus after the lookups
            return self._lock.execute(lambda: self._update(engine, [sent]))

    def _update(self, engine: PartitionedEmbedding, sent: Sequence[Sent]) -> Tensor:
        ids = join_cores(self._share, [core.ids for core in sent])
        gradients = {table: values[0] if len(values) == 1 else tf.concat(values, 0)
                     for table in sent[0].gradients
                     for values in [[core.gradients[table] for core in sent]]}
        # A core whose model has counted the step already read it later than the others.
        step = tf.reduce_min(tf.stack([core.step for core in sent]))
        update = engine.step_gradients(gradients, tf.cast(step, self._step_dtype))
        if self._put_off is None:
            return after(engine.update(ids, update))
        return self._put_off.delay(engine, ids, update)


def _delayed_update(share: Share) -> DelayedUpdate | None:
    if not share.training:
        return None
    with tf.Graph().as_default():
        ids = join_cores(share, [example_ids(share) for _ in range(share.num_cores)])
    return DelayedUpdate(share.plan, ids)
