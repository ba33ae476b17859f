# SPDX-License-Identifier: Apache-2.0
"""Training loops without a TPU: all replicas run each iteration of a loop together.

Cross-replica sums in the body therefore sum over the same iteration of all replicas.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.ops import while_v2
from tensorflow.python.tpu import training_loop

from tpu_estimator_embedding.estimator.replicas import replicated_graph
from tpu_estimator_embedding.estimator.replicas.replicated_graph import ReplicatedGraph
from tpu_estimator_embedding.estimator.replicas.tpu_computations import (
    InfeedQueue,
    is_for_a_tpu,
    received,
)
from tpu_estimator_embedding.ops import core_values, replica_graphs
from tpu_estimator_embedding.types import Structure, Tensor

_tensorflow_while_loop = training_loop.while_loop
_tensorflow_repeat = training_loop.repeat

_DISAGREE = ("The replicas disagree on whether the loop continues, and its body sums over them or "
             "writes to a variable.")


def while_loop(condition: Callable[..., Tensor], body: Callable[..., Structure],
               inputs: Structure = None, infeed_queue: InfeedQueue | None = None,
               name: str | None = None) -> Structure:
    """Builds a loop that runs every op of its body in every iteration.

    Args:
        condition: maps the loop's tensors to whether to continue.
        body: maps the loop's tensors to their next values, optionally followed by ops.
        inputs: the first values.
        infeed_queue: an `InfeedQueue`, whose tensors `body` gets after the loop's.
        name: is ignored.

    Returns:
        The last values.

    Raises:
        TypeError: `condition` or `body` does not take the inputs, or returns other types.
        ValueError: there is an infeed queue, and no computation of replicas to feed.
    """
    if is_for_a_tpu():
        return _tensorflow_while_loop(condition, body, inputs, infeed_queue, name)
    body = _receiving(body, infeed_queue)
    replicas = cast(ReplicatedGraph | None, replica_graphs.current())
    if replicas is None:
        return _tensorflow_while_loop(condition, _running_all(body), inputs)
    return _in_step(replicas, condition, body, [] if inputs is None else inputs)


def repeat(n: int | Tensor, body: Callable[..., Structure], inputs: Structure = None,
           infeed_queue: InfeedQueue | None = None,
           name: str | None = None) -> list[Tensor] | tf.Operation:
    """Builds a loop of `n` iterations; arguments and errors are those of `while_loop`.

    Returns:
        The last values, in a list; an op if there are no inputs.
    """
    if is_for_a_tpu():
        return _tensorflow_repeat(n, body, inputs, infeed_queue, name)
    outputs = _as_list(while_loop(
        lambda iteration, *values: iteration < n,
        lambda iteration, *values: [iteration + 1, *_as_list(body(*values))],
        [0, *([] if inputs is None else _as_list(inputs))], infeed_queue))
    return outputs[1:] or outputs[0].op


def looping(original: Callable[..., Structure]) -> Callable[..., Structure]:
    """Returns a `tf.while_loop` that builds another one's loop, or a loop of all replicas.

    TensorFlow's own loop is copied for each replica; the feeds of a replica and its embedding
    tables cannot be, so a body that receives or sends needs a loop of all.
    """
    @functools.wraps(original)
    def while_loop(cond: Callable[..., Tensor], body: Callable[..., Structure],
                   loop_vars: Structure, *others: Any, **named: Any) -> Structure:
        replicas = cast(ReplicatedGraph | None, replica_graphs.current())
        try:
            return original(cond, body, loop_vars, *others, **named)
        except replica_graphs.InnerGraphError:
            if replicas is None or not replicas.is_default():
                raise
        return _loop_of_replicas(replicas, cond, body, loop_vars, *others, **named)

    return while_loop


def _loop_of_replicas(replicas: ReplicatedGraph, cond: Callable[..., Tensor],
                      body: Callable[..., Structure], loop_vars: Structure,
                      shape_invariants: Structure = None, parallel_iterations: object = None,
                      back_prop: object = None, swap_memory: object = None,
                      name: object = None, maximum_iterations: int | Tensor | None = None,
                      return_same_structure: bool = False) -> Structure:
    """Builds a loop of all replicas from the arguments of `tf.while_loop`.

    Options of parallel iterations, memory and back-propagation have no effect: it is not
    differentiated.
    """
    if shape_invariants is not None:
        raise NotImplementedError(
            "`shape_invariants` must be None for a loop that receives or sends in several "
            f"replicas, got {shape_invariants!r}. Give its variables one shape.")
    flat = tf.nest.flatten(loop_vars, expand_composites=True)

    def packed(values: Sequence[Tensor]) -> Structure:
        return tf.nest.pack_sequence_as(loop_vars, list(values), expand_composites=True)

    def goes_on(iteration: Tensor, *values: Tensor) -> Tensor:
        more = cond(*packed(values))
        return more if maximum_iterations is None else tf.logical_and(
            more, iteration < maximum_iterations)

    def next_values(iteration: Tensor, *values: Tensor) -> list[Tensor]:
        after = body(*packed(values))
        after = after if len(loop_vars) > 1 or isinstance(after, (list, tuple)) else [after]
        return [iteration + 1, *tf.nest.flatten(after, expand_composites=True)]

    _, *results = _in_step(replicas, goes_on, next_values, [0, *flat])
    outputs = packed(results)
    return outputs[0] if len(loop_vars) == 1 and not return_same_structure else outputs


def _receiving(body: Callable[..., Structure],
               infeed_queue: InfeedQueue | None) -> Callable[..., Structure]:
    return body if infeed_queue is None else lambda *values: body(*values, *received(infeed_queue))


def _running_all(body: Callable[..., Structure]) -> Callable[..., list[Tensor | tf.Operation]]:
    def run(*values: Tensor) -> list[Tensor | tf.Operation]:
        graph = tf.compat.v1.get_default_graph()
        start = len(graph.get_operations())
        return [*_as_list(body(*values)), *replicated_graph.writes_since(graph, start)]

    return run


def _in_step(replicas: ReplicatedGraph, condition: Callable[..., Tensor],
             body: Callable[..., Structure],
             inputs: Sequence[Tensor | int]) -> Structure:
    """Builds one loop over the tensors of all replicas."""
    first = [tf.convert_to_tensor(value) for value in inputs]
    count = len(first) or 1  # a loop needs a tensor
    loops = replicas.copies(first or [tf.constant(0)])

    def shares(values: Sequence[Tensor]) -> list[list[Tensor]]:
        return [[tf.identity(value) for value in values[start:start + count]]
                for start in range(0, len(values), count)]

    def goes_on(*values: Tensor) -> Tensor:
        return tf.reduce_any(_conditions(replicas, condition, shares(values), len(first)))

    def iteration(*values: Tensor) -> list[Tensor]:
        before = shares(values)
        going = _conditions(replicas, condition, before, len(first))
        return _iteration(replicas, body, before, going, len(first))

    results = while_v2.while_loop(goes_on, iteration, [value for loop in loops for value in loop],
                                  parallel_iterations=1, return_same_structure=False)
    outputs = shares(_as_list(results))
    replicas.add_known(outputs)
    return outputs[0][0] if count == 1 else outputs[0]


def _conditions(outer: ReplicatedGraph, condition: Callable[..., Tensor],
                before: Sequence[Sequence[Tensor]], arity: int) -> Tensor:
    """Returns whether each replica continues, `[replicas]` bools."""
    with (core_values.CoreContext(),
          replica_graphs.building(ReplicatedGraph(before, outer)) as replicas):
        going = tf.reshape(tf.convert_to_tensor(condition(*before[0][:arity])), [])
        return tf.stack([copy for (copy,) in replicas.copies([going])])


def _iteration(outer: ReplicatedGraph, body: Callable[..., Structure],
               before: Sequence[Sequence[Tensor]], going: Tensor, arity: int) -> list[Tensor]:
    """Returns the next tensors of all replicas; those of a finished replica do not change."""
    with (core_values.CoreContext(),
          replica_graphs.building(ReplicatedGraph(before, outer)) as replicas):
        outputs = _as_list(body(*before[0][:arity]))
        is_op = [isinstance(output, tf.Operation) for output in outputs]
        if is_op != sorted(is_op):
            raise ValueError("TPU training loop body must return zero or more Tensor values "
                             f"followed by zero or more Operations, got {outputs!r}.")
        ops = [output for output in outputs if isinstance(output, tf.Operation)]
        tensors = [tf.convert_to_tensor(output) for output in outputs[:len(outputs) - len(ops)]]
        _check_types(before[0][:arity], tensors)
        after = replicas.copies(tensors or [before[0][0]])
        writes = replicas.writes()
    outer.has_sums |= replicas.has_sums
    if replicas.has_sums or writes:
        ops.append(tf.debugging.Assert(tf.reduce_all(going), [_DISAGREE, going]))
    goes_on = tf.unstack(going)
    chosen = [tf.where(goes_on[replica], new, old) for replica in range(len(before))
              for new, old in zip(after[replica], before[replica], strict=True)]
    with tf.control_dependencies([*ops, *writes]):
        return [tf.identity(value) for value in chosen]


def _check_types(before: Sequence[Tensor], after: Sequence[Tensor]) -> None:
    types = [[tensor.dtype for tensor in tensors] for tensors in (before, after)]
    if types[0] != types[1]:
        raise TypeError("Mismatch between input types and output types for training loop body: "
                        f"{types[0]} vs {types[1]}")


def _as_list(values: Structure) -> list[Structure]:
    return list(values) if isinstance(values, (list, tuple)) else [values]
