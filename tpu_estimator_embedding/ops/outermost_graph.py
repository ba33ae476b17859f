# SPDX-License-Identifier: Apache-2.0
"""The graph of a program, also while one of its functions or loops is built, and what it keeps."""

import contextlib
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar, cast

import tensorflow as tf
from tensorflow.python.eager import context

_Value = TypeVar("_Value")


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


_OF_GRAPH = "_tpu_embedding_of_graph"  # attribute of a graph: key -> value


def of_graph(graph: tf.Graph, key: Hashable, make: Callable[[], _Value]) -> _Value:
    """Returns what belongs to a graph and lives as long as the graph does; makes it once.

    Values refer to the graph, so a dictionary of graphs, weak keys or not, would keep all of them.

    >>> with tf.Graph().as_default() as graph:
    ...     made = of_graph(graph, "example", lambda: tf.constant(1))
    ...     of_graph(graph, "example", lambda: tf.constant(2)) is made
    True
    """
    if not hasattr(graph, _OF_GRAPH):
        setattr(graph, _OF_GRAPH, {})
    values = getattr(graph, _OF_GRAPH)
    if key not in values:
        values[key] = make()
    return cast(_Value, values[key])
