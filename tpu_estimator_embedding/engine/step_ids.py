# SPDX-License-Identifier: Apache-2.0
"""Chooses the backend and prepares the ids of a step for it.

Prepared ids run ahead of the step that uses them, and are pure: they can wait in a queue or
cross a `tf.function`. What they are made of is the business of the engine alone.
"""

from collections.abc import Sequence

from tpu_estimator_embedding.engine.native.exchanged_ids import prepare_exchanged_ids
from tpu_estimator_embedding.engine.native.prepared_ids import (
    prepare_native_ids,
    training_ids_of,
)
from tpu_estimator_embedding.engine.native.rule_attributes import has_kernel
from tpu_estimator_embedding.engine.step import EnqueueDatas, Replicas, StepIds
from tpu_estimator_embedding.engine.tf_ops.sharded_ids import prepare_sharded_ids
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.ops.nests import tensors_of
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, TablePlan
from tpu_estimator_embedding.types import Tensor


def prepare_ids(plan: EmbeddingPlan, enqueue_datas: EnqueueDatas, batch_size: Tensor | int, *,
                training: bool, uniform: bool = False) -> StepIds:
    """Checks the ids of a step and prepares them for lookup and update.

    Args:
        plan: the tables and features.
        enqueue_datas: the ids of every feature of the plan, by feature name.
        batch_size: scalar, samples in the step.
        training: whether gradients will follow; if so, duplicates are found here.
        uniform: as for `prepare_replicas`.

    Returns:
        The ids of every table: a nest of tensors.

    Raises:
        TypeError: if ids are not enqueued as EnqueueData or RaggedEnqueueData.
        ValueError: if `enqueue_datas` has other features than the plan, ids are not
            integers, or a sequence has no positions.
        tf.errors.InvalidArgumentError: when run, if an id is not in the vocabulary, sample
            indices are not in the batch, or weights and ids differ in number.
    """
    return prepare_replicas(plan, [(enqueue_datas, batch_size)], training=training, uniform=uniform)


def prepare_replicas(plan: EmbeddingPlan, replicas: Replicas, *, training: bool,
                     portable: bool = False, uniform: bool = False,
                     on_servers: bool = False, sums_only: bool = False) -> StepIds:
    """As `prepare_ids`, for several replicas, whose activations are concatenated along axis 0.

    Args:
        plan: the tables and features.
        replicas: for every replica its ids and batch size, as `prepare_ids` takes them.
        training: whether gradients will follow.
        portable: whether to use TensorFlow's own ops only.
        uniform: whether the result must have the same structure for all batches of the plan,
            with or without weights, so that they can wait in one queue.
        on_servers: whether the tables are in other tasks. Then the result is a
            `StepIdsOnServers`, whose lookups and updates exchange as few tensors and bytes with
            these tasks as they can, with the same results.
        sums_only: whether servers may return sums only. Otherwise merged steps of several tasks
            may differ from one task in the last bits.

    Raises:
        RuntimeError: if the tables are on servers and this task has no native kernels.
        ValueError: if they are on servers and the kernels do not support a table.
    """
    if on_servers and plan.tables:
        check_can_train_on_servers(plan)
        return prepare_exchanged_ids(plan, replicas, training, uniform, sums_only=sums_only)
    prepare = prepare_native_ids if not portable and can_be_native(plan) else prepare_sharded_ids
    return prepare(plan, replicas, training, uniform)


def native_tensors(ids: StepIds) -> tuple[Tensor, ...]:
    """Returns the tensors of ids for training, for `from_native_tensors`; none without kernels."""
    return tuple(tensors_of(ids)) if ids.is_native and ids.are_for_training else ()


def from_native_tensors(tensors: Sequence[Tensor]) -> StepIds | None:
    """Returns the ids with these `native_tensors`; None if there are none."""
    return training_ids_of(tensors) if tensors else None


def describe_kernels(plan: EmbeddingPlan, *, portable: bool = False) -> str:
    """Describes the kernels that the engine uses for a plan, for logs.

    >>> describe_kernels(EmbeddingPlan((), ()))
    'TF ops'
    """
    return load.description() if not portable and can_be_native(plan) else "TF ops"


def can_be_native(plan: EmbeddingPlan) -> bool:
    """Whether compiled ops can run a plan; they neither quantize nor run a user's own rules."""
    are_supported = all(_has_kernel(table) for table in plan.tables)
    return bool(plan.tables) and are_supported and load.native_ops() is not None


def check_can_train_on_servers(plan: EmbeddingPlan) -> None:
    """Raises RuntimeError without native kernels, ValueError for a table they do not support."""
    if plan.tables and load.native_ops() is None:
        raise RuntimeError(
            "Training on parameter servers requires the native kernels, and this task has none: "
            f"{load.kernels().reason}. Run `{load.COMMAND}` on every machine of the cluster.")
    unsupported = [table.name for table in plan.tables if not _has_kernel(table)]
    if unsupported:
        raise ValueError(
            f"Tables {unsupported} cannot train on parameter servers: the native kernels support "
            "neither quantization nor custom update rules. Train them in one process.")


def _has_kernel(table: TablePlan) -> bool:
    return table.quantization is None and (
        table.optimizer is None or has_kernel(table.optimizer.rule))
