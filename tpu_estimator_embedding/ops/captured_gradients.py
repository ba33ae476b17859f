# SPDX-License-Identifier: Apache-2.0
"""Captures the gradient of activations on its way to a trainable variable.

Tables are not trainable variables of the model. An identity with a custom gradient makes their
activations depend on a trainable dummy variable. An optimizer that minimizes the loss over all
trainable variables then computes the gradient of the activations, which is captured and stopped.

`TPUEstimator` and the v1 API share this module: their gradients are tensors of the graph that looks
up, so a capture is a Python object. A Keras layer cannot use it: its gradients come from tapes and
from functions that are differentiated as a whole, several times before an update. So
`mid_level.keras_layers.pending_updates` ties activations to ops that store what arrives when they
run.
"""

import itertools
from collections.abc import Callable, Collection, Mapping

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2

from tpu_estimator_embedding.ops.outermost_graph import of_graph
from tpu_estimator_embedding.types import Tensor

# TensorFlow's name, followed by the table's; programs put these into a `var_list`.
DUMMY_VARIABLE_NAME = "tpu_embedding_dummy_table_variable"

# TensorFlow's name of the graph collection of all of them.
DUMMY_COLLECTION = "tpu_embedding_dummy_table_variables"

_numbers = itertools.count()  # of the taps of all graphs, which may be copied into each other


_PASS_GRADIENT = "TpuEmbeddingPassGradient"
_TAP_GRADIENT = "TpuEmbeddingTakeGradient"
_TAP = "_tpu_embedding_tap"  # attribute of the op: its number


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


Take = Callable[[Tensor], None]


def _takes_of(graph: tf.Graph) -> dict[int, Take]:
    """Returns what takes the gradients of a graph, and of the functions in it, by number."""
    while getattr(graph, "building_function", False):  # TensorFlow may copy the function's graph
        graph = graph.outer_graph
    return of_graph(graph, "gradient takes", dict)


@tf.RegisterGradient(_TAP_GRADIENT)  # once: what is registered lives as long as the process
def _take_gradient(op: tf.Operation, of_source: Tensor, of_activation: Tensor,
                   ) -> tuple[Tensor, None]:
    number = op.get_attr(_TAP)
    graphs = (op.graph, tf.compat.v1.get_default_graph())  # the op may be in a copy
    take = next((takes[number] for takes in map(_takes_of, graphs) if number in takes), None)
    assert take is not None, "the graph of the op was deleted"
    take(tf.convert_to_tensor(of_activation))
    return of_source, None  # zeros, because nothing reads the first output


def tap_graph_gradient(source: tf.Variable | Tensor, activation: Tensor,
                       take: Take) -> Tensor:
    """Returns the same activation, whose gradient is captured and stopped, in a session's graph.

    It adds one op and its gradient one more; `tf.custom_gradient` adds fourteen.

    Args:
        source: the trainable variable, or its value; its gradient is zeros.
        activation: a float32 tensor.
        take: called with the gradient of the activation whenever one is computed.

    >>> with tf.Graph().as_default():
    ...     source, taken = tf.constant([0.0]), []
    ...     loss = 3.0 * tap_graph_gradient(source, tf.constant([2.0]), taken.append)
    ...     [zeros] = tf.gradients(loss, [source])
    ...     with tf.compat.v1.Session() as session:
    ...         session.run((zeros, taken[0]))
    (array([0.], dtype=float32), array([3.], dtype=float32))
    """
    graph = tf.compat.v1.get_default_graph()
    with graph.gradient_override_map({"IdentityN": _TAP_GRADIENT}):
        _, tapped = tf.identity_n([source, activation])
    number = next(_numbers)
    tapped.op._set_attr(_TAP, attr_value_pb2.AttrValue(i=number))
    _takes_of(graph)[number] = take
    return tapped


class CapturedGradients:
    """Ties the activations of features to dummy variables, and keeps the gradient of each.

    Attributes:
        by_feature: feature name -> gradient, of those that were computed.

    >>> with tf.Graph().as_default():
    ...     captured = CapturedGradients(lambda feature, gradient, is_second: None)
    ...     source = tf.constant([0.0])
    ...     tied = captured.tie({"word": tf.constant([2.0])}, {"word": source})
    ...     _ = tf.gradients(3.0 * tied["word"], [source])
    ...     list(captured.by_feature)
    ['word']
    """

    def __init__(self, check: Callable[[str, Tensor, bool], None]) -> None:
        """Takes what raises an error for a gradient that must not be captured.

        Args:
            check: called with the feature, the gradient, and whether another one was captured.
        """
        self._check = check
        self.by_feature: dict[str, Tensor] = {}

    def tie(self, activations: Mapping[str, Tensor],
            sources: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the same activations, whose gradients are captured and stopped.

        Args:
            activations: feature name -> activation.
            sources: feature name -> value of the dummy variable that it is tied to.
        """
        return {feature: self._tie(feature, activation, sources[feature])
                for feature, activation in activations.items()}

    def _tie(self, feature: str, activation: Tensor, source: Tensor) -> Tensor:
        return tap_graph_gradient(source, activation,
                                  lambda gradient: self._keep(feature, gradient))

    def _keep(self, feature: str, gradient: Tensor) -> None:
        self._check(feature, gradient, feature in self.by_feature)
        self.by_feature[feature] = gradient


def create_dummy(table: str, collections: Collection[str] = ()) -> tf.Variable:
    """Creates the trainable variable `[1]` float32 of a table, outside of checkpoints.

    Args:
        table: its name.
        collections: of the graph, which the variable is added to beside that of the dummies.
    """
    return tf.compat.v1.get_variable(
        f"{DUMMY_VARIABLE_NAME}_{table}", [1], tf.float32, use_resource=True, trainable=True,
        initializer=tf.compat.v1.zeros_initializer(), collections=[*collections, DUMMY_COLLECTION])
