# SPDX-License-Identifier: Apache-2.0
"""Captures the gradient of activations on its way to a trainable variable.

Tables are not trainable variables of the model. An identity with a custom gradient makes their
activations depend on a trainable dummy variable. An optimizer that minimizes the loss over all
trainable variables then computes the gradient of the activations, which is captured and stopped.
"""

import itertools
import weakref
from collections.abc import Callable, Sequence

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_numbers = itertools.count()  # of the gradient functions, which TensorFlow registers by name


def tap_gradients(source: tf.Variable | Tensor, activations: Sequence[Tensor],
                  take: Callable[[list[Tensor]], None]) -> list[Tensor]:
    """Returns the same activations, whose gradients are captured and stopped.

    Args:
        source: the trainable variable, or its value; its gradient is zeros.
        activations: float32 tensors.
        take: called with the gradient of every activation whenever one is computed.

    >>> source, taken = tf.Variable([0.0]), []
    >>> with tf.GradientTape() as tape:
    ...     [activation] = tap_gradients(source, [tf.constant([2.0])], taken.extend)
    ...     loss = 3.0 * activation
    >>> tape.gradient(loss, source).numpy().tolist(), taken[0].numpy().tolist()
    ([0.0], [3.0])
    """
    @tf.custom_gradient
    def tie(source: Tensor, *activations: Tensor):
        def gradient(*upstream: Tensor):
            take([tf.convert_to_tensor(part) for part in upstream])
            return tf.zeros_like(source), *(tf.zeros_like(part) for part in activations)
        return [tf.identity(part) for part in activations], gradient
    return tie(source, *activations)


_PASS_GRADIENT = "TpuEmbeddingPassGradient"
_TAKES = "_tpu_embedding_gradient_takes"


@tf.RegisterGradient(_PASS_GRADIENT)
def _pass_gradient(op: tf.Operation, gradient: Tensor) -> Tensor:
    return gradient


def hide_from_searches(source: tf.Variable | Tensor) -> Tensor:
    """Returns the value of a variable, with a gradient, where TensorFlow does not search for it.

    In graphs, `tf.recompute_grad` searches all that a tensor is made of for variables, and fails at
    those that are not among the global variables. It does not enter a StopGradient.

    >>> with tf.Graph().as_default():
    ...     source = tf.constant([0.0])
    ...     tf.gradients(3.0 * hide_from_searches(source), [source])[0] is not None
    True
    """
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"StopGradient": _PASS_GRADIENT}):
        return tf.stop_gradient(source)


class _Takes(dict[str, Callable[[Tensor], None]]):
    """What takes the gradients in a graph; belongs to the graph. Allows weak references."""


def _takes_of(graph: tf.Graph) -> _Takes:
    while getattr(graph, "building_function", False):  # TensorFlow may copy the function's graph
        graph = graph.outer_graph
    if not hasattr(graph, _TAKES):
        setattr(graph, _TAKES, _Takes())
    return getattr(graph, _TAKES)


def tap_graph_gradient(source: tf.Variable | Tensor, activation: Tensor,
                       take: Callable[[Tensor], None]) -> Tensor:
    """Does the same for one activation in the graph of a session, where no tape records.

    It adds one op and its gradient one more; `tf.custom_gradient` adds fourteen.

    >>> with tf.Graph().as_default():
    ...     source, taken = tf.constant([0.0]), []
    ...     loss = 3.0 * tap_graph_gradient(source, tf.constant([2.0]), taken.append)
    ...     [zeros] = tf.gradients(loss, [source])
    ...     with tf.compat.v1.Session() as session:
    ...         session.run((zeros, taken[0]))
    (array([0.], dtype=float32), array([3.], dtype=float32))
    """
    name = f"TpuEmbeddingGradientTap{next(_numbers)}"
    graph = tf.compat.v1.get_default_graph()
    takes = _takes_of(graph)
    takes[name] = take
    takes_of_graph = weakref.ref(takes)

    @tf.RegisterGradient(name)  # for the life of the process, so it must not keep the graph alive
    def gradient(op: tf.Operation, of_source: Tensor, of_activation: Tensor):
        del op
        takes = takes_of_graph()
        assert takes is not None, "the graph of the op is gone"
        takes[name](tf.convert_to_tensor(of_activation))
        return of_source, None  # zeros, because nothing reads the first output

    with graph.gradient_override_map({"IdentityN": name}):
        return tf.identity_n([source, activation])[1]
