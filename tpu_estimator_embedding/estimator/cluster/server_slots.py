# SPDX-License-Identifier: Apache-2.0
"""What workers leave on the servers during a step, and how they wait for each other.

On every server, each worker has slots for the tensors of its current step: variables that no
Saver sees. The first server also has

* the *life*, a random number that the chief sets when it starts or restarts,
* the *tag* of each worker: life and step of the last gradients that it has completely sent,
* a queue of tags, which wakes the chief up, and a queue for each worker, which wakes that up.

A tag counts only if life and step are the current ones: a repeated send overwrites the same
slots, a stale message is ignored, and none is needed twice. All waits are TensorFlow's blocking
`dequeue`, which ends with an error if the server or the session does.
"""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.ops import while_v2

from tpu_estimator_embedding.estimator.cluster.server_state import UNFINISHED_UPDATE
from tpu_estimator_embedding.estimator.cluster.tasks import Workers
from tpu_estimator_embedding.types import Tensor

_PREFIX = "tpu_estimator_embedding/synchronous"
_NO_LIMIT = -1
_TIMED_OUT = -1  # instead of the number of a worker
_NO_STEP = -1


class ServerSlots:
    """The ops of a worker on what is on the servers."""

    def __init__(self, workers: Workers):
        """Adds handles and queues to the current graph."""
        self._workers = workers
        self._home = workers.servers[0]
        with tf.device(self._home), tf.control_dependencies(None):
            self._life = _handle(tf.int64, "life", [])
            self._tags = [_handle(tf.int64, f"tag/{number}", [2])
                          for number in range(workers.size)]
            self._unfinished = tf.raw_ops.VarHandleOp(dtype=tf.int64, shape=[2],
                                                      shared_name=UNFINISHED_UPDATE)
            self._sent = _queue("sent", 3)
            self._done = [_queue(f"done/{number}", 2) for number in range(workers.size)]

    def send(self, values: Sequence[Tensor], device: str, place: str) -> list[tf.Operation]:
        """Writes the tensors of this worker's step to its slots at a place on a server."""
        with tf.device(device):
            return [tf.raw_ops.AssignVariableOp(
                resource=self._slot(self._workers.number, value.dtype, place, position),
                value=value) for position, value in enumerate(values)]

    def read(self, worker: int, like: Sequence[Tensor], device: str, place: str) -> list[Tensor]:
        """Returns what a worker wrote; it wrote tensors of the same dtypes and static shapes."""
        values = []
        with tf.device(device):
            for position, own in enumerate(like):
                handle = self._slot(worker, own.dtype, place, position)
                values.append(tf.raw_ops.ReadVariableOp(resource=handle, dtype=own.dtype))
                values[-1].set_shape(own.shape)
        return values

    def current(self, step: Tensor) -> Tensor:
        """Returns life and step, `[2]` int64."""
        with tf.device(self._home):
            life = tf.raw_ops.ReadVariableOp(resource=self._life, dtype=tf.int64)
            return tf.stack([tf.ensure_shape(life, []), tf.cast(step, tf.int64)])

    def say_sent(self, current: Tensor) -> tf.Operation:
        """Sets this worker's tag, and wakes up the chief. Everything must have been sent."""
        number = self._workers.number
        with tf.device(self._home):
            tag = tf.raw_ops.AssignVariableOp(resource=self._tags[number], value=current)
            with tf.control_dependencies([tag]):
                return self._sent.enqueue(tf.concat([[tf.constant(number, tf.int64)], current], 0))

    def wait_for_all(self, current: Tensor) -> tf.Operation:
        """Waits until all other workers have sent the step; fails after `time_out` ran."""
        workers = tf.range(self._workers.size, dtype=tf.int64)

        def is_waiting(is_there: Tensor, number: Tensor) -> Tensor:
            return tf.logical_and(tf.not_equal(number, _TIMED_OUT),
                                  tf.logical_not(tf.reduce_all(is_there)))

        def take(is_there: Tensor, number: Tensor) -> list[Tensor]:
            del number
            message = self._sent.dequeue()
            is_current = tf.reduce_all(tf.equal(message[1:], current))
            arrived = tf.logical_and(is_current, tf.equal(workers, message[0]))
            return [tf.logical_or(is_there, arrived), message[0]]

        with tf.device(self._home):
            _, number = while_v2.while_loop(is_waiting, take, [
                tf.equal(workers, self._workers.number), tf.constant(0, tf.int64)])
            return tf.raw_ops.Assert(condition=tf.not_equal(number, _TIMED_OUT), data=[
                "A synchronous step waited for a worker longer than timeout_seconds of its "
                "ClusterConfig. The log names the worker."])

    def wait_for_chief(self, current: Tensor) -> tf.Operation:
        """Waits until the chief has made the update of the step, or has a new life."""
        def is_waiting(done: Tensor) -> Tensor:
            return tf.logical_and(tf.equal(done[0], current[0]),
                                  tf.not_equal(done[1], current[1]))

        with tf.device(self._home):
            first = tf.stack([current[0], tf.constant(_NO_STEP, tf.int64)])
            return while_v2.while_loop(
                is_waiting, lambda _: [self._done[self._workers.number].dequeue()], [first],
                return_same_structure=True)[0].op

    def begin_update(self, current: Tensor) -> tf.Operation:
        """Notes that an update is under way: a chief that dies now leaves parts of it."""
        with tf.device(self._home):
            return tf.raw_ops.AssignVariableOp(resource=self._unfinished, value=current)

    def end_update(self) -> tf.Operation:
        """Notes that an update is complete."""
        with tf.device(self._home):
            return tf.raw_ops.DestroyResourceOp(resource=self._unfinished)

    def say_done(self, current: Tensor) -> tf.Operation:
        """Wakes up all other workers, after an update."""
        with tf.device(self._home):
            return tf.group(*(queue.enqueue([current]) for number, queue in enumerate(self._done)
                              if number != self._workers.number))

    def start_life(self, life: Tensor) -> tf.Operation:
        """Starts a new life of the chief: steps that others wait for begin again."""
        with tf.device(self._home):
            set_life = tf.raw_ops.AssignVariableOp(resource=self._life, value=life)
            with tf.control_dependencies([set_life]):
                return self.say_done(tf.stack([life, tf.constant(_NO_STEP, tf.int64)]))

    def time_out(self) -> tf.Operation:
        """Makes a waiting chief fail."""
        with tf.device(self._home):
            return self._sent.enqueue([tf.constant([_TIMED_OUT] * 3, tf.int64)])

    def has_life(self) -> Tensor:
        """Whether the chief has started, on servers that were not restarted since."""
        with tf.device(self._home):
            return tf.raw_ops.VarIsInitializedOp(resource=self._life)

    def tag(self, number: int) -> Tensor:
        """Returns life and step of what a worker has sent last, -1 if it has sent nothing."""
        handle = self._tags[number]
        with tf.device(self._home):
            return tf.cond(
                tf.raw_ops.VarIsInitializedOp(resource=handle),
                lambda: tf.ensure_shape(
                    tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.int64), [2]),
                lambda: tf.constant([_NO_STEP, _NO_STEP], tf.int64))

    def _slot(self, worker: int, dtype: tf.DType, place: str, position: int) -> Tensor:
        with tf.control_dependencies(None):
            return _handle(dtype, f"slot/{worker}/{place}/{position}", None)


def _handle(dtype: tf.DType, name: str, shape: list[int] | None) -> Tensor:
    return tf.raw_ops.VarHandleOp(dtype=dtype, shape=tf.TensorShape(shape),
                                  shared_name=f"{_PREFIX}/{name}")


def _queue(name: str, size: int) -> tf.queue.QueueBase:
    return tf.queue.FIFOQueue(_NO_LIMIT, [tf.int64], shapes=[[size]],
                              shared_name=f"{_PREFIX}/{name}")
