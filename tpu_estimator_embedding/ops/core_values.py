# SPDX-License-Identifier: Apache-2.0
"""Values of which each core has another one: variables, constants, the number of the core.

A program for several cores is built once. What differs by core is one tensor in its graph, the
first output of an op whose other inputs are the values of all cores. When the graph is copied for
every replica, the copy for replica i gets the i-th value instead, and the first replica the first.
Before, the tensor has no value, so a session cannot read it outside of such a computation.

Libraries look for TensorFlow's XLAControlFlowContext to find out whether they are in a computation
for several cores, and ask it for the variable of a core. `CoreContext` is one. It leaves all ops
outside of it, so that TensorFlow treats them as ops of an ordinary graph.
"""

from collections.abc import Sequence
from typing import Any, Self

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.ops import control_flow_ops, handle_data_util

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.ops.graph_rewrites import set_input
from tpu_estimator_embedding.types import Tensor

_MARK = "_values_of_cores"


def core_value(values: Sequence[Tensor], name: str | None = None) -> Tensor:
    """Returns the tensor that is `values[i]` in the computation of replica i.

    Args:
        values: for each replica, its value, all of one dtype: tensors, or handles of variables.
        name: name of the op.

    >>> with tf.Graph().as_default():
    ...     value = core_value([tf.constant(3), tf.constant(4)])
    ...     [each.op.type for each in values_of(value.op)]
    ['Const', 'Const']
    """
    values = [tf.convert_to_tensor(value) for value in values]
    first = values[0]
    if len(values) == 1:
        return first
    missing = tf.compat.v1.placeholder(
        first.dtype, name=f"one_of_{len(values)}_values_in_a_computation_of_as_many_replicas")
    if first.dtype == tf.resource:
        handle_data_util.copy_handle_data(first, missing)
    with tf.device(None):
        result = tf.raw_ops.IdentityN(input=[missing, *values], name=name)[0]
    result.op._set_attr(_MARK, attr_value_pb2.AttrValue(b=True))
    shape = first.shape
    for value in values[1:]:
        shape = shape.most_specific_compatible_shape(value.shape)
    result.set_shape(shape)
    if first.dtype == tf.resource:
        handle_data_util.copy_handle_data(first, result)
    return result


def is_core_value(op: tf.Operation) -> bool:
    """Whether the first output of an op is a `core_value`."""
    return op.type == "IdentityN" and op.node_def.attr[_MARK].b


def values_of(op: tf.Operation) -> list[Tensor]:
    """Returns the values of the replicas, given the op of a `core_value`."""
    return list(op.inputs)[1:]


def use_first(op: tf.Operation) -> None:
    """Gives a `core_value` the first replica's value."""
    set_input(op, 0, op.inputs[1])


def takes_variable_of_core(op: tf.Operation) -> bool:
    """Whether the variables that an op takes are those of a core.

    Raises:
        ValueError: if some are, and others are those of all cores.
    """
    are_of_core = {_is_of_core(tensor) for tensor in op.inputs if tensor.dtype == tf.resource}
    checks.check_with_sentence(
        len(are_of_core) < 2, "An op must write to variables of one core, or to variables of all, "
        f"got {op.name} ({op.type}).", "Give each core its own slots, too.")
    return are_of_core == {True}


def _is_of_core(handle: Tensor) -> bool:
    while handle.op.type in ("Enter", "Switch", "Identity"):
        handle = handle.op.inputs[0]
    return is_core_value(handle.op)


class CoreContext(control_flow_ops.XLAControlFlowContext):
    """What a library of TPU programs finds as the enclosing context of a computation."""

    def __init__(self) -> None:
        """Makes the context in the default graph; enter it by `with`."""
        super().__init__()
        self._graph = tf.compat.v1.get_default_graph()
        self._handles: dict[tuple[str, ...], Tensor] = {}

    def __enter__(self) -> Self:
        """Makes it the current context."""
        self.Enter()
        return self

    def __exit__(self, *exception: object) -> None:
        """Leaves it."""
        self.Exit()

    def get_replicated_var_handle(self, name: str, *arguments: Any, **named: Any) -> Tensor:
        """Returns the handle of the variable of each core.

        Args:
            name: prefix of the name of the op.
            *arguments: the variables or handles of all cores, in their order; before them, since
                TensorFlow 2.3, an identifier. After them, `is_mirrored` and `is_packed`.
            **named: the same by name.

        Raises:
            ValueError: `is_packed` is true.
        """
        given = [value for value in arguments if not isinstance(value, str)]
        variables = named.get("vars_") or given[0]
        is_packed = named.get("is_packed") or (len(given) > 2 and given[2])
        checks.check(not is_packed, "is_packed", "False, because each core has a separate variable "
                     "here", is_packed)
        handles = [getattr(variable, "handle", variable) for variable in variables]
        key = tuple(handle.name for handle in handles)
        if key not in self._handles:
            with self._graph.as_default(), tf.control_dependencies(None):
                self._handles[key] = core_value(handles, f"{name}/handle")
        return self._handles[key]

    @property
    def grad_state(self) -> Any:
        """The state of a gradient that is built around this context; None without one."""
        return None if self.outer_context is None else self.outer_context.grad_state

    @property
    def back_prop(self) -> bool:
        """Whether gradients of a loop around this context may follow."""
        return self.outer_context is not None and self.outer_context.back_prop

    def IsXLAContext(self) -> bool:
        """Tells TensorFlow that nothing is compiled by XLA."""
        return False

    def AddOp(self, op: tf.Operation) -> None:
        """Leaves an op outside."""
        op._set_control_flow_context(self.outer_context)
        if self.outer_context is not None:
            self.outer_context.AddOp(op)

    def AddValue(self, tensor: Tensor) -> Tensor:
        """Takes a tensor of the graph as it is, if this context is not in a loop."""
        return tensor if self.outer_context is None else self.outer_context.AddValue(tensor)

    def AddInnerOp(self, op: tf.Operation) -> None:
        """Lets a session fetch the results of a loop, as outside."""
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)
        elif op.type == "Exit" and op._get_control_flow_context().outer_context is self:
            op.graph._unfetchable_ops.discard(op)
            for tensor in op.outputs:
                op.graph._unfeedable_tensors.discard(tensor)
