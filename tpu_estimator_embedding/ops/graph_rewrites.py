# SPDX-License-Identifier: Apache-2.0
"""Every change that this package makes to ops of a graph after they exist.

A model_fn builds its ops once, some before what they depend on. What is changed afterwards:

=================  ======================================  =====================================
function           what it changes                         why
=================  ======================================  =====================================
`set_late_tensor`  the value of a tensor that was used     tables get their names from the
                   before the ops that compute it          model_fn, which needs activations
`set_input`        one input of an op                      a cross-replica sum gets the sum over
                                                           the copies of a model, or over workers
`replace_uses`     the input of all consumers of a tensor  the lookup writes what the model
                                                           concatenates, without a copy
`wait_for`         the control inputs of an op             copies wait for what they do not copy,
                                                           and changes on servers for a permit
`count_after`      the control inputs of the ops of a      the step is counted when all have read
                   train_op that assign the global step    it, or when tables are updated
`leave_out`        the control inputs of what waits for    an optimizer updates variables that
                   ops without outputs                     never change
=================  ======================================  =====================================

Each asserts that the graph is as intended afterwards. Ops are added elsewhere, never removed.

>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     late = late_tensor(tf.TensorSpec([]))
...     doubled = 2.0 * late
...     set_late_tensor(late, tf.constant(3.0))
...     float(session.run(doubled))
6.0
"""

from collections.abc import Sequence

import tensorflow as tf

from tpu_estimator_embedding.ops.graph_walk import ops_run_by
from tpu_estimator_embedding.types import Tensor


def late_tensor(spec: tf.TensorSpec, *, name: str | None = None,
                missing: str | None = None) -> Tensor:
    """Returns a tensor whose value `set_late_tensor` sets later.

    Args:
        spec: its shape and dtype.
        name: name of its op.
        missing: name that the error shows if the tensor is evaluated without a value.
    """
    placeholder = tf.compat.v1.placeholder(spec.dtype, spec.shape, name=missing)
    return tf.identity(placeholder, name=name)


def set_late_tensor(late: Tensor, value: Tensor) -> None:
    """Replaces a late tensor by `value` wherever it was used."""
    assert late.op.type == "Identity", late
    set_input(late.op, 0, value)


def set_input(op: tf.Operation, index: int, value: Tensor) -> None:
    """Makes `value` an input of an op; afterwards it is the one at `index`."""
    op._update_input(index, value)
    assert op.inputs[index].name == value.name, (op, index, value)


def replace_uses(tensor: Tensor, value: Tensor) -> None:
    """Uses `value` wherever a tensor was used; afterwards nothing uses the tensor.

    Args:
        tensor: `value` must not depend on it.
        value: has the dtype of `tensor`, and gets its static shape.
    """
    value.set_shape(tensor.shape)
    for consumer in tensor.consumers():
        for index, used in enumerate(consumer.inputs):
            if used.name == tensor.name:
                set_input(consumer, index, value)
    assert not tensor.consumers(), tensor


def wait_for(op: tf.Operation, others: Sequence[tf.Operation]) -> None:
    """Makes an op run after others; afterwards all of them are control inputs of it."""
    op._add_control_inputs(list(others))
    assert {other.name for other in others} <= {other.name for other in op.control_inputs}, op


def leave_out(ops: Sequence[tf.Operation]) -> None:
    """Makes nothing wait for ops that have no outputs, so that a session does not run them.

    >>> with tf.Graph().as_default():
    ...     ops = [tf.no_op(name=name) for name in ("needed", "needless")]
    ...     both = tf.group(*ops)
    ...     leave_out(ops[1:])
    ...     [op.name for op in both.control_inputs]
    ['needed']
    """
    names = {op.name for op in ops}
    waiting = {consumer.name: consumer for op in ops for consumer in op._control_outputs}
    for consumer in waiting.values():
        kept = [op for op in consumer.control_inputs if op.name not in names]
        consumer._remove_all_control_inputs()
        consumer._add_control_inputs(kept)
    assert not any(op.outputs or op._control_outputs for op in ops), ops


def count_after(others: Sequence[tf.Operation], train_op: Tensor | tf.Operation) -> None:
    """Makes a train_op count the global step after `others`.

    Ops that other runs assign the step by wait for nothing: its initializer, or a Saver that
    restores it.
    """
    step = tf.compat.v1.train.get_global_step().handle
    run = ops_run_by([train_op])
    for consumer in step.consumers():
        if consumer.type.startswith("Assign") and consumer in run:
            wait_for(consumer, others)
