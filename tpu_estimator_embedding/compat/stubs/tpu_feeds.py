# SPDX-License-Identifier: Apache-2.0
"""The infeed and outfeed of every core, on this machine: channels of the process.

Each holds `DEPTH` elements, as a TPU's buffers hold a few batches; adding another one waits for the
peer. Feeding, training and collecting may happen in different graphs, sessions and threads.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import tensorflow as tf
from tensorflow.python.distribute import tpu_util
from tensorflow.python.tpu.ops import tpu_ops

from tpu_estimator_embedding import checks, settings
from tpu_estimator_embedding.channels.channel import Channel
from tpu_estimator_embedding.compat.stubs import tpu_cores, tpu_system
from tpu_estimator_embedding.ops import replica_graphs
from tpu_estimator_embedding.types import Tensor

DEPTH = 8  # elements of an infeed or outfeed; documented in docs/tpu_programs.rst

Tensors = Sequence[Tensor]
Shape: TypeAlias = tf.TensorShape | Sequence[int | None]
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _infeed(core: int) -> Channel:
    return Channel(f"infeed of core {core}", DEPTH)


def _outfeed(core: int) -> Channel:
    return Channel(f"outfeed of core {core}", DEPTH)


def stub(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Passes the call to TensorFlow if there is a TPU, or its context."""
    on_a_tpu = getattr(tpu_ops, function.__name__)

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        if tpu_system.is_present() or tpu_util.enclosing_tpu_context() is not None:
            return on_a_tpu(*arguments, **named)
        return function(*arguments, **named)

    return call


@stub
def infeed_enqueue(input: Tensor, shape: Shape = (), layout: object = (), device_ordinal: int = -1,
                   name: str | None = None) -> tf.Operation:
    """Adds one tensor to the infeed of a core; arguments as in `infeed_enqueue_tuple`."""
    return _enqueue([input], [shape] if shape else None, device_ordinal, name)


@stub
def infeed_enqueue_tuple(inputs: Tensors, shapes: Sequence[Shape] | None, layouts: object = (),
                         device_ordinal: int = -1, name: str | None = None) -> tf.Operation:
    """Adds tensors, as one element, to the infeed of a core; waits while it is full.

    Args:
        inputs: the tensors.
        shapes: their shapes.
        layouts: is ignored: tensors on this machine have one layout.
        device_ordinal: the core, on the host that the device of the op names.
        name: of the op.

    Raises:
        ValueError: if the host has no such core, or a tensor does not have its shape.
    """
    return _enqueue(inputs, shapes, device_ordinal, name)


@stub
def prelinearize(input: Tensor, shape: Shape = (), layout: object = (),
                 name: str | None = None) -> Tensor:
    """Returns the tensor itself, which `infeed_enqueue_prelinearized_buffer` takes."""
    return tf.ensure_shape(input, shape, name=name) if shape else tf.identity(input, name=name)


@stub
def prelinearize_tuple(inputs: Tensors, shapes: Sequence[Shape] | None, layouts: object = (),
                       name: str | None = None) -> list[Tensor]:
    """Returns the tensors themselves, which `infeed_enqueue_prelinearized_buffer` takes."""
    return _with_shapes(inputs, shapes)


@stub
def infeed_enqueue_prelinearized_buffer(input: Any, device_ordinal: int = -1,
                                        name: str | None = None) -> tf.Operation:
    """Adds what `prelinearize` or `prelinearize_tuple` returned to the infeed of a core."""
    inputs = list(input) if isinstance(input, (list, tuple)) else [input]
    return _enqueue(inputs, None, device_ordinal, name)


@stub
def infeed_dequeue(dtype: tf.DType, shape: Shape, name: str | None = None) -> Tensor:
    """Takes one tensor from the infeed of the core that runs the computation."""
    [value] = _dequeue_for_replicas([tf.TensorSpec(shape, dtype)], name)
    return value


@stub
def infeed_dequeue_tuple(dtypes: Sequence[tf.DType], shapes: Sequence[Shape],
                         name: str | None = None) -> list[Tensor]:
    """Takes the tensors of one element from the infeed of the core that runs the computation.

    Args:
        dtypes, shapes: of the tensors, as they were enqueued.
        name: of the op.

    Raises:
        TypeError: if a dtype cannot be fed to a TPU.
        tf.errors.InvalidArgumentError: when the op runs, if the element has others.
    """
    return _dequeue_for_replicas(
        [tf.TensorSpec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)], name)


@stub
def outfeed_enqueue(input: Tensor, name: str | None = None) -> tf.Operation:
    """Adds one tensor to the outfeed of the core that runs the computation."""
    return _enqueue_of_replicas([input], name)


@stub
def outfeed_enqueue_tuple(inputs: Tensors, name: str | None = None) -> tf.Operation:
    """Adds tensors, as one element, to the outfeed of the core that runs the computation."""
    return _enqueue_of_replicas(inputs, name)


@stub
def outfeed_dequeue(dtype: tf.DType, shape: Shape, device_ordinal: int = -1,
                    name: str | None = None) -> Tensor:
    """Takes one tensor from the outfeed of a core; arguments as in `outfeed_dequeue_tuple`."""
    [value] = _collect([tf.TensorSpec(shape, dtype)], device_ordinal, name)
    return value


@stub
def outfeed_dequeue_tuple(dtypes: Sequence[tf.DType], shapes: Sequence[Shape],
                          device_ordinal: int = -1,
                          name: str | None = None) -> list[Tensor]:
    """Takes the tensors of one element from the outfeed of a core; waits until there is one.

    Args:
        dtypes, shapes: of the tensors, as the computation enqueues them.
        device_ordinal: the core, on the host that the device of the op names.
        name: of the op.
    """
    return _collect([tf.TensorSpec(shape, dtype)
                     for shape, dtype in zip(shapes, dtypes, strict=True)], device_ordinal, name)


def core_named(device_ordinal: int) -> int:
    """Returns the core that an ordinal names, on the host of the device that an op would have.

    Raises:
        TypeError: if the ordinal is a tensor.
        ValueError: if there is no such core.
    """
    if tf.is_tensor(device_ordinal):
        raise TypeError(f"`device_ordinal` must be an int, got {device_ordinal!r}. Make one op for "
                        "each core.")
    device = tf.no_op(name="core").device
    num_cores = settings.num_cores() or 1
    if device_ordinal == -1 and "TPU" not in device and num_cores > settings.num_hosts():
        raise ValueError(
            "`device_ordinal` must be the number of a core on its host where the op is not on a "
            f"TPU, got -1 with {num_cores} cores. Pass device_ordinal, or the "
            "tpu_ordinal_function of an InfeedQueue.")
    device_ordinal = 0 if device_ordinal == -1 and "TPU" not in device else device_ordinal
    if settings.num_cores() or settings.num_hosts() > 1 or device_ordinal == -1:
        return tpu_cores.core_of(device, device_ordinal)
    # As many cores as the program has replicas, on one host.
    checks.check(device_ordinal >= 0, "device_ordinal", "the number of a core", device_ordinal)
    return device_ordinal


def _enqueue(inputs: Tensors, shapes: Sequence[Shape] | None, device_ordinal: int,
             name: str | None) -> tf.Operation:
    inputs = _with_shapes(inputs, shapes)
    return _infeed(core_named(device_ordinal)).put(inputs, name)


def _with_shapes(inputs: Tensors, shapes: Sequence[Shape] | None) -> list[Tensor]:
    inputs = [tf.convert_to_tensor(value) for value in inputs]
    if shapes is None:
        return inputs
    checks.check(len(shapes) == len(inputs), "shapes", f"a shape for each of {len(inputs)} inputs",
                 list(shapes))
    for number, (value, shape) in enumerate(zip(inputs, shapes, strict=True)):
        checks.check(value.shape.is_compatible_with(shape), f"inputs[{number}]",
                     f"of the shape in `shapes`, {tf.TensorShape(shape)}", value)
    return [tf.ensure_shape(value, shape) for value, shape in zip(inputs, shapes, strict=True)]


def _dequeue_for_replicas(specs: Sequence[tf.TensorSpec], name: str | None) -> list[Tensor]:
    for spec in specs:
        if spec.dtype not in tpu_ops._SUPPORTED_INFEED_DTYPES:
            raise TypeError(f"{spec.dtype} is not a supported TPU infeed type. Supported types "
                            f"are: {list(tpu_ops._SUPPORTED_INFEED_DTYPES)}")
    replicas = replica_graphs.current_for_each("tpu_ops.infeed_dequeue")
    taken = [[tf.identity(value) for value in _infeed(core).take(specs, name)]
             for core in replica_graphs.current_cores()]
    if replicas is not None:
        replicas.add_inputs(taken)
    return taken[0]


def _enqueue_of_replicas(inputs: Tensors, name: str | None) -> tf.Operation:
    inputs = [tf.convert_to_tensor(value) for value in inputs]
    replicas = replica_graphs.current_for_each("tpu_ops.outfeed_enqueue")
    copies = [inputs] if replicas is None else replicas.late_copies(inputs)
    return tf.group(*[_outfeed(core).put(values, name) for core, values in zip(
        replica_graphs.current_cores(), copies, strict=True)])


def _collect(specs: Sequence[tf.TensorSpec], device_ordinal: int,
             name: str | None) -> list[Tensor]:
    return _outfeed(core_named(device_ordinal)).take(specs, name)
