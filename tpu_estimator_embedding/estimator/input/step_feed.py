# SPDX-License-Identifier: Apache-2.0
"""Turns the result of an input_fn into a queue of prepared steps."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.estimator.cluster import cluster_of
from tpu_estimator_embedding.estimator.input.embedding_hook import EmbeddingHook
from tpu_estimator_embedding.estimator.input.feeding import Feeding
from tpu_estimator_embedding.estimator.input.input_modes import read_input
from tpu_estimator_embedding.estimator.input.step_input import StepInput, to_step_input
from tpu_estimator_embedding.estimator.machine_context import MachineContext
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan


def feed_steps(plan: EmbeddingPlan, ctx: MachineContext, input_fn: Callable[[Any], Any], *,
               training: bool, batch_axis: Sequence[int] | None = None,
               tensor_core_columns: Sequence[Any] = (),
               is_stopping: Callable[[], bool] = lambda: False, as_sums: bool = False
               ) -> tuple[StepInput, EmbeddingHook]:
    """Returns the input of a step, prepared ahead of it, and the hook that feeds it.

    Args:
        plan: the tables and features.
        ctx: the context, in the mode to run.
        input_fn: called with the `TPUContext` of an invocation.
        training: whether gradients will be applied.
        batch_axis: as for `split_batch`.
        tensor_core_columns: columns whose padded ids the model_fn gets.
        is_stopping: as for `EmbeddingHook`.
        as_sums: see `shard_replicas`.
    """
    embedding_keys = {key for feature in plan.features
                      for key in (feature.name, feature.weight_key) if key is not None}
    embedding_keys |= {column.get_feature_key_name() for column in tensor_core_columns}
    with tf.device("/device:CPU:0"):
        reading = read_input(ctx, input_fn, embedding_keys, batch_axis)
        _warn_of_queues()
        feeding = Feeding(reading, functools.partial(
            to_step_input, plan, training=training, tensor_core_columns=tensor_core_columns,
            on_servers=training and bool(cluster_of(ctx.config).servers), as_sums=as_sums),
            in_one_run=_may_take_long(ctx.config))
        taken = feeding.queue.dequeue()
        hook = EmbeddingHook(reading, feeding, feeding.queue.num_left(taken),
                             mark_end=training and plan.pipelined,
                             sleep_secs=ctx.config.tpu_config.initial_infeed_sleep_secs or 0,
                             is_stopping=is_stopping)
        return taken, hook


def _may_take_long(config: Any) -> bool:
    """Whether a run may last as long as training: not on servers, nor where runs time out.

    RunOptions without a timeout would do, but with them TensorFlow warns when the input ends.
    """
    session_config = config.session_config
    has_timeout = session_config is not None and session_config.operation_timeout_in_ms > 0
    return not has_timeout and not cluster_of(config).servers


def _warn_of_queues() -> None:
    # Upstream's sentence. Such an input works: the session starts its threads.
    if tf.compat.v1.get_collection(tf.compat.v1.GraphKeys.QUEUE_RUNNERS):
        tf.compat.v1.logging.warning(
            "Input pipeline contains one or more QueueRunners. It could be slow and not scalable. "
            "Please consider converting your input pipeline to use `tf.data` instead (see "
            "https://www.tensorflow.org/guide/data for instructions).")
