# SPDX-License-Identifier: Apache-2.0
"""The graph of a program, also while one of its functions or loops is built."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf
from tensorflow.python.eager import context


@contextlib.contextmanager
def outermost_graph() -> Iterator[tf.Graph | None]:
    """Enters the graph that is not a function's; yields None where operations run eagerly there.

    `tf.init_scope` leads out of the default graph of a program without `Graph.as_default()`, into
    eager execution, even if the program has disabled it.

    >>> with tf.Graph().as_default() as graph, outermost_graph() as found:
    ...     found is graph
    True
    """
    graph = tf.compat.v1.get_default_graph()
    with tf.init_scope():
        is_eager = tf.executing_eagerly()
        if not is_eager:
            yield tf.compat.v1.get_default_graph()
            return
    if context.default_execution_mode == context.EAGER_MODE:
        with tf.init_scope():
            yield None
        return
    while getattr(graph, "building_function", False):
        graph = graph.outer_graph
    with tf.control_dependencies(None), graph.as_default():
        yield graph
