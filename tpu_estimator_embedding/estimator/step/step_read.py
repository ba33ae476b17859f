# SPDX-License-Identifier: Apache-2.0
"""The tensor by which hooks read the global step."""

import tensorflow as tf
from tensorflow.python.training import training_util


def add_step_read(graph: tf.Graph) -> None:
    """Makes hooks read the global step by one op, unless the graph has their tensor.

    TensorFlow makes this tensor, too, under the same name, but first asks whether the step is
    initialized. Every step would run the eleven ops of this condition, because counting waits for
    the read, and a graph with conditions runs slower as a whole. Sessions initialize the step
    before any hook reads it.

    >>> with tf.Graph().as_default() as graph:
    ...     _ = tf.compat.v1.train.create_global_step()
    ...     add_step_read(graph)
    ...     training_util._get_or_create_global_step_read().name
    ...     sorted({op.type for op in graph.get_operations()} & {"If", "Switch", "Merge"})
    'global_step/add:0'
    []
    """
    if graph.get_collection(training_util.GLOBAL_STEP_READ_KEY):
        return
    step = tf.compat.v1.train.get_global_step(graph)
    with graph.as_default(), tf.name_scope(f"{step.op.name}/"):
        graph.add_to_collection(training_util.GLOBAL_STEP_READ_KEY,
                                tf.add(step.read_value(), 0, name="add"))
