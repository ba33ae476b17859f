# SPDX-License-Identifier: Apache-2.0
"""What backward passes leave behind until an optimizer asks for it.

A backward pass through a lookup changes no table. It stores the ids and the gradients of the
activations under the next slot of a ring, and the gradient of the carrier, the layer's trainable
variable, becomes `UNIT` in that slot. What happens to this gradient afterwards, such as sums of
several batches, averages or the division by a loss scale, happens to the coefficients of the slots.
An optimizer that is given the result asks for one update, by the sum of
coefficient / `UNIT` × gradients over all slots.

A slot is used again after `SLOTS` backward passes; several replicas share the slots. So the second
half of a gradient has, for each slot, the coefficient times the number of the round, which linear
operations do not change in ratio.
"""

import functools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.saved_model import save_context
from tensorflow.python.trackable.base import Trackable

from tpu_estimator_embedding.engine.step import StepIds
from tpu_estimator_embedding.engine.tensor_queue import TensorQueue
from tpu_estimator_embedding.mid_level.execution.table_variables import outside_strategies
from tpu_estimator_embedding.mid_level.keras_layers.joined_lookups import (
    Batch,
    as_one_lookup,
    no_lookups,
    with_lookup,
)
from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.ops.ordering import when
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor

SLOTS = 64  # of all replicas, which share them: a saved model may be loaded with fewer
UNIT = 2.0 ** -60  # invisible in the norm of all gradients, and exact under any loss scale
_KEPT = 16  # slots before the last one that was asked for whose gradients still wait
_MOST = 2**62  # backward passes
_ROUNDS = 1024  # that are distinguished
_LARGEST = 2.0 ** 18  # factor of a gradient; a gradient divided by its norm has about 1 / UNIT

GONE = ("An optimizer received gradients of a Keras layer's tables that are no longer pending: "
        f"they were applied before, come from more than {SLOTS} backward passes, from one more "
        f"than {_KEPT} before a later update or from a jacobian, or were divided by their norm. "
        "Give each gradient to one optimizer, once, and change it by linear operations only.")
CHANGED = ("The trainable variable of a Keras layer of tables must stay 0, but was changed without "
           "an update of its tables. Give its gradient to `apply_gradients` of an optimizer of the "
           "layer's Keras or of tf.compat.v1.train, or to `apply_gradients` of the layer. If it is "
           "NaN, the optimizer or its learning rate made it so, as tf_keras's Nadam does.")
OTHER_SHAPES = ("All lookups of one update must have activations of the same shapes, except for "
                "the batch size. Use a separate tape and `apply_gradients` for each shape.")


Kind = Hashable  # what lookups have in common whose gradients wait in one queue


class Pending(NamedTuple):
    """What a backward pass stores.

    Attributes:
        number: scalar int64, the backward passes of the replica before this one.
        batch: the ids that were looked up.
        ids: the same, as prepared by the lookup; None if several replicas update together.
        gradients: feature name -> gradient of its activations, float32.
    """

    number: Tensor
    batch: Batch
    ids: StepIds | None
    gradients: Mapping[str, Tensor]


class Asked(NamedTuple):
    """What an optimizer asks for, on one replica.

    Attributes:
        batch: the ids of all backward passes that it asks for.
        ids: the same, as prepared by the lookup; None if there were several, or several replicas.
        gradients: feature name -> gradient of its activations.
        factor: scalar float32, what the gradients must be multiplied by.
    """

    batch: Batch
    ids: StepIds | None
    gradients: Mapping[str, Tensor]
    factor: Tensor | float


def kind_of(plan: EmbeddingPlan, example: Pending) -> Kind:
    """Returns the kind of a lookup, given what its backward pass stores."""
    leaves = tf.nest.flatten(example)
    return (plan.features, tuple(map(type, example.batch.datas.values())), tuple(
        (leaf.dtype, leaf.shape.rank) if tf.is_tensor(leaf) else leaf for leaf in leaves))


class PendingUpdates:
    """The gradients that wait on one replica, by the kind of their lookup."""

    def __init__(self, replica: int, num_replicas: int):
        """Creates variables outside of strategies and functions."""
        self._replica, self._slots = replica, SLOTS // num_replicas
        with outside_strategies():
            self._passed = tf.Variable(0, trainable=False, dtype=tf.int64, name="backward_passes")
            self._last = tf.Variable(-1, trainable=False, dtype=tf.int64, name="last_updated")
            self.accumulated = tf.Variable(tf.zeros([2 * SLOTS]), trainable=False,
                                           name="accumulated_coefficients")
        self._queues: dict[Kind, TensorQueue[Pending]] = {}

    @property
    def exported(self) -> dict[str, Trackable]:
        """Name -> what a SavedModel needs; there, nothing waits."""
        return {"passed": self._passed, "last": self._last, "accumulated": self.accumulated,
                **{f"queue_{number}": queue.exported
                   for number, queue in enumerate(self._queues.values())}}

    def handles(self, kinds: Iterable[Kind]) -> list[Tensor]:
        """Returns the handles of what an update of kinds uses."""
        return [self._passed.handle, self._last.handle,
                *(self._queues[kind].handle for kind in kinds)]

    def add_kind(self, kind: Kind, example: Pending) -> None:
        """Lets gradients of a kind wait; further calls change nothing."""
        if kind in self._queues:
            return
        with outside_strategies(), tf.Graph().as_default():
            structure = tf.nest.map_structure(_placeholder, example)
        with outside_strategies():
            self._queues[kind] = TensorQueue(structure, capacity=-1)

    def tie(self, carrier: Tensor, kind: Kind, example: Pending, *,
            checks: bool) -> dict[str, Tensor]:
        """Returns the same activations, whose backward pass stores their gradients.

        Args:
            carrier: the value of the carrier; its gradient is that of the module's docstring.
            kind: the kind of the lookup.
            example: its ids, and its activations instead of gradients.
            checks: whether a gradient that is not finite makes the carrier's so, which an optimizer
                with a loss scale must see.
        """
        names, activations = list(example.gradients), list(example.gradients.values())
        kept = [self._passed.handle, self._queues[kind].handle,
                tf.constant([self._replica, self._slots], tf.int64),
                *tensors_of((example.batch, example.ids))]

        def gradient(*upstream: Tensor) -> list[Tensor | None]:
            return [_stored(upstream, carrier.shape[0], checks, *kept), *[None] * len(activations)]

        # Tapes use `gradient`, and forget it. Functions and loops that are differentiated as a
        # whole use the registered gradient of the op. What is registered stays for ever, so all
        # that it needs is an input of the op. A SavedModel keeps no such op.
        with record.stop_recording():
            if tf.executing_eagerly() or save_context.in_save_context():
                tied = list(map(tf.identity, activations))
            else:
                tied = _identities([carrier, *activations, *kept], checks)[1:1 + len(activations)]
        record.record_operation(_GRADIENT, tied, [carrier, *activations], gradient)
        return dict(zip(names, tied, strict=True))

    def is_alone(self, kind: Kind, coefficients: Tensor, *, others: Iterable[Kind]) -> Tensor:
        """Whether one of a kind waits and no other, and an optimizer asks for it.

        Args:
            kind: one that was added.
            coefficients: `[2, slots]`, those of this replica.
            others: the other kinds.
        """
        of_slots, passed = coefficients / UNIT, self._passed.read_value()
        found = tf.add_n([tf.constant(0), *(self._queues[other].size() for other in others)])
        return (tf.equal(self._queues[kind].size(), 1) & tf.equal(found, 0)
                & tf.equal(tf.math.count_nonzero(of_slots[0]), 1)
                & (self._last.read_value() < passed - 1)  # so the last one is what waits
                & tf.not_equal(_factor(passed - 1, of_slots, passed), 0.0))

    def take_alone(self, kind: Kind, coefficients: Tensor) -> Asked:
        """Removes what waits alone; see `is_alone`."""
        entry = self._queues[kind].dequeue()
        passed = self._passed.read_value()
        self._last.assign(entry.number)
        return Asked(entry.batch, entry.ids, entry.gradients,
                     _factor(entry.number, coefficients / UNIT, passed))

    def take(self, kinds: Sequence[Kind], coefficients: Tensor) -> tuple[Tensor, Asked]:
        """Removes what an optimizer asks for from the queues of kinds, and adds it up.

        What is not asked for stays, or is dropped if it has waited too long.

        Args:
            kinds: those of one plan.
            coefficients: `[2, slots]`, those of this replica.

        Returns:
            The number of backward passes, scalar int32, and what they are.
        """
        queues = [self._queues[kind] for kind in kinds]
        passed, of_slots = self._passed.read_value(), coefficients / UNIT
        numbers = passed - 1 - (passed - 1 - tf.range(self._slots, dtype=tf.int64)) % self._slots
        last = tf.reduce_max(tf.where(tf.not_equal(of_slots[0], 0.0), numbers, -_MOST))
        self._last.assign(tf.maximum(self._last.read_value(), last))
        examples = [queue.structure for queue in queues]
        state = (tf.constant(0), no_lookups(examples[0].batch, examples[0].gradients))

        for queue in queues:
            def step(index: Tensor, *tensors: Tensor, queue: TensorQueue[Pending] = queue,
                     example: Any = state) -> list[Tensor]:
                entry = queue.dequeue()
                factor = _factor(entry.number, of_slots, passed)
                is_used = tf.not_equal(factor, 0.0)
                waits = (entry.number >= passed - self._slots) & (entry.number >= last - _KEPT)
                with tf.control_dependencies([when(waits & ~is_used,
                                                   lambda: queue.enqueue(entry))]):
                    count, flat = with_tensors(example, tensors)
                    flat = with_lookup(flat, entry.batch, entry.gradients, factor)
                    return [index + 1, *tensors_of((count + tf.cast(is_used, tf.int32), flat))]

            size = queue.size()
            _, *tensors = tf.while_loop(
                lambda index, *_, size=size: index < size, step,
                [tf.constant(0), *tensors_of(state)],
                shape_invariants=[tf.TensorShape([]), *(
                    tf.TensorShape([None, *part.shape[1:]]) if part.shape.rank else part.shape
                    for part in tensors_of(state))])
            state = with_tensors(state, tensors)
        count, flat = state
        batch, gradients = as_one_lookup(flat, examples[0].gradients, {
            name for example in examples for name, data in example.batch.datas.items()
            if data[2] is not None})
        return count, Asked(batch, None, gradients, 1.0)


def _placeholder(leaf: Any) -> Any:
    if not tf.is_tensor(leaf):
        return leaf
    shape = [None, *leaf.shape[1:]] if leaf.shape.rank else leaf.shape
    return tf.compat.v1.placeholder(leaf.dtype, shape)


def _factor(number: Tensor, of_slots: Tensor, passed: Tensor) -> Tensor:
    """Returns what the gradients of a backward pass are multiplied by; 0 if they are not used."""
    slots = of_slots.shape[1]
    factor, times_round = of_slots[0, number % slots], of_slots[1, number % slots]
    is_of_other_round = (tf.abs(times_round - factor * _round_of(number, slots))
                         > 0.25 * tf.abs(factor))
    is_changed = is_of_other_round | (tf.abs(factor) > _LARGEST)
    is_used = (number >= passed - slots) & ~is_changed  # NaN is used
    return tf.where(is_used, factor, tf.zeros_like(factor))


def _round_of(number: Tensor, slots: Tensor | int) -> Tensor:
    return tf.cast(number // slots % _ROUNDS + 1, tf.float32)


def _next_number(passed: Tensor) -> Tensor:
    if not save_context.in_save_context():
        # One op, because backward passes of one function may run at the same time.
        return tf.raw_ops.ResourceCountUpTo(resource=passed, limit=_MOST, T=tf.int64)
    number = tf.raw_ops.ReadVariableOp(resource=passed, dtype=tf.int64)
    with tf.control_dependencies([number]):  # CountUpTo is not loaded from a SavedModel
        tf.raw_ops.AssignAddVariableOp(resource=passed, value=tf.constant(1, tf.int64))
    return number


def _stored(gradients: Sequence[Tensor], size: int, checks: bool, passed: Tensor, queue: Tensor,
            place: Tensor, *kept: Tensor) -> Tensor:
    """Stores the gradients of a backward pass; returns the gradient of the carrier."""
    if _is_vectorized():
        return tf.fill([size], float("nan"))
    number = _next_number(passed)
    gradients = [tf.cast(tf.convert_to_tensor(gradient), tf.float32) for gradient in gradients]
    components = [number, *kept, *gradients]
    replica, slots = place[0], place[1]

    def drop() -> Tensor:
        return tf.raw_ops.QueueDequeueV2(
            handle=queue, component_types=[part.dtype for part in components])[0]

    with tf.control_dependencies([when(
            tf.cast(tf.raw_ops.QueueSizeV2(handle=queue), tf.int64) >= slots, drop)]):
        stored = tf.raw_ops.QueueEnqueueV2(handle=queue, components=components)
    unit = tf.constant(UNIT)
    if checks:
        is_finite = tf.reduce_all([tf.reduce_all(tf.math.is_finite(part)) for part in gradients])
        unit = tf.where(is_finite, unit, float("nan"))
    with tf.control_dependencies([stored] if stored is not None else []):
        half, index = size // 2, replica * slots + number % slots
        return tf.concat([tf.one_hot(index, half, unit, 0.0),
                          tf.one_hot(index, half, unit * _round_of(number, slots), 0.0)], 0)


def _is_vectorized() -> bool:
    """Whether ops are made for `jacobian` or `vectorized_map`, which cannot store anything.

    NaN shows an optimizer that nothing was stored.
    """
    if tf.executing_eagerly():
        return False
    scope = tf.compat.v1.get_default_graph().get_name_scope()
    return any(part.startswith("loop_body") for part in scope.split("/"))


def _identities(inputs: list[Tensor], checks: bool) -> list[Tensor]:
    name = _CHECKED_GRADIENT if checks else _GRADIENT
    with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": name}):
        return tf.identity_n(inputs)


def _gradient(checks: bool, op: tf.Operation, *upstream: Tensor) -> list[Tensor | None]:
    first = next(index for index, value in enumerate(op.inputs) if value.dtype == tf.resource)
    of_carrier = _stored(upstream[1:first], op.inputs[0].shape[0], checks, *op.inputs[first:])
    return [of_carrier, *[None] * (len(op.inputs) - 1)]


_GRADIENT, _CHECKED_GRADIENT = "TpuEmbeddingPending", "TpuEmbeddingPendingChecked"
tf.RegisterGradient(_GRADIENT)(functools.partial(_gradient, False))
tf.RegisterGradient(_CHECKED_GRADIENT)(functools.partial(_gradient, True))
