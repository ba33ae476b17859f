# SPDX-License-Identifier: Apache-2.0
"""Chooses the backend and prepares the ids of a step for it.

Prepared ids run ahead of the step that uses them, and are pure: they can wait in a queue or
cross a `tf.function`. What they are made of is the business of the engine alone.
"""

from tpu_estimator_embedding.engine.backend import (
    Backend,
    EnqueueDatas,
    Exchange,
    Replicas,
    StepIds,
)
from tpu_estimator_embedding.engine.native.backend import NATIVE
from tpu_estimator_embedding.engine.native.exchange import NATIVE_EXCHANGE
from tpu_estimator_embedding.engine.native.exchanged_ids import ExchangedIds
from tpu_estimator_embedding.engine.native.prepared_ids import PreparedIds
from tpu_estimator_embedding.engine.native.rule_attributes import has_kernel
from tpu_estimator_embedding.engine.tf_ops.backend import TF_OPS
from tpu_estimator_embedding.engine.tf_ops.exchange import TF_OPS_EXCHANGE
from tpu_estimator_embedding.engine.tf_ops.exchanged_rows import ExchangedRows
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


def shard_ids(plan: EmbeddingPlan, enqueue_datas: EnqueueDatas, batch_size: Tensor, *,
              training: bool, uniform: bool = False) -> StepIds:
    """Checks the ids of a step and prepares them for lookup and update.

    Args:
        plan: the tables and features.
        enqueue_datas: the ids of every feature of the plan, by feature name.
        batch_size: scalar, samples in the step.
        training: whether gradients will follow; if so, duplicates are found here.
        uniform: as for `shard_replicas`.

    Returns:
        The ids of every table: a nest of tensors.

    Raises:
        TypeError: if ids are not enqueued as EnqueueData or RaggedEnqueueData.
        ValueError: if `enqueue_datas` has other features than the plan, ids are not
            integers, or a sequence has no positions.
        tf.errors.InvalidArgumentError: when run, if an id is not in the vocabulary, sample
            indices are not in order or not in the batch, or weights and ids differ in number.
    """
    return shard_replicas(plan, [(enqueue_datas, batch_size)], training=training, uniform=uniform)


def shard_replicas(plan: EmbeddingPlan, replicas: Replicas, *, training: bool,
                   portable: bool = False, uniform: bool = False,
                   on_servers: bool = False, as_sums: bool = False) -> StepIds:
    """As `shard_ids`, for several replicas, whose activations are concatenated along axis 0.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size, as `shard_ids` takes them.
        training: whether gradients will follow.
        portable: whether to use TensorFlow's own ops only.
        uniform: whether the result must have the same structure for all batches of the plan,
            with or without weights, so that they can wait in one queue.
        on_servers: whether the tables are in other tasks. Then lookups and updates exchange as
            few tensors and bytes with these as they can, with the same results.
        as_sums: whether servers may return sums only. Otherwise merged steps of several tasks
            may differ from one task in the last bits.
    """
    is_native = not portable and can_be_native(plan)
    if on_servers and plan.tables:
        backend = NATIVE_EXCHANGE if is_native else TF_OPS_EXCHANGE
    else:
        backend = NATIVE if is_native else TF_OPS
    if as_sums and backend.exchange is not None:
        return backend.exchange.to_sums(plan, replicas, training, uniform)
    return backend.to_step_ids(plan, replicas, training, uniform)


def row_counts(plan: EmbeddingPlan, ids: StepIds) -> dict[str, Tensor]:
    """Returns the rows of activations of each replica, `[replicas]` int64, by table name.

    The rows of a replica are those of its features, in the order of the plan.
    """
    return backend_of(ids).row_counts(plan, ids)


def backend_of(ids: StepIds) -> Backend:
    """Returns the backend that prepared the ids, which must also look them up."""
    by_type = {PreparedIds: NATIVE, ExchangedIds: NATIVE_EXCHANGE, ExchangedRows: TF_OPS_EXCHANGE}
    return by_type.get(type(ids), TF_OPS)


def exchange_of(ids: StepIds) -> Exchange:
    """Returns how ids that were made with `on_servers=True` are exchanged."""
    exchange = backend_of(ids).exchange
    assert exchange is not None, "the ids are for tables of this process"
    return exchange


def is_native(ids: StepIds) -> bool:
    """Whether compiled ops prepared the ids."""
    return backend_of(ids) in (NATIVE, NATIVE_EXCHANGE)


def describe_kernels(plan: EmbeddingPlan, *, portable: bool = False) -> str:
    """Describes the kernels that the engine uses for a plan, for logs.

    >>> describe_kernels(EmbeddingPlan((), ()))
    'TF ops'
    """
    return load.description() if not portable and can_be_native(plan) else "TF ops"


def can_be_native(plan: EmbeddingPlan) -> bool:
    """Whether compiled ops can run a plan; they neither quantize nor run a user's own rules."""
    has_kernels = all(
        table.quantization is None
        and (table.optimizer is None or has_kernel(table.optimizer.rule))
        for table in plan.tables)
    return bool(plan.tables) and has_kernels and load.native_ops() is not None
