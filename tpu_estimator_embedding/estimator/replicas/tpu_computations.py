# SPDX-License-Identifier: Apache-2.0
"""`tpu.rewrite`, `tpu.replicate` and `tpu.shard` without a TPU: computations on this machine.

A computation is built once, as for a TPU, and copied for every further replica;
cross-replica sums add up the values of all copies, and variables are written once."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import tensorflow as tf
from tensorflow.python.compiler.xla import xla
from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu import tpu, tpu_function

from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.estimator.replicas import replicated_graph
from tpu_estimator_embedding.estimator.replicas.replicated_graph import ReplicatedGraph
from tpu_estimator_embedding.ops import core_values, replica_graphs
from tpu_estimator_embedding.types import Structure, Tensor

COMPILED = b""  # the serialized CompilationResultProto of a compilation without an error


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_Item = TypeVar("_Item")


class InfeedQueue(Protocol):
    """What this package uses of TensorFlow's `InfeedQueue`."""

    @property
    def number_of_tuple_elements(self) -> int: ...

    def set_number_of_shards(self, number_of_shards: int) -> None: ...

    def generate_dequeue_op(self) -> Sequence[Tensor]: ...


def stub(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Passes the call to TensorFlow if there is a TPU, or its context."""
    on_a_tpu = getattr(tpu, function.__name__)

    @functools.wraps(on_a_tpu)
    def call(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        if is_for_a_tpu():
            return on_a_tpu(*arguments, **named)
        return function(*arguments, **named)

    return call


def is_for_a_tpu() -> bool:
    """Whether TensorFlow's own functions are to be called."""
    return tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None


@stub
def rewrite(computation: Callable[..., Structure], inputs: Sequence[Structure] | None = None,
            infeed_queue: InfeedQueue | None = None,
            device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
            name: str | None = None, xla_options: object = None) -> Structure:
    """Returns the result of the computation, in the form of `replicate`."""
    return replicate(computation, None if inputs is None else [inputs], infeed_queue,
                     device_assignment, name, xla_options=xla_options)[0]


@stub
def replicate(computation: Callable[..., Structure],
              inputs: Sequence[Sequence[Structure]] | None = None,
              infeed_queue: InfeedQueue | None = None,
              device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
              name: str | None = None, maximum_shapes: Structure = None,
              padding_spec: object = None, xla_options: object = None) -> list[Structure]:
    """Builds a computation for every list of inputs.

    Args:
        computation: called once, with the inputs of the first replica.
        inputs: for each replica, the list of its inputs; None is one replica without any.
        infeed_queue: an `InfeedQueue`, whose tensors the computation gets after its inputs.
        device_assignment: says which core each replica is, whose infeed it receives; by default
            replica r is core r.
        name: is ignored, as are `padding_spec` and `xla_options`.
        maximum_shapes: is checked to have the structure of the inputs; nothing is padded.

    Returns:
        For each replica, the result of the computation: a list of tensors if it is one tensor or
        a flat sequence, an op if there are no tensors.

    Raises:
        TypeError: the inputs are not lists, or their number does not fit the computation.
        ValueError: the inputs of the replicas differ, the computation returns something
            that is neither a tensor nor an op, or it cannot be copied.
        RuntimeError: there is no graph to build, because operations run eagerly.
    """
    return split_compile_and_replicate(
        computation, inputs, infeed_queue, device_assignment, name, maximum_shapes=maximum_shapes,
        padding_spec=padding_spec, xla_options=xla_options)[1]


@stub
def split_compile_and_replicate(
        computation: Callable[..., Structure], inputs: Sequence[Sequence[Structure]] | None = None,
        infeed_queue: InfeedQueue | None = None,
        device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
        name: str | None = None, use_tpu: bool = True, maximum_shapes: Structure = None,
        padding_spec: object = None, xla_options: object = None) -> list[Structure]:
    """Returns a successful compilation result, and the result of `replicate`."""
    inputs = [[]] if inputs is None else inputs
    _check_graph()
    _check_inputs(computation, inputs, infeed_queue, maximum_shapes)
    if not inputs:
        return [tf.constant(COMPILED), []]
    with replica_graphs.on_cores(_cores_of(device_assignment, len(inputs))):
        outputs = _build(computation, inputs, infeed_queue)
    return [tf.constant(COMPILED, name="compilation_status"), outputs]


def _cores_of(device_assignment: tf.tpu.experimental.DeviceAssignment | None,
              num_replicas: int) -> list[int]:
    if device_assignment is None:
        return list(range(num_replicas))
    if device_assignment.num_replicas < num_replicas:
        raise ValueError(
            f"`device_assignment` must have the {num_replicas} replicas of the computation, got "
            f"{device_assignment.num_replicas}. Build it with num_replicas={num_replicas}.")
    topology = device_assignment.topology
    return [tpu_cores.core_of(
        device_assignment.host_device(replica), device_assignment.tpu_ordinal(replica),
        num_cores=topology.num_tasks * topology.num_tpus_per_task, num_hosts=topology.num_tasks)
        for replica in range(num_replicas)]


def _check_graph() -> None:
    if tf.executing_eagerly():
        raise RuntimeError("tpu.rewrite, tpu.replicate and tpu.shard build a graph: call them "
                           "under tf.Graph().as_default() or in a tf.function.")


def _check_inputs(computation: Callable[..., Structure], inputs: Sequence[Sequence[Structure]],
                  infeed_queue: InfeedQueue | None, maximum_shapes: Structure) -> None:
    if not isinstance(inputs, list) or not all(
            isinstance(of_replica, (list, tuple)) for of_replica in inputs):
        received = [type(of_replica) for of_replica in inputs] if isinstance(
            inputs, list) else type(inputs)
        raise TypeError("tpu.replicate() inputs must be a list of lists/tuples, received "
                        f"{received}. Write [[x, y]] for one replica with two inputs.")
    for of_replica in inputs[1:]:
        if len(of_replica) != len(inputs[0]):
            raise ValueError(
                f"Replicas must have the same number of inputs. Replica 0 had {len(inputs[0])} "
                f"inputs, another had {len(of_replica)}.")
        tf.nest.assert_same_structure(inputs[0], of_replica, expand_composites=True)
    if inputs and maximum_shapes:
        tf.nest.assert_same_structure(inputs[0], maximum_shapes, check_types=False)
    needed = inputs and xla.check_function_argument_count(
        computation, len(inputs[0]), infeed_queue)
    if needed:
        fed = infeed_queue and (
            f" and {infeed_queue.number_of_tuple_elements} additional inputs from infeed")
        raise TypeError("Supplied computation cannot be called with the specified inputs. You "
                        f"specified {len(inputs[0])} inputs{fed or ''}, but the computation needs "
                        f"{needed}.")


def _build(computation: Callable[..., Structure], inputs: Sequence[Sequence[Structure]],
           infeed_queue: InfeedQueue | None) -> list[Structure]:
    """Builds the computation for the first replica, and copies it for the others."""
    flat = [[value if value is None else tf.convert_to_tensor(value) for value in
             tf.nest.flatten(of_replica, expand_composites=True)] for of_replica in inputs]
    _check_dtypes(flat)
    first = [values[0] if values[0] is None else _input(values)
             for values in zip(*flat, strict=True)]
    graph = tf.compat.v1.get_default_graph()
    start = len(graph.get_operations())
    arguments = tf.nest.pack_sequence_as(inputs[0], first, expand_composites=True)
    with (core_values.CoreContext(), _shards(len(flat)), _resource_variables(),
          contextlib.ExitStack() as stack):
        replicas = None if len(flat) == 1 else stack.enter_context(replica_graphs.building(
            ReplicatedGraph([[value for value in of_replica if value is not None]
                             for of_replica in (first, *flat[1:])])))
        outputs = computation(*arguments, *received(infeed_queue))
    structure, tensors, ops = _tensors_and_ops(outputs)
    wanted = [tensor for tensor in tensors if tensor is not None]
    copies = replicas.copies(wanted) if replicas else [wanted]
    ops = [*ops, *replicated_graph.writes_since(graph, start)]
    if not tensors:
        return [tf.group(*ops, name=f"shard_{replica}") for replica in range(len(flat))]
    with tf.control_dependencies(ops):
        return [tf.nest.pack_sequence_as(structure, _in_places(tensors, of_replica, replica),
                                         expand_composites=True)
                for replica, of_replica in enumerate(copies)]


def received(infeed_queue: InfeedQueue | None) -> list[Tensor]:
    """Returns the tensors that a replica receives in each run, none without an infeed queue.

    Raises:
        ValueError: there are no replicas to feed.
    """
    if infeed_queue is None:
        return []
    count = tpu_function.get_tpu_context().number_of_shards
    if count is None:
        raise ValueError("Can't build training loop with infeed when there is no "
                         "tpu_shard_context. Build it in a computation of tpu.shard, "
                         "tpu.replicate or tpu.rewrite.")
    infeed_queue.set_number_of_shards(count)
    return list(infeed_queue.generate_dequeue_op())


def _check_dtypes(flat: Sequence[Sequence[Tensor | None]]) -> None:
    types = [[None if value is None else value.dtype for value in of_replica]
             for of_replica in flat]
    for replica, found in enumerate(types):
        if found != types[0]:
            raise ValueError(f"Replicas must have matching input types. Replica 0 had input types "
                             f"{types[0]}, replica {replica} had input types {found}")


def _input(values: Sequence[Tensor]) -> Tensor:
    """Returns an input of the first replica, with the static shape that all replicas have."""
    shape = functools.reduce(lambda one, other: one.most_specific_compatible_shape(other),
                             [value.shape for value in values])
    if shape.as_list() == values[0].shape.as_list() if shape.rank is not None else len(values) == 1:
        return tf.identity(values[0], name="input")
    return tf.compat.v1.placeholder_with_default(values[0], shape, name="input")


@contextlib.contextmanager
def _shards(count: int) -> Iterator[None]:
    if count == 1 and tpu_function.get_tpu_context().number_of_shards is not None:
        yield  # a computation of replicas within another one belongs to its replicas
        return
    with tpu_function.tpu_shard_context(count):
        yield


@contextlib.contextmanager
def _resource_variables() -> Iterator[None]:
    """Creates variables as a TPU needs them: unpartitioned resources."""
    scope = tf.compat.v1.get_variable_scope()
    use_resource, saved = scope.use_resource, scope.custom_getter

    def whole(getter: Callable[..., tf.Variable], name: str, *arguments: object,
              **named: Any) -> tf.Variable:
        if named.get("partitioner") is not None:
            named["partitioner"] = None
            tf.compat.v1.logging.warning(
                "Partitioned variables are not supported on TPU: %s is created as a single "
                "part.", name)
        return saved(getter, name, *arguments, **named) if saved else getter(
            name, *arguments, **named)

    scope.set_use_resource(True)
    scope.set_custom_getter(whole)
    try:
        yield
    finally:
        scope.set_use_resource(use_resource)
        scope.set_custom_getter(saved)


def _tensors_and_ops(
        outputs: Structure) -> tuple[Structure, list[Tensor | None], list[tf.Operation]]:
    """Returns the structure of the outputs without ops, their tensors, and their ops.

    Raises:
        ValueError: one is neither, or ops are not last in a flat sequence.
    """
    is_flat = xla.is_flat(outputs)
    if is_flat:
        outputs = [] if outputs is None else tf.nest.flatten(outputs)
    flat = [_tensor_or_op(output) for output in tf.nest.flatten(outputs, expand_composites=True)]
    ops = [output for output in flat if isinstance(output, tf.Operation)]
    if not is_flat and ops:
        raise ValueError("tpu.rewrite does not support Operation as return value in non-flat "
                         "output structure. Make the tensors wait for it by "
                         f"tf.control_dependencies. Operation found: {ops[0].name!r}")
    tensors = flat[:len(flat) - len(ops)]
    if any(isinstance(output, tf.Operation) for output in tensors):
        raise ValueError("TPU functions must return zero-or more Tensor values followed by zero "
                         f"or more Operations, got {outputs!r}.")
    return outputs[:len(outputs) - len(ops)] if is_flat else outputs, tensors, ops


def _tensor_or_op(output: object) -> Tensor | tf.Operation | None:
    if output is None or isinstance(output, tf.Operation):
        return output
    try:
        return tf.convert_to_tensor(output)
    except (TypeError, ValueError) as error:
        raise ValueError("TPU function return values must all either be Operations or "
                         f"convertible to Tensors. Got error: {error}") from error


def _in_places(tensors: Sequence[Tensor | None], copies: Sequence[Tensor],
               replica: int) -> list[Tensor | None]:
    """Returns the outputs of a replica, each a separate op, with None where it was."""
    remaining = iter(copies)
    return [None if tensor is None else tf.identity(
        next(remaining), name=f"output_{position}_shard_{replica}")
        for position, tensor in enumerate(tensors)]


@stub
def shard(computation: Callable[..., Structure], inputs: list[Tensor] | None = None,
          num_shards: int = 1, input_shard_axes: Sequence[int] | None = None,
          outputs_from_all_shards: bool | Sequence[bool] = True,
          output_shard_axes: Sequence[int] | None = None, infeed_queue: InfeedQueue | None = None,
          device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
          name: str | None = None, xla_options: object = None) -> list[Tensor] | list[tf.Operation]:
    """Splits the inputs, replicates the computation and concatenates the outputs.

    Args:
        computation: called once, with the first share of every input.
        inputs: a list of tensors whose sizes `num_shards` divides.
        num_shards: replicas.
        input_shard_axes: for each input, the axis to split; by default 0.
        outputs_from_all_shards: for each output, or for all, whether the outputs of all
            replicas are concatenated; otherwise the first one's is returned.
        output_shard_axes: for each output, the axis to concatenate along; by default 0.
        infeed_queue, device_assignment: as in `replicate`.
        name: is ignored, as is `xla_options`.

    Returns:
        The outputs; scalars are stacked. One op if there are none.

    Raises:
        TypeError: `inputs` is not a list, or as in `replicate`.
        ValueError: `num_shards` is not positive, the number of axes differs from that of
            inputs or outputs, or as in `replicate`.
    """
    return split_compile_and_shard(
        computation, inputs, num_shards, input_shard_axes, outputs_from_all_shards,
        output_shard_axes, infeed_queue, device_assignment, name, xla_options)[1]


@stub
def batch_parallel(computation: Callable[..., Structure], inputs: list[Tensor] | None = None,
                   num_shards: int = 1, infeed_queue: InfeedQueue | None = None,
                   device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
                   name: str | None = None,
                   xla_options: object = None) -> list[Tensor] | list[tf.Operation]:
    """Returns the result of `shard`, with every input and output split along axis 0."""
    return shard(computation, inputs, num_shards, infeed_queue=infeed_queue,
                 device_assignment=device_assignment, name=name, xla_options=xla_options)


@stub
def split_compile_and_shard(
        computation: Callable[..., Structure], inputs: list[Tensor] | None = None,
        num_shards: int = 1, input_shard_axes: Sequence[int] | None = None,
        outputs_from_all_shards: bool | Sequence[bool] = True,
        output_shard_axes: Sequence[int] | None = None, infeed_queue: InfeedQueue | None = None,
        device_assignment: tf.tpu.experimental.DeviceAssignment | None = None,
        name: str | None = None,
        xla_options: object = None) -> tuple[Tensor, list[Tensor] | list[tf.Operation]]:
    """Returns a successful compilation result, and the result of `shard`."""
    if num_shards <= 0:
        raise ValueError(f"num_shards must be a positive integer. Received {num_shards}")
    inputs = [] if inputs is None else inputs
    if not isinstance(inputs, list):
        raise TypeError("tpu.shard()'s inputs must be a list of Tensors or None. "
                        f"Received {type(inputs)}")
    axes = _per_item(input_shard_axes, len(inputs), "input_shard_axes", "inputs")
    shares = [tf.split(tensor, num_shards, axis) for tensor, axis in zip(inputs, axes, strict=True)]
    by_replica = [[share[replica] for share in shares] for replica in range(num_shards)]
    compiled, outputs = split_compile_and_replicate(
        computation, by_replica, infeed_queue, device_assignment, name, xla_options=xla_options)
    if isinstance(outputs[0], tf.Operation):
        return compiled, [outputs[0]]
    return compiled, _join(outputs, outputs_from_all_shards, output_shard_axes)


def _join(outputs: Sequence[Sequence[Tensor]], from_all: bool | Sequence[bool],
          axes: Sequence[int] | None) -> list[Tensor]:
    count = len(outputs[0])
    axes = _per_item(axes, count, "output_shard_axes", "outputs")
    from_all = [from_all] * count if isinstance(from_all, bool) else from_all
    _per_item(from_all, count, "outputs_from_all_shards", "outputs")
    return [(tf.stack(parts) if parts[0].shape.rank == 0 else tf.concat(parts, axis))
            if is_whole else parts[0]
            for axis, is_whole, *parts in zip(axes, from_all, *outputs, strict=True)]


def _per_item(given: Sequence[_Item] | None, count: int, argument: str,
              items: str) -> Sequence[_Item] | Sequence[int]:
    if given is None:
        return [0] * count
    if len(given) != count:
        raise ValueError(f"Length of {argument} must be equal to the number of {items}. Received "
                         f"{count} {items} and {len(given)} {argument}.")
    return given
