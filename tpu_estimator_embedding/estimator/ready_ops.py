# SPDX-License-Identifier: Apache-2.0
"""Which variables a session waits for.

`add_ready_ops` reports which variables are not initialized from ops that exist. By default a
Scaffold adds one more op for every variable and report, and TensorFlow optimizes all ops of a graph
again for everything that its session runs.
"""

from collections.abc import Iterable

import tensorflow as tf
from tensorflow.python.ops import resources

from tpu_estimator_embedding import settings
from tpu_estimator_embedding.types import Tensor


def add_ready_ops() -> None:
    """Adds the reports of uninitialized variables, of those that exist, where a Scaffold looks.

    They are those of its `ready_op` and `ready_for_local_init_op`; a program's own ones stay.
    """
    v1 = tf.compat.v1
    keys = v1.GraphKeys
    of_all = [*v1.global_variables(), *v1.local_variables()]
    for key, variables, others in (
            (keys.READY_OP, of_all, [*resources.shared_resources(), *resources.local_resources()]),
            (keys.READY_FOR_LOCAL_INIT_OP, v1.global_variables(), resources.shared_resources())):
        if not v1.get_collection(key):
            v1.add_to_collection(key, tf.concat(
                [_uninitialized(variables), resources.report_uninitialized_resources(others)], 0))


def _uninitialized(variables: Iterable[tf.Variable]) -> Tensor:
    """Returns the names of the variables that are not initialized."""
    variables = list(variables)
    if not variables:
        return tf.constant([], tf.string)
    are_initialized = [_is_initialized(variable) for variable in variables]
    device = settings.TF_DEVICE_FOR_UNINITIALIZED_VARIABLE_REPORTING.read()
    with tf.device("/cpu:0" if device is None else device):
        # Fewer ops than those of tf.boolean_mask.
        return tf.gather_nd(tf.constant([variable.op.name for variable in variables]),
                            tf.where(tf.logical_not(tf.stack(are_initialized))))


def _is_initialized(variable: tf.Variable) -> Tensor:
    """Returns the output of the op that a resource variable was made with, or of a new op."""
    if variable.op.type == "VarHandleOp":
        own = f"{variable.op.name}/IsInitialized/"
        for op in variable.handle.consumers():
            if op.type == "VarIsInitializedOp" and op.name.startswith(own):
                return op.outputs[0]
    return tf.compat.v1.is_variable_initialized(variable)
