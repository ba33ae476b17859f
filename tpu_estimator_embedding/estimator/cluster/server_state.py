# SPDX-License-Identifier: Apache-2.0
"""The state of a training that the servers of a cluster keep in addition to its variables.

* `training`, on each server: which training the variables belong to. The chief sets it when it
  has initialized or restored all variables, and removes it before it does so again. A server that
  restarts has none.
* `permit/TASK`, on each server: lets a task change variables. A trainer gets its permits when it
  starts a session; the chief removes all of them before it restores. Every op of a step that
  changes a variable first uses the task's permit on the same server, so that no step that began
  before a restore changes what was restored.
* `is_synchronous`, on the first server: whether the workers of `training` train synchronously.
* `failure`, on the first server: why a task ended the training of all, if it did.

They are resources of the servers that no Saver sees, read and written by TensorFlow's own ops.
"""

import contextlib
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import tensorflow as tf

from tpu_estimator_embedding.ops.graph_rewrites import wait_for
from tpu_estimator_embedding.types import Tensor

_PREFIX = "tpu_estimator_embedding/"
_FILE = "training_on_servers"

# On the first server: exists while a chief makes the update of all workers.
UNFINISHED_UPDATE = f"{_PREFIX}unfinished_update"
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape",
                    "VarIsInitializedOp", "TpuEmbeddingLookUp", "TpuEmbeddingFlatLookUp"})


class ServerState:
    """The ops that read and change what the servers remember, in the graph of a trainer."""

    def __init__(self, devices: Sequence[str], task: str, tasks: Iterable[str], *,
                 is_synchronous: bool):
        """Adds the ops to the current graph.

        Args:
            devices: one of each server.
            task: the name of this trainer.
            tasks: the names of all trainers of the cluster.
            is_synchronous: whether this trainer trains synchronously.
        """
        self._permit = f"{_PREFIX}permit/{task}"
        self._value = tf.compat.v1.placeholder(tf.int64, [])
        self._message = tf.compat.v1.placeholder(tf.string, [])
        failure = _variable(devices[0], f"{_PREFIX}failure", tf.string)
        self._has_failure = _at(failure, tf.raw_ops.VarIsInitializedOp, resource=failure)
        self._failure = _read(failure, tf.string)
        self._set_failure = _assign(failure, self._message)
        self._unset_failure = _destroy(failure)
        self.is_synchronous = is_synchronous
        mode = _variable(devices[0], f"{_PREFIX}is_synchronous", tf.bool)
        self._training_is_synchronous = _read(mode, tf.bool)
        self._set_mode = _assign(mode, tf.constant(is_synchronous))
        trainings = [_variable(device, f"{_PREFIX}training") for device in devices]
        permits = [_variable(device, self._permit) for device in devices]
        others = [_variable(device, f"{_PREFIX}permit/{name}")
                  for device in devices for name in tasks]
        self._are_set = [_at(training, tf.raw_ops.VarIsInitializedOp, resource=training)
                         for training in trainings]
        self._trainings = [_read(training) for training in trainings]
        self._set_trainings = [_assign(training, self._value) for training in trainings]
        self._unset_trainings = [_destroy(training) for training in trainings]
        self._set_permits = [_assign(permit, self._value) for permit in permits]
        self._unset_own_permits = [_destroy(permit) for permit in permits]
        self._unset_permits = [_destroy(permit) for permit in others]
        unfinished = _variable(devices[0], UNFINISHED_UPDATE)
        self._is_unfinished = _at(unfinished, tf.raw_ops.VarIsInitializedOp, resource=unfinished)
        self._forget_unfinished = _destroy(unfinished)

    def training(self, session: tf.compat.v1.Session) -> int | None:
        """Returns what training the variables belong to, None where not all servers agree."""
        if not all(session.run(self._are_set)):
            return None
        try:
            numbers = {int(number) for number in session.run(self._trainings)}
        except tf.errors.FailedPreconditionError:  # removed meanwhile
            return None
        return numbers.pop() if len(numbers) == 1 else None

    def training_is_synchronous(self, session: tf.compat.v1.Session) -> bool:
        """Whether the chief that started the training, if there is one, trains synchronously."""
        return bool(session.run(self._training_is_synchronous))

    def has_unfinished_update(self, session: tf.compat.v1.Session) -> bool:
        """Whether a chief died while it made an update of all workers."""
        return bool(session.run(self._is_unfinished))

    def stop_steps(self, session: tf.compat.v1.Session) -> bool:
        """Makes the steps of all trainers fail; returns whether there was a training."""
        was_set = any(session.run(self._are_set))
        session.run(self._unset_trainings)  # first, so that no worker starts on a permit
        session.run(self._unset_permits)
        return was_set

    def permit_steps(self, session: tf.compat.v1.Session) -> None:
        """Lets this trainer change variables."""
        session.run(self._set_permits, {self._value: 0})

    def end_own_step(self, session: tf.compat.v1.Session) -> bool:
        """Makes a step of this trainer, which waits for others, change nothing any more.

        Returns whether it did; False where a chief makes the update of all workers.
        """
        if self.has_unfinished_update(session):
            return False
        session.run(self._unset_own_permits)
        return not self.has_unfinished_update(session)

    def start_training(self, session: tf.compat.v1.Session, directory: str) -> None:
        """Lets all trainers start, and this one change variables."""
        number = random.SystemRandom().getrandbits(62)
        _note_training(directory, number)
        session.run(self._unset_failure)
        self.permit_steps(session)
        session.run([self._forget_unfinished, self._set_mode])
        session.run(self._set_trainings, {self._value: number})

    def fail(self, session: tf.compat.v1.Session, message: str) -> None:
        """Ends the training of all tasks, for a reason that no restart of a session removes."""
        session.run(self._set_failure, {self._message: message})
        self.stop_steps(session)

    def failure(self, session: tf.compat.v1.Session) -> str:
        """Returns why a task ended the training of all; empty if none did."""
        return session.run(self._failure).decode() if session.run(self._has_failure) else ""

    def check_permits(self, train_op: tf.Operation) -> None:
        """Makes what a step changes depend on the permit of this trainer.

        The permit is checked when all other inputs of an op have arrived, right before it runs.
        """
        permits: dict[str, Tensor] = {}
        for op in _ancestors(train_op):
            handles = [each for each in op.inputs if each.dtype == tf.resource]
            device = next((each.device for each in handles if _is_on_server(each.device)), "")
            if device and op.type not in _READS:
                permit = permits.setdefault(device, _variable(device, self._permit))
                _check_before(op, permit)

    def is_stopped_step(self, error: tf.errors.OpError) -> bool:
        """Whether an error of a step says that its permit was removed."""
        return (isinstance(error, tf.errors.FailedPreconditionError | tf.errors.NotFoundError)
                and self._permit in (error.message or ""))


def training_of(directory: str) -> int | None:
    """Returns the training that last ran in a model directory on servers, None without one."""
    try:
        with tf.io.gfile.GFile(_path(directory)) as file:
            return int(file.read())
    except (tf.errors.NotFoundError, ValueError):
        return None


def forget_training(directory: str) -> None:
    """Makes the next chief restore the last checkpoint, whatever the servers hold."""
    with contextlib.suppress(tf.errors.OpError):
        tf.io.gfile.remove(_path(directory))


def _note_training(directory: str, number: int) -> None:
    tf.io.gfile.makedirs(directory)
    unfinished = f"{_path(directory)}.tmp"
    with tf.io.gfile.GFile(unfinished, "w") as file:
        file.write(f"{number}\n")
    tf.io.gfile.rename(unfinished, _path(directory), overwrite=True)


def _path(directory: str) -> str:
    return f"{directory.rstrip('/')}/{_FILE}"


def _variable(device: str, name: str, dtype: tf.DType = tf.int64) -> Tensor:
    with tf.device(device), tf.control_dependencies(None):
        return tf.raw_ops.VarHandleOp(dtype=dtype, shape=[], shared_name=name)


_Made = TypeVar("_Made", bound="Tensor | tf.Operation")


def _at(variable: Tensor, make: Callable[..., _Made], **inputs: object) -> _Made:
    with tf.device(variable.device):
        return make(**inputs)


def _read(variable: Tensor, dtype: tf.DType = tf.int64) -> Tensor:
    return _at(variable, tf.raw_ops.ReadVariableOp, resource=variable, dtype=dtype)


def _assign(variable: Tensor, value: Tensor) -> tf.Operation:
    return _at(variable, tf.raw_ops.AssignVariableOp, resource=variable, value=value)


def _destroy(variable: Tensor) -> tf.Operation:
    return _at(variable, tf.raw_ops.DestroyResourceOp, resource=variable,
               ignore_lookup_error=True)


def _check_before(op: tf.Operation, permit: Tensor) -> None:
    with tf.device(permit.device), tf.control_dependencies(None):
        arrived = [tf.identity(each).op for each in op.inputs if each.dtype != tf.resource]
        one = tf.constant(1, tf.int64)
    with tf.control_dependencies([*arrived, *op.control_inputs]):
        # Counts, because TensorFlow drops a read that is not used, and the addition of 0.
        used = _at(permit, tf.raw_ops.AssignAddVariableOp, resource=permit, value=one)
    wait_for(op, [used])


def _is_on_server(device: str) -> bool:
    return tf.DeviceSpec.from_string(device or "").job == "ps"


def _ancestors(op: tf.Operation) -> list[tf.Operation]:
    found, left = {op}, [op]
    while left:
        current = left.pop()
        for other in (*(each.op for each in current.inputs), *current.control_inputs):
            if other not in found:
                found.add(other)
                left.append(other)
    return sorted(found, key=lambda each: each.name)
