# SPDX-License-Identifier: Apache-2.0
"""Compiled ops in functions that a program may export.

A SavedModel must load without this package. When a `tf.function` is traced, it is not known whether
it will be exported. So its compiled ops are in a nested function, and a portable twin computes the
same with TensorFlow's own ops. When the model is saved, the SavedModel gets the body of the twin
under the name of the nested function. A function that is traced while the model is saved uses
TensorFlow's own ops from the beginning.
"""

import weakref
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import tensorflow as tf
from tensorflow.python.client import pywrap_tf_session
from tensorflow.python.eager import context
from tensorflow.python.saved_model import save_context

from tpu_estimator_embedding.ops.nests import tensors_of, with_tensors
from tpu_estimator_embedding.types import Tensor


class _Twins(NamedTuple):
    """A nested function of compiled ops, and a function that traces its portable twin."""

    native: tf.types.experimental.ConcreteFunction
    trace_portable: Callable[[], tf.types.experimental.ConcreteFunction]


_Inputs = TypeVar("_Inputs")
_Results = TypeVar("_Results")
_Kept = TypeVar("_Kept")


class ExportableFunctions:
    """The nested functions of one trackable object, which calls `replace_in` when saved."""

    def __init__(self) -> None:
        # A nested function must live as long as any of its outer graphs.
        self._twins: weakref.WeakKeyDictionary[tf.Graph, list[_Twins]] = (
            weakref.WeakKeyDictionary())
        self._shared: dict[Hashable, tuple[_Twins, Any]] = {}

    def call(self, native: Callable[[_Inputs], tuple[_Results, _Kept]],
             portable: Callable[[_Inputs], tuple[_Results, _Kept]], inputs: _Inputs,
             captures: Sequence[Tensor], *, is_for_export: bool,
             key: Hashable = None) -> tuple[_Results, _Kept]:
        """Calls one of two functions that compute the same.

        Args:
            native: maps a nest of tensors to two nests: the results, and values that only compiled
                ops use.
            portable: computes the same with TensorFlow's ops.
            inputs: the nest of tensors.
            captures: the handles of all variables that the functions use.
            is_for_export: whether to avoid compiled ops in the graph of a session, which the
                program may export at any time.
            key: calls with equal keys, but None, share one nested function, which is kept.
        """
        if tf.executing_eagerly():
            return native(inputs)
        if save_context.in_save_context():
            return portable(inputs)
        if not tf.compat.v1.get_default_graph().building_function:
            return portable(inputs) if is_for_export else native(inputs)
        # TensorFlow renames functions that are differentiated, so gradients stop here.
        tensors = [tf.stop_gradient(tensor) for tensor in tensors_of(inputs)]
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
        twins, outputs = self._shared.get(key) or _trace_twins(
            native, portable, inputs, specs, captures)
        if key is not None:
            self._shared[key] = twins, outputs
        self._remember(twins)
        return with_tensors(outputs, twins.native(*tensors))

    def replace_in(self, graph: tf.Graph) -> None:
        """Puts the twins into the graph of a SavedModel that is being written."""
        twins = {id(pair): pair for pairs in self._twins.values() for pair in pairs}
        for native, trace_portable in twins.values():
            with context.eager_mode():
                portable = trace_portable()
            _add_under_name_of(graph, native, portable)

    def _remember(self, twins: _Twins) -> None:
        for graph in _graphs_around():
            self._twins.setdefault(graph, []).append(twins)


def _trace_twins(native: Callable[[_Inputs], tuple[_Results, _Kept]],
                 portable: Callable[[_Inputs], tuple[_Results, _Kept]], inputs: _Inputs,
                 specs: Sequence[tf.TensorSpec],
                 captures: Sequence[Tensor]) -> tuple[_Twins, tuple[_Results, _Kept]]:
    """Returns twins, and what the native one returned when it was traced."""
    outputs: list[tuple[_Results, _Kept]] = []

    def flat(*tensors: Tensor) -> list[Tensor]:
        outputs.append(native(with_tensors(inputs, tensors)))
        return tensors_of(outputs[-1])

    def flat_portable(*tensors: Tensor) -> list[Tensor]:
        results, _ = portable(with_tensors(inputs, tensors))
        return tensors_of(results) + list(map(_empty_like, tensors_of(outputs[-1][1])))

    function = _trace(flat, specs, captures)
    return _Twins(function, lambda: _trace(flat_portable, specs, captures)), outputs[-1]


def _graphs_around() -> Iterator[tf.Graph]:
    graph = tf.compat.v1.get_default_graph()
    while getattr(graph, "building_function", False):
        yield graph
        graph = graph.outer_graph


def _trace(function: Callable[..., list[Tensor]], specs: Sequence[tf.TensorSpec],
           captures: Sequence[Tensor]) -> tf.types.experimental.ConcreteFunction:
    def with_captures(*tensors: Tensor) -> list[Tensor]:
        for handle in captures:  # in this order, so that twins have the same inputs
            tf.compat.v1.get_default_graph().capture(handle)
        return function(*tensors)

    return tf.function(with_captures, autograph=False).get_concrete_function(*specs)


def _empty_like(tensor: Tensor) -> Tensor:
    rank = tensor.shape.rank or 0
    return tf.zeros([0] * rank, tensor.dtype)


def _add_under_name_of(graph: tf.Graph, native: tf.types.experimental.ConcreteFunction,
                       portable: tf.types.experimental.ConcreteFunction) -> None:
    """Adds the body of one function to a graph under the name of another."""
    name = tf.compat.as_str(native.name)
    if len(native.captured_inputs) != len(portable.captured_inputs) or any(
            ours is not theirs for ours, theirs in zip(
                native.captured_inputs, portable.captured_inputs, strict=True)):
        raise RuntimeError(f"The portable twin of {name} must capture the same variables.")
    native.add_to_graph(graph)  # including the functions that it calls
    for called in _called_by(native) - _called_by(portable):
        graph._remove_function(called)
    portable.add_to_graph(graph)
    graph._remove_function(name)
    definition = type(portable.function_def)()
    definition.CopyFrom(portable.function_def)
    definition.signature.name = name
    function = pywrap_tf_session.TF_FunctionImportFunctionDef(definition.SerializeToString())
    with graph._c_graph.get() as c_graph:
        pywrap_tf_session.TF_GraphCopyFunction(c_graph, function, None)
    # TensorFlow must neither add the native function again nor use its shapes.
    graph._functions[name] = graph._functions[tf.compat.as_str(portable.name)]


def _called_by(function: tf.types.experimental.ConcreteFunction) -> set[str]:
    """Returns the names of the functions that a function calls, also through others."""
    return {called.signature.name
            for called in function.graph.as_graph_def().library.function}
