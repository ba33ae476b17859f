# SPDX-License-Identifier: Apache-2.0
"""The ops of a `TPUEmbedding` in one graph.

The k-th call for activations, and the k-th call for an op that sends gradients, belong to core
k modulo the number of cores. Gradients belong to the batch whose activations they depend on. If
the graph has no received batch without gradients left, they belong to a batch that was enqueued
with mode_override="backward_pass_only".
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.late_variables import late_variables, set_late_variables
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.placement import THIS_PROCESS
from tpu_estimator_embedding.engine.process_variables import create_process_variables
from tpu_estimator_embedding.engine.stacked_activations import split_activations, stack_gradients
from tpu_estimator_embedding.low_level.core_queue import Batch, CoreQueue, Share
from tpu_estimator_embedding.low_level.joint_update import JointUpdate
from tpu_estimator_embedding.low_level.tied_activations import TiedActivations
from tpu_estimator_embedding.ops import replica_graphs
from tpu_estimator_embedding.ops.assertion import assert_that
from tpu_estimator_embedding.ops.graph_rewrites import set_late_tensor, wait_for
from tpu_estimator_embedding.ops.outermost_graph import outermost_graph
from tpu_estimator_embedding.ops.replica_graphs import Replicas
from tpu_estimator_embedding.types import Tensor


class Receipt(NamedTuple):
    """The first and the last op that receive one batch."""

    start: tf.Operation
    end: tf.Operation


class Received(NamedTuple):
    """A batch that all replicas of a computation receive.

    Attributes:
        sends: scalar bool, whether the computation sends gradients of the batch; a late tensor.
        sent: True, the value of `sends` once it does.
        batches: core -> its share.
        activations: of all cores.
    """

    sends: Tensor
    sent: Tensor
    batches: Mapping[int, Batch]
    activations: Sequence[Tensor]


class GraphOps:
    """The inputs and outputs of all cores, and the tables after they were created.

    Attributes:
        queues: the batches of each core.
        update: collects the gradients of all cores.
        tied: the activations of all cores that are tied to dummy variables.
    """

    def __init__(self, share: Share):
        """Creates the queues in the default graph."""
        self._plan, self._batch_size, num_cores = share.plan, share.batch_size, share.num_cores
        with tf.device(THIS_PROCESS), tf.name_scope("tpu_embedding"):
            self.queues = [CoreQueue(core, share) for core in range(num_cores)]
            self.update = JointUpdate(share)
        self.tied = TiedActivations(num_cores)
        self._receivers, self._senders = itertools.count(), itertools.count()
        self._receipts: list[list[Receipt]] = [[] for _ in range(num_cores)]
        # Of each computation for several replicas: batches without gradients yet; the last update.
        self._received: dict[Replicas, list[Received]] = {}
        self._updates: dict[Replicas, tf.Operation] = {}
        self._engine: PartitionedEmbedding | None = None
        if share.is_of_process:
            self._engine = PartitionedEmbedding(
                share.plan, create_process_variables(share.plan, share.engine))
        self._late: PartitionedEmbedding | None = None

    def receive(self) -> dict[str, Tensor]:
        """Returns feature name -> activations of the next core's next batch."""
        replicas = replica_graphs.current_for_each("get_activations")
        if replicas is not None:
            return self._receive_for_all(replicas)
        core = next(self._receivers) % len(self.queues)
        tables = self._plan.tables
        with tf.device(THIS_PROCESS), tf.name_scope(f"receive_activations_{core}"):
            start = tf.no_op()
            batch = self._next_batch(core, start)
            values = self._lookup(batch)
            with tf.control_dependencies(values):
                due = self.queues[core].set_due(batch)
            self._receipts[core].append(Receipt(start, due))
            with tf.control_dependencies([due]):
                stacked = {table.name: tf.identity(value)
                           for table, value in zip(tables, values, strict=True)}
            return split_activations(self._plan, stacked, self._batch_size)

    def send(self, gradients: Mapping[str, Tensor], step: Tensor,
             learning_rates: Mapping[str, Tensor]) -> tf.Operation:
        """Returns the op that sends the gradients of the next core's received batch.

        Args:
            gradients: feature name -> gradient, of the shape of the activation.
            step: scalar number, the global step.
            learning_rates: table name -> rate, which replaces a function of the step.
        """
        replicas = replica_graphs.current_for_each("generate_send_gradients_op")
        if replicas is not None:
            return self._send_for_all(replicas, gradients, step, learning_rates)
        core = next(self._senders) % len(self.queues)
        receipts = self._own_receipts(core, gradients.values())
        _read_before(step, receipts)
        with tf.device(THIS_PROCESS), tf.name_scope(f"send_gradients_{core}"):
            stacked = stack_gradients(self._plan, [gradients])
            queue = self.queues[core]
            with tf.control_dependencies([*stacked.values(), *(own.end for own in receipts)]):
                ids = queue.take_due() if receipts else queue.take_backward_only()
            build = self.update.add(core, ids, stacked, step, learning_rates)
            return tf.group(build(self._tables()))

    def _receive_for_all(self, replicas: Replicas) -> dict[str, Tensor]:
        """Receives a batch for each replica; returns the activations of the first one."""
        self._check_has_a_core_for_each(replicas)
        cores = replica_graphs.current_cores()
        sends = tf.identity(tf.constant(False), name="sends_gradients")  # until `send` is called
        # Made here: in `send` it would wait for what `send` waits for, such as activations.
        sent = tf.constant(True)
        # After the update of a step that was built before in the same computation.
        before = [self._updates[replicas]] if replicas in self._updates else []
        with tf.device(THIS_PROCESS), tf.name_scope("receive_activations"):
            with tf.control_dependencies(before):
                batches = [self.queues[core].receive_in_loop() for core in cores]
            is_trained = assert_that(
                tf.logical_or(sends, tf.logical_not(batches[0].trains)),
                "Gradients must be sent for a batch that was enqueued for training, got a "
                "computation without generate_send_gradients_op. Send them, or enqueue with "
                "mode_override='inference'.")
            with tf.control_dependencies(is_trained):
                found = [self._looked_up(batch) for batch in batches]
        by_replica = [list(activations.values()) for activations in found]
        self._received.setdefault(replicas, []).append(Received(
            sends, sent, dict(zip(cores, batches, strict=True)),
            list(itertools.chain(*by_replica))))
        replicas.add_inputs(by_replica)
        return found[0]

    def _looked_up(self, batch: Batch) -> dict[str, Tensor]:
        values = self._lookup(batch)
        stacked = {table.name: value
                   for table, value in zip(self._plan.tables, values, strict=True)}
        return {feature: tf.identity(activation) for feature, activation in split_activations(
            self._plan, stacked, self._batch_size).items()}

    def _lookup(self, batch: Batch) -> list[Tensor]:
        """Looks a batch up; returns the activations of each table."""
        engine = self._tables()
        with tf.control_dependencies(self.update.apply_before_inference(engine, batch.trains)):
            ids = tf.nest.map_structure(
                lambda leaf: tf.identity(leaf) if tf.is_tensor(leaf) else leaf, batch.ids.own)
        found = engine.lookup(ids)
        for table in self._plan.tables:  # late tables have no static shape
            found[table.name].set_shape([None, table.dimension])
        return [found[table.name] for table in self._plan.tables]

    def _send_for_all(self, replicas: Replicas, gradients: Mapping[str, Tensor], step: Tensor,
                      learning_rates: Mapping[str, Tensor]) -> tf.Operation:
        """Returns the op that updates the tables once, with the gradients of all replicas."""
        self._check_has_a_core_for_each(replicas)
        copies = replicas.late_copies(list(gradients.values()))
        waiting = self._received.get(replicas)
        received = waiting.pop(0) if waiting else None
        if received is not None:
            set_late_tensor(received.sends, received.sent)
        # Gradients need not depend on the activations of their batch.
        lookups = [] if received is None else received.activations
        with (tf.device(THIS_PROCESS), tf.name_scope("send_gradients"),
              tf.control_dependencies(lookups)):
            stacked = {core: stack_gradients(
                self._plan, [dict(zip(gradients, of_core, strict=True))])
                for core, of_core in zip(replica_graphs.current_cores(), copies, strict=True)}
            ids = [self.queues[core].take_backward_only() if received is None
                   else self.queues[core].trained_ids(received.batches[core])
                   for core in sorted(stacked)]
            build = self.update.add_all(ids, [stacked[core] for core in sorted(stacked)], step,
                                        learning_rates)
            self._updates[replicas] = replica_graphs.run_once(tf.group(build(self._tables())))
        return self._updates[replicas]

    def _check_has_a_core_for_each(self, replicas: Replicas) -> None:
        checks.check(replicas.num_replicas == len(self.queues), "num_shards",
                     f"the number of cores of the TPUEmbedding, {len(self.queues)}",
                     replicas.num_replicas, "Run the program with --cores, or make the "
                     "TPUEmbedding with device_config=DeviceConfig(num_hosts=1, num_cores="
                     f"{replicas.num_replicas}, job_name='/job:localhost').")

    def set_engine(self, engine: PartitionedEmbedding) -> None:
        """Connects the tables to the ops that were built before the tables existed."""
        self._engine = engine
        if self._late is not None:
            set_late_variables(self._late.variables, engine.variables)
            self._late = None

    def retrieve(self, engine: PartitionedEmbedding) -> tf.Operation:
        """Returns an op that applies delayed updates, so that the tables hold all of them."""
        with tf.device(THIS_PROCESS):
            return tf.group(self.update.apply_delayed(engine))

    def engine(self) -> PartitionedEmbedding:
        """Returns the tables.

        Raises:
            RuntimeError: if they do not exist yet.
        """
        if self._engine is None:
            raise RuntimeError("`create_variables_and_ops` must be called before tables are "
                               "loaded or retrieved, got no call in this graph.")
        return self._engine

    def load(self) -> tf.Operation:
        """Returns an op that drops delayed updates, so that the variables stay as assigned."""
        with tf.device(THIS_PROCESS):
            return tf.group(self.update.drop_delayed())

    def _next_batch(self, core: int, start: tf.Operation) -> Batch:
        before = [start]
        if len(self.queues) > 1:
            before += self.update.check_sent_by_all(core)
        with tf.control_dependencies(before):
            return self.queues[core].receive()

    def _own_receipts(self, core: int, gradients: Iterable[Tensor]) -> list[Receipt]:
        """Finds the receipts that the gradients depend on, and removes them from the list."""
        graph = tf.compat.v1.get_default_graph()
        left = [receipt for receipt in self._receipts[core] if receipt.end.graph is graph]
        needed = needed_by([gradient.op for gradient in gradients],
                           [receipt.end for receipt in left])
        # Gradients that depend on no activation, such as zeros, belong to the last receipt.
        own = [receipt for receipt in left if receipt.end in needed] or left[-1:]
        self._receipts[core] = [receipt for receipt in self._receipts[core]
                                if receipt not in own]
        return own

    def _tables(self) -> PartitionedEmbedding:
        """Returns the tables; late ones, outside of all loops, if they do not exist yet."""
        if self._engine is not None:
            return self._engine
        if self._late is None:
            with outermost_graph(), tf.name_scope("tpu_embedding"):
                self._late = PartitionedEmbedding(self._plan, late_variables(
                    self._plan, missing="create_variables_and_ops_was_not_called"))
        return self._late


def _read_before(step: Tensor, receipts: Iterable[Receipt]) -> None:
    """Reads the step before activations are received, so before the model increments it."""
    # A step from outside of a loop was read before; an edge into the loop would not be valid.
    starts = [receipt.start for receipt in receipts if receipt.start.graph is step.graph
              and _context(receipt.start) is _context(step.op)]
    if not needed_by([step.op], starts):
        for start in starts:
            wait_for(start, [step.op])


def _context(op: tf.Operation) -> Any:
    return op._get_control_flow_context()


def needed_by(operations: Iterable[tf.Operation],
              candidates: Collection[tf.Operation]) -> list[tf.Operation]:
    """Returns those of `candidates` that `operations` depend on.

    >>> with tf.Graph().as_default():
    ...     first = tf.constant(1.0)
    ...     second = tf.sqrt(first)
    ...     needed_by([second.op], [first.op]) == [first.op], needed_by([first.op], [second.op])
    (True, [])
    """
    visited: set[tf.Operation] = set()
    to_visit = list(operations)
    while to_visit:
        operation = to_visit.pop()
        if operation not in visited:
            visited.add(operation)
            to_visit += [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]
    return [operation for operation in candidates if operation in visited]
