# SPDX-License-Identifier: Apache-2.0
"""`tpu.shard` without a TPU: a computation replicated over shares of its inputs."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.replicas.tpu_computations import (
    split_compile_and_replicate,
    stand_in,
)
from tpu_estimator_embedding.types import Tensor


@stand_in
def shard(computation: Callable[..., Any], inputs: Any = None, num_shards: int = 1,
          input_shard_axes: Sequence[int] | None = None,
          outputs_from_all_shards: bool | Sequence[bool] = True,
          output_shard_axes: Sequence[int] | None = None, infeed_queue: Any = None,
          device_assignment: Any = None, name: str | None = None,
          xla_options: Any = None) -> list[Any]:
    """Splits the inputs, replicates the computation and concatenates the outputs.

    Args:
        computation: called once, with the first share of every input.
        inputs: a list of tensors whose sizes `num_shards` divides.
        num_shards: replicas.
        input_shard_axes: for each input, the axis to split; by default 0.
        outputs_from_all_shards: for each output, or for all, whether the outputs of all
            replicas are concatenated; otherwise the first one's is returned.
        output_shard_axes: for each output, the axis to concatenate along; by default 0.
        infeed_queue: must be None, because there is no infeed without a TPU.
        device_assignment: is ignored, as are `name` and `xla_options`.

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


@stand_in
def batch_parallel(computation: Callable[..., Any], inputs: Any = None, num_shards: int = 1,
                   infeed_queue: Any = None, device_assignment: Any = None,
                   name: str | None = None, xla_options: Any = None) -> list[Any]:
    """Returns the result of `shard`, with every input and output split along axis 0."""
    return shard(computation, inputs, num_shards, infeed_queue=infeed_queue,
                 device_assignment=device_assignment, name=name, xla_options=xla_options)


@stand_in
def split_compile_and_shard(
        computation: Callable[..., Any], inputs: Any = None, num_shards: int = 1,
        input_shard_axes: Sequence[int] | None = None,
        outputs_from_all_shards: bool | Sequence[bool] = True,
        output_shard_axes: Sequence[int] | None = None, infeed_queue: Any = None,
        device_assignment: Any = None, name: str | None = None,
        xla_options: Any = None) -> tuple[Tensor, list[Any]]:
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


def _join(outputs: Sequence[Any], from_all: bool | Sequence[bool],
          axes: Sequence[int] | None) -> list[Any]:
    count = len(outputs[0])
    axes = _per_item(axes, count, "output_shard_axes", "outputs")
    from_all = [from_all] * count if isinstance(from_all, bool) else from_all
    _per_item(from_all, count, "outputs_from_all_shards", "outputs")
    return [(tf.stack(parts) if parts[0].shape.rank == 0 else tf.concat(parts, axis))
            if is_whole else parts[0]
            for axis, is_whole, *parts in zip(axes, from_all, *outputs, strict=True)]


def _per_item(given: Sequence[Any] | None, count: int, argument: str, items: str) -> Sequence[Any]:
    if given is None:
        return [0] * count
    if len(given) != count:
        raise ValueError(f"Length of {argument} must be equal to the number of {items}. Received "
                         f"{count} {items} and {len(given)} {argument}.")
    return given
