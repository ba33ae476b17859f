# SPDX-License-Identifier: Apache-2.0
"""The input of one step, from the result of an input_fn to what the model_fn is given."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.sharded_ids import ShardedIds, shard_ids
from tpu_estimator_embedding.estimator.embedding_hook import EmbeddingHook
from tpu_estimator_embedding.estimator.input_queue import InputQueue
from tpu_estimator_embedding.estimator.split_features import split_features
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import Tensor


class StepInput(NamedTuple):
    """Everything a step consumes.

    Attributes:
        ids: table name -> ids of the step, ready for the engine.
        features: the features that are no embedding ids.
        labels: the labels, or None.
        batch_size: samples in the step: an int where it is known, else a scalar tensor.
    """

    ids: Mapping[str, ShardedIds]
    features: Any
    labels: Any
    batch_size: Tensor | int


def prepare(plan: EmbeddingPlan, features: Any, labels: Any, *, training: bool) -> StepInput:
    """Splits features and deals ids out to tables and hosts; errors come up here."""
    with tf.device("/device:CPU:0"):
        split = split_features(plan, features)
        ids = shard_ids(plan, split.enqueue_datas, split.batch_size, training=training)
        return StepInput(ids, split.others, labels, split.batch_size)


def from_input_fn_result(plan: EmbeddingPlan, result: Any, *,
                         training: bool) -> tuple[StepInput, EmbeddingHook]:
    """Returns the input of a step, prepared one step ahead, and the hook that drives it.

    Args:
        plan: the tables and features.
        result: a Dataset, or a nest of tensors that each run evaluates anew: `features`
            or `(features, labels)`.
        training: whether gradients will be applied.
    """
    with tf.device("/device:CPU:0"), tf.name_scope("input"):
        initializer = None
        if isinstance(result, tf.data.Dataset):
            iterator = tf.compat.v1.data.make_initializable_iterator(result)
            initializer, result = iterator.initializer, iterator.get_next()
        step = prepare(plan, *features_and_labels(result), training=training)
        queue = InputQueue(step._replace(batch_size=tf.cast(step.batch_size, tf.int64)))
        dequeued = queue.dequeue()
        if isinstance(step.batch_size, int):
            dequeued = dequeued._replace(batch_size=step.batch_size)
        return dequeued, EmbeddingHook(initializer, queue.runner)


def features_and_labels(result: Any) -> tuple[Any, Any]:
    """Returns `(features, labels)`; labels are None where the input has none."""
    if not isinstance(result, list | tuple):
        return result, None
    checks.check(len(result) == 2, "the result of input_fn", "features or (features, labels)",
                 result)
    return result[0], result[1]
