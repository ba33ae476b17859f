# SPDX-License-Identifier: Apache-2.0
"""Synchronous training: one update of the sum over all workers, in the graph of a worker's step.

    worker                      server of host h            chief
    ids, gradients of rows ───▶ slots of the worker
    gradients of the model ───▶ slots (first server)
    tag: all is sent ─────────────────────────────────────▶ waits for all tags
                                merge slots, sort, update ◀─ go on
                                                            sum, apply, count the step
    waits for the chief ◀─────────────────────────────────── step is done

Every sum is in the order of the workers, whose rows of activations follow each other as those of
the replicas of one process do.
"""

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat.stubs import tpu_ops
from tpu_estimator_embedding.engine.partitioned_embedding import PartitionedEmbedding
from tpu_estimator_embedding.engine.step import StepGradients, StepIdsOnServers
from tpu_estimator_embedding.estimator.cluster.server_slots import ServerSlots
from tpu_estimator_embedding.estimator.cluster.servers import LINE_SECONDS
from tpu_estimator_embedding.estimator.cluster.tasks import Workers
from tpu_estimator_embedding.estimator.replicas.replicate_step import cross_replica_sums
from tpu_estimator_embedding.ops.graph_rewrites import count_after, set_input
from tpu_estimator_embedding.ops.graph_walk import ops_run_by
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor

_SUMS = "sums"
_POLL_SECONDS = 0.1


class SynchronousHook(tf.compat.v1.train.SessionRunHook):
    """Starts the chief's life, and logs which workers a step waits for.

    A worker that restarts after it has sent a step does not send it again: the chief may be
    making its update.
    """

    def __init__(self, workers: Workers, slots: ServerSlots):
        """Adds the ops that the hook runs to the current graph."""
        self._workers = workers
        step = tf.compat.v1.train.get_global_step()
        with tf.control_dependencies(None):  # a dependency on lookups would take a batch
            self._new_life = tf.compat.v1.placeholder(tf.int64, [])
            self._start_life = slots.start_life(self._new_life)
            self._time_out = slots.time_out()
            self._has_life = slots.has_life()
            self._current = slots.current(step.read_value())
            self._tags = [slots.tag(number) for number in range(workers.size)]
        self._last_step = time.monotonic()
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    def after_create_session(self, session: tf.compat.v1.Session,
                             coord: tf.train.Coordinator) -> None:
        """Starts the life of a chief; lets a worker wait for it, and for a step that it sent."""
        self._end_watch()
        if self._workers.is_chief:
            life = random.SystemRandom().getrandbits(62)
            session.run(self._start_life, {self._new_life: life})
        else:
            self._wait_for_turn(session, coord)
        self._last_step = time.monotonic()
        self._stop = threading.Event()
        self._watcher = threading.Thread(target=self._watch, args=(session, self._stop),
                                         name="synchronous", daemon=True)
        self._watcher.start()

    def after_run(self, run_context: tf.compat.v1.train.SessionRunContext,
                  run_values: tf.compat.v1.train.SessionRunValues) -> None:
        """Notes the time of a step."""
        self._last_step = time.monotonic()

    def end(self, session: tf.compat.v1.Session) -> None:
        """Ends the watch."""
        self._end_watch()

    def _wait_for_turn(self, session: tf.compat.v1.Session, coord: tf.train.Coordinator) -> None:
        while not coord.should_stop():
            if session.run(self._has_life):
                current, tag = session.run([self._current, self._tags[self._workers.number]])
                if tag.tolist() != current.tolist():
                    return
            time.sleep(_POLL_SECONDS)

    def _end_watch(self) -> None:
        self._stop.set()
        if self._watcher and self._watcher is not threading.current_thread():
            self._watcher.join(timeout=1)

    def _watch(self, session: tf.compat.v1.Session, stop: threading.Event) -> None:
        next_line = LINE_SECONDS
        while not stop.wait(_POLL_SECONDS):
            seconds = time.monotonic() - self._last_step
            if seconds < LINE_SECONDS:
                next_line = LINE_SECONDS
            elif seconds >= next_line:
                next_line += LINE_SECONDS
                try:
                    self._say(session, seconds)
                except (tf.errors.OpError, RuntimeError):  # the session is over
                    return

    def _say(self, session: tf.compat.v1.Session, seconds: float) -> None:
        current, tags = session.run([self._current, self._tags])
        missing = [name for name, tag in zip(self._workers.names[1:], tags[1:], strict=True)
                   if tag.tolist() != current.tolist()]
        if not self._workers.is_chief:
            missing = missing or [self._workers.names[0]]
        is_over = seconds >= self._workers.timeout_seconds
        tf.compat.v1.logging.warning(
            "tpu_estimator_embedding: step %d has waited %.0f s for %s%s", current[1], seconds,
            ", ".join(missing) or "this task",
            ", longer than timeout_seconds: training fails" if is_over else "")
        if is_over and missing and self._workers.is_chief:
            session.run(self._time_out)


class SynchronousStep(NamedTuple):
    """A step of a worker.

    Attributes:
        train_op: what the worker runs instead of the model's train_op.
        hook: what its session needs.
    """

    train_op: tf.Operation
    hook: SynchronousHook


def synchronize(workers: Workers, engine: PartitionedEmbedding, ids: StepIdsOnServers | None,
                gradients: StepGradients | None, train_op: tf.Operation,
                step: Tensor) -> SynchronousStep:
    """Makes a step one of all workers.

    Args:
        workers: of the cluster.
        engine: the tables.
        ids: of the step; None without tables.
        gradients: of the step; None without tables.
        train_op: the model's.
        step: the global step before it is counted.

    Raises:
        ValueError: if the model does not sum its gradients over replicas, or computes gradients
            from such a sum.
    """
    slots = ServerSlots(workers)
    sums = _sums_of_update(train_op)
    host_steps = [] if ids is None or gradients is None else [
        ids.host_step(engine.plan, gradients, host)
        for host in range(len(workers.servers))
        if any(host < len(engine.plan.rows_per_host(table)) for table in engine.plan.tables)]
    places = [(tensors_of(host_step), workers.servers[host], f"host{host}")
              for host, host_step in enumerate(host_steps)]
    places.append(([op.inputs[0] for op in sums], workers.servers[0], _SUMS))
    current = slots.current(step)
    hook = SynchronousHook(workers, slots)
    if not workers.is_chief:
        sent = [write for place in places for write in slots.send(*place)]
        with tf.control_dependencies(sent):
            said = slots.say_sent(current)
        with tf.control_dependencies([said]):
            return SynchronousStep(slots.wait_for_chief(current), hook)
    own = [tensor.op for values, _, _ in places for tensor in values]
    with tf.control_dependencies(own):
        waited = slots.wait_for_all(current)
    with tf.control_dependencies([waited]):
        begun = slots.begin_update(current)
    with tf.control_dependencies([begun]):
        others = {place: [slots.read(number, values, device, place)
                          for number in range(1, workers.size)]
                  for values, device, place in places}
        for position, op in enumerate(sums):
            _add_to_sum(op, [values[position] for values in others[_SUMS]])
    updates = [write for host, host_step in enumerate(host_steps)
               if ids is not None
               for write in _update_host(engine, workers, ids, host, host_step,
                                         others[f"host{host}"])]
    count_after(updates, train_op)  # then workers read new rows
    with tf.control_dependencies([train_op, *updates]):
        ended = slots.end_update()
    with tf.control_dependencies([ended]):
        return SynchronousStep(slots.say_done(current), hook)


def _sums_of_update(train_op: tf.Operation) -> list[tf.Operation]:
    """Returns the cross-replica sums that the model's update is made of."""
    needed = ops_run_by([train_op])
    sums = [op for op in cross_replica_sums() if op in needed]
    checks.check_with_sentence(
        bool(sums), "CrossShardOptimizer must be used for model training on TPUs. model_fn must "
        "sum its gradients over replicas where workers train synchronously, got no cross-replica "
        "sum.", "Wrap its optimizer in tf.compat.v1.tpu.CrossShardOptimizer.")
    before = ops_run_by([op.inputs[0].op for op in sums])
    nested = [op.name for op in sums
              if op in before or len(tpu_ops.group_assignment(op) or [()]) > 1
              or tpu_ops.exchange(op)]
    checks.check_with_sentence(
        not nested, "Where workers train synchronously, cross_replica_sum must sum gradients, over "
        f"all replicas, got {nested}.", "Normalize per worker, or train in one process.")
    return sums


def _add_to_sum(op: tf.Operation, others: Sequence[Tensor]) -> None:
    parts = [op.inputs[0], *others]
    set_input(op, 0, tf.concat(parts, 0) if tpu_ops.is_gathered(op) else tf.add_n(parts))


def _update_host(engine: PartitionedEmbedding, workers: Workers, ids: StepIdsOnServers, host: int,
                 own: Any, others: Sequence[Sequence[Tensor]]) -> list[tf.Operation]:
    plan = engine.plan
    with tf.device(workers.servers[host]):
        merged = ids.merged(plan, host, [own, *(with_tensors(own, values)
                                                for values in others)])
    return ids.update_host(plan, engine.variables, host, merged)
