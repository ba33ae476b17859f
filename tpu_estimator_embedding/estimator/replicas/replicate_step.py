# SPDX-License-Identifier: Apache-2.0
"""Runs a model that was built for one replica on several replicas.

A model_fn is called once, as on a TPU. The ops that depend on its inputs are copied for every
further replica, and every cross-replica sum adds the values of all copies; what replicas exchange
goes from copy to copy. Only the first replica updates the model's variables, summaries and the
global step; each replica updates its own of the variables that every core has (`core_values`).

Tensors of `eval_metrics` and `host_call` are concatenated along their first axis, so that
metrics are those of the whole batch. The loss of an evaluation is the mean over replicas;
in training the first replica's loss is reported, as on a TPU.
"""

from collections.abc import Hashable, Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.compat import upstream
from tpu_estimator_embedding.compat.stubs import tpu_ops
from tpu_estimator_embedding.estimator.replicas import op_kinds
from tpu_estimator_embedding.estimator.replicas.graph_copy import copy_subgraph
from tpu_estimator_embedding.ops import core_values
from tpu_estimator_embedding.ops.graph_rewrites import set_input
from tpu_estimator_embedding.ops.graph_walk import ops_run_by
from tpu_estimator_embedding.types import EstimatorSpec, Structure, Tensor

_MANY_OPS = 10_000  # which take seconds to copy
_EVAL = upstream.model_fn.ModeKeys.EVAL


def replicate(tensors: Sequence[Tensor | tf.Operation], inputs: Sequence[Sequence[Tensor]],
              sums: Sequence[tf.Operation] | None = None) -> list[list[Tensor | tf.Operation]]:
    """Copies the model for every replica and connects the cross-replica sums.

    Args:
        tensors: the tensors wanted from every replica, and the ops wanted of it that write to
            variables of each core.
        inputs: for each replica, its input tensors, in the same order. The model in the default
            graph was built on those of the first one.
        sums: the sums to connect; None means all in the default graph.

    Returns:
        For each replica, its copies of `tensors`.

    Raises:
        ValueError: if the model cannot be copied, or a function takes one core's variable where
            another op takes each core's.
        AssertionError: if an input of one replica does not correspond to one of another.
    """
    sums = cross_replica_sums() if sums is None else sums
    targets = [*tensors, *(op.inputs[0] for op in sums), *(op.outputs[0] for op in sums)]
    copies = [targets]
    ops = tf.compat.v1.get_default_graph().get_operations()
    of_cores = [op for op in ops if core_values.is_core_value(op)
                and len(core_values.values_of(op)) == len(inputs)]
    _check_functions_take_core_values(of_cores, targets)
    for index, replica_inputs in enumerate(inputs[1:], start=1):
        if len(ops) > _MANY_OPS:
            tf.compat.v1.logging.info(
                "tpu_estimator_embedding: copying a graph of %d ops for replica %d of %d",
                len(ops), index, len(inputs))
        replaced = dict(_replacements(inputs[0], replica_inputs))
        replaced.update((op.outputs[0].ref(), core_values.values_of(op)[index]) for op in of_cores)
        with tf.device(_device(index)):
            copies.append(copy_subgraph(targets, replaced, f"replica_{index}", index))
    for op in of_cores:
        core_values.use_first(op)
    wanted = [copy[:len(tensors)] for copy in copies]
    for position, op in enumerate(sums, start=len(tensors)):
        addends = [copy[position] for copy in copies]
        outputs = [copy[position + len(sums)] for copy in copies]
        exchange = tpu_ops.exchange(op)
        if exchange is None:
            _connect_sum(addends, outputs, tpu_ops.group_assignment(op), tpu_ops.is_gathered(op))
            continue
        for output, received in zip(outputs, exchange.received(addends), strict=True):
            set_input(output.op, 0, received)
    return wanted


def _check_functions_take_core_values(of_cores: Sequence[tf.Operation],
                                      targets: Sequence[Tensor | tf.Operation]) -> None:
    """Refuses functions that would use the first core's variable in every replica.

    In a function there is no enclosing context, so a library that looks for one takes the first
    variable. Loops over all replicas take those of the others as well.
    """
    handles = [core_values.values_of(op)[0] for op in of_cores
               if op.outputs[0].dtype == tf.resource]
    run = ops_run_by(targets) if handles else set()
    found = sorted({(user.name, handle.op.name) for handle in handles
                    for user in handle.consumers()
                    if user in run and any(op_kinds.called_functions(user.node_def))})
    checks.check_with_sentence(
        not found, "A function, conditional or loop must not capture a per-core variable, got "
        f"{found}.", "Get the handle of each core's variable outside, with "
        "get_replicated_var_handle of the context, and use it inside.")


def has_cross_replica_sum() -> bool:
    """Whether the model in the default graph has cross-replica sums.

    Raises:
        ValueError: if one is within a function, a loop or a condition.
    """
    return bool(cross_replica_sums())


def cross_replica_sums(start: int = 0) -> list[tf.Operation]:
    """Returns the sums and exchanges among the ops of the default graph.

    Args:
        start: number of the first op to look at.

    Raises:
        ValueError: if one is in a function, a loop or a condition.
    """
    graph = tf.compat.v1.get_default_graph()
    ops = graph.get_operations()[start:]
    sums = [op for op in ops if tpu_ops.is_stub(op)]
    hidden = [op.name for op in sums if op._get_control_flow_context() is not None]
    hidden += _sums_in_functions(graph, ops)
    checks.check_with_sentence(
        not hidden, "With several replicas, cross_replica_sum must be called outside of "
        f"tf.function, tf.while_loop and tf.cond, got {hidden}.",
        "Sum before them, loop by tpu.training_loop within tpu.replicate, or set num_shards=1 in "
        "TPUConfig.")
    return sums


def _sums_in_functions(graph: tf.Graph, ops: Sequence[tf.Operation]) -> list[str]:
    """Returns the names of the sums in functions that the ops call, directly or indirectly."""
    functions = {function.signature.name: function
                 for function in graph.as_graph_def().library.function}
    found, seen = [], set()
    waiting = [called.name for op in ops for called in op_kinds.called_functions(op.node_def)]
    while waiting:
        name = waiting.pop()
        if name not in seen and name in functions:
            seen.add(name)
            for node in functions[name].node_def:
                found += [f"{name}/{node.name}"] * tpu_ops.is_stub_node(node)
                waiting += [called.name for called in op_kinds.called_functions(node)]
    return found


def _replacements(first: Sequence[Tensor], replica: Sequence[Tensor]) -> Mapping[Hashable, Tensor]:
    """Returns reference of an input of the first replica -> the one of another in its place."""
    if len(first) != len(replica):
        raise AssertionError("Replicas must have the same inputs, got "
                             f"{len(first)} and {len(replica)} tensors.")
    replaced: dict[Hashable, Tensor] = {}
    for before, after in zip(first, replica, strict=True):
        known = replaced.setdefault(before.ref(), after)
        if known is not after or before.dtype != after.dtype:
            raise AssertionError(
                f"Input {before!r} of the first replica must correspond to one tensor of another "
                f"replica, got {known!r} and {after!r}.")
    return replaced


def _connect_sum(addends: Sequence[Tensor], outputs: Sequence[Tensor],
                 groups: list[list[int]] | None, is_gathered: bool) -> None:
    for group in groups or [list(range(len(addends)))]:
        parts = [addends[replica] for replica in group]
        total = tf.concat(parts, 0) if is_gathered else tf.add_n(parts)
        for replica in group:
            set_input(outputs[replica].op, 0, total)


def _device(index: int) -> str | None:
    gpus = tf.config.list_logical_devices("GPU")
    return f"/device:GPU:{index % len(gpus)}" if gpus else None


def replica_tensors(spec: EstimatorSpec) -> dict[str, Structure]:
    """Returns the nest of tensors of a spec that differ by replica.

    Raises:
        RuntimeError: if one of them is a scalar.
    """
    tensors: dict[str, Structure] = {}
    if not isinstance(spec, upstream.model_fn._TPUEstimatorSpec):
        return tensors
    for name in ("eval_metrics", "host_call"):
        call = getattr(spec, name)
        if call is not None:
            tensors[name] = call[1]
            _check_have_batch(name, call[1])
    if spec.mode == _EVAL:
        tensors["loss"] = spec.loss
    return tensors


def _check_have_batch(name: str, tensors: Structure) -> None:
    scalars = [tensor for tensor in map(tf.convert_to_tensor, tf.nest.flatten(tensors))
               if tensor.shape.rank == 0]
    if scalars:
        raise RuntimeError("All tensors outfed from TPU should preserve batch size dimension, but "
                           f"got scalar {scalars[0]}. Reshape a scalar of {name} to [1].")


def over_all_replicas(spec: EstimatorSpec, replicas: Sequence[Mapping[str, Structure]],
                      counted: Tensor | None = None) -> EstimatorSpec:
    """Returns the spec with the tensors of all replicas instead of the first one's.

    Args:
        spec: the result of the model_fn.
        replicas: for every replica, its `replica_tensors`.
        counted: `[replicas]` bools: whose tensors count; None means all.
    """
    first = replicas[0]
    if not first:
        return spec
    changed: dict[str, object] = {}
    for name in ("eval_metrics", "host_call"):
        if name in first:
            gathered = tf.nest.map_structure(lambda *parts: _gathered(parts, counted),
                                             *[tensors[name] for tensors in replicas])
            changed[name] = (getattr(spec, name)[0], gathered)
    if "loss" in first:
        losses = tf.stack([tensors["loss"] for tensors in replicas])
        changed["loss"] = tf.reduce_mean(losses if counted is None else
                                         tf.boolean_mask(losses, counted))
    # Constructed again, because the class caches host_call and eval_metrics.
    return type(spec)(**{**spec._asdict(), **changed})


def _gathered(parts: Sequence[Tensor], counted: Tensor | None) -> Tensor:
    if counted is not None:
        parts = [part[:tf.where(is_counted, tf.shape(part)[0], 0)]
                 for part, is_counted in zip(parts, tf.unstack(counted), strict=True)]
    return tf.concat(parts, 0)
