# SPDX-License-Identifier: Apache-2.0
"""Calls an input_fn in the mode of `TPUConfig.per_host_input_for_training`.

=============  ===================  ====================================================
mode           calls of input_fn    a replica gets
=============  ===================  ====================================================
PER_SHARD_V1   one per replica (1)  the next batch of its own call
PER_HOST_V1    one                  its share of the next batch
PER_HOST_V2    one                  the next batch
BROADCAST      one                  the whole next batch, the same as all others
SLICED (2)     one                  its share of the next batch
=============  ===================  ====================================================

(1) in training; evaluation uses PER_HOST_V1. (2) `eval_training_input_configuration`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tpu_estimator_embedding.estimator.input import input_reader
from tpu_estimator_embedding.estimator.input.input_reader import Reading
from tpu_estimator_embedding.estimator.machine_context import MachineContext
from tpu_estimator_embedding.estimator.upstream import tpu_context


def read_input(ctx: MachineContext, input_fn: Callable[[tpu_context.TPUContext], Any],
               embedding_keys: Iterable[str], batch_axis: Sequence[int] | None) -> Reading:
    """Calls the input_fn and reads the batches of one step.

    Args:
        ctx: the context, in the mode to run.
        input_fn: called with the `TPUContext` of an invocation.
        embedding_keys: features that are ids or weights.
        batch_axis: the constructor's argument.
    """
    if ctx.is_input_sharded_per_core():
        return input_reader.batch_of_each([input_fn(_invocation(ctx, replica))
                                           for replica in range(ctx.num_replicas)])
    result = input_fn(_invocation(ctx, 0))
    if ctx.is_input_slice_broadcast_to_all_cores():
        return input_reader.shared_batch(result, ctx.num_replicas, embedding_keys, batch_axis)
    if ctx.is_input_broadcast_with_iterators():
        return input_reader.batch_for_all(result, ctx.num_replicas)
    if ctx.is_input_per_host_with_iterators():
        return input_reader.successive_batches(result, ctx.num_replicas)
    return input_reader.shared_batch(result, ctx.num_replicas, embedding_keys, batch_axis)


def _invocation(ctx: MachineContext, index: int) -> tpu_context.TPUContext:
    return tpu_context.TPUContext(
        ctx, input_device=ctx.tpu_host_placement_function(host_id=0), invocation_index=index,
        host_id=0)
