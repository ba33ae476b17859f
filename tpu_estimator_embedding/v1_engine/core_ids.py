# SPDX-License-Identifier: Apache-2.0
"""The ids of one core's share of a batch, and their concatenation over all cores."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import EnqueueDatas, StepIds
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData, RaggedEnqueueData
from tpu_estimator_embedding.engine.step_ids import shard_ids, shard_replicas
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor


class Share(NamedTuple):
    """How batches are split over cores.

    Attributes:
        plan: the tables and features.
        batch_size: samples of one core's share.
        num_cores: number of shares of a batch.
        training: whether the engine can be trained.
    """

    plan: EmbeddingPlan
    batch_size: int
    num_cores: int
    training: bool


class CoreIds(NamedTuple):
    """The checked ids of one core; their structure is the same for every batch.

    Attributes:
        own: the prepared ids of this core, for the lookup. If there is only one core, the
            update uses them too.
        joinable: feature name -> ids, sample indices and weights, from which `join_cores`
            prepares the ids of the update. Empty if there is only one core, or no training.
    """

    own: StepIds
    joinable: Mapping[str, EnqueueData]

    def without_own(self) -> "CoreIds":
        """Returns the ids that the update needs, without those that only the lookup needs."""
        return self._replace(own=()) if self.joinable else self


def core_ids(share: Share, enqueue_datas: EnqueueDatas) -> CoreIds:
    """Checks the ids of one core.

    Args:
        share: how the batch is split.
        enqueue_datas: feature name -> ids.
    """
    is_alone = share.num_cores == 1
    own = shard_ids(share.plan, enqueue_datas, share.batch_size,
                    training=share.training and is_alone, uniform=True)
    if is_alone or not share.training:
        return CoreIds(own, {})
    checked = [leaf for leaf in tf.nest.flatten(own) if leaf is not None]
    with tf.control_dependencies(checked):
        return CoreIds(own, {
            feature.name: _with_all_parts(feature, enqueue_datas[feature.name])
            for feature in share.plan.features})


def join_cores(share: Share, cores: Sequence[CoreIds]) -> StepIds:
    """Combines the ids of all cores into the prepared ids of one update."""
    if share.num_cores == 1:
        return cores[0].own
    return shard_replicas(share.plan, [(core.joinable, share.batch_size) for core in cores],
                          training=True, uniform=True)


def example_ids(share: Share) -> CoreIds:
    """Returns placeholders, in the default graph, with the structure of every batch's ids."""
    return core_ids(share, {feature.name: EnqueueData(
        tf.compat.v1.placeholder(tf.int64, [None]),
        tf.compat.v1.placeholder(tf.int64, [None, 2])) for feature in share.plan.features})


def _with_all_parts(feature: FeaturePlan,
                    data: EnqueueData | RaggedEnqueueData) -> EnqueueData:
    ids, places, weights = data
    ids = tf.cast(tf.reshape(ids, [-1]), tf.int64)
    weights = tf.ones_like(ids, tf.float32) if weights is None else sparse_ids.flat_weights(weights)
    return EnqueueData(ids, _coordinates(feature, data, tf.size(ids, tf.int64), places), weights)


def _coordinates(feature: FeaturePlan, data: EnqueueData | RaggedEnqueueData, count: Tensor,
                 places: Tensor | None) -> Tensor:
    """Returns the sample `[n]` of each id, or sample and position `[n, 2]` for a sequence."""
    if places is None:
        return tf.range(count)
    places = tf.cast(places, tf.int64)
    if isinstance(data, RaggedEnqueueData):
        samples = sparse_ids.samples_of_rows(places, count)
        positions = tf.range(count) - tf.gather(places, samples)
        return tf.stack([samples, positions], 1) if feature.max_sequence_length else samples
    if feature.max_sequence_length or places.shape.rank == 1:
        return places
    return places[:, 0]
