# SPDX-License-Identifier: Apache-2.0
"""The ids of every feature of a step, checked and in coordinate (COO) format.

All ids of all features are checked before any id is returned, so a step cannot change one table and
then fail on the ids of another.
"""

import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import (
    EnqueueData,
    RaggedEnqueueData,
    feature_tensors,
)
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.ops import id_checks, sparse_ids
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import SparseIds, weights_or_ones, without_negative
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.plan.stacked_feature import StackedFeature
from tpu_estimator_embedding.types import Tensor


def checked_ids(plan: EmbeddingPlan, enqueue_datas: EnqueueDatas,
                batch_size: Tensor) -> dict[str, SparseIds]:
    """Checks the ids of a step and converts them to coordinate (COO) format.

    Args:
        plan: the tables and features.
        enqueue_datas: the ids of every feature of the plan, by feature name.
        batch_size: scalar int64, samples in the step.

    Returns:
        The ids of every feature, by feature name.

    Raises:
        TypeError: if ids are not enqueued as EnqueueData or RaggedEnqueueData.
        ValueError: if ids are not integers, or a sequence has no positions.
        tf.errors.InvalidArgumentError: when run, if an id is not in the vocabulary, sample
            indices are not in the batch, or weights and ids differ in number.
    """
    datas = {feature.name: _tensors(feature, enqueue_datas[feature.name])
             for feature in plan.features}
    assertions = [op for feature in plan.features for op in _checks(
        plan, feature, datas[feature.name], batch_size)]
    with tf.control_dependencies(assertions):
        datas = {name: type(data)._make(None if tensor is None else tf.identity(tensor)
                                  for tensor in data) for name, data in datas.items()}
    return {feature.name: _to_sparse_ids(feature, datas[feature.name])
            for feature in plan.features}


def unchecked_ids(plan: EmbeddingPlan, enqueue_datas: EnqueueDatas) -> dict[str, SparseIds]:
    """Returns ids in coordinate (COO) format without checking them again, by feature name."""
    return {feature.name: _to_sparse_ids(feature, _tensors(feature, enqueue_datas[feature.name]))
            for feature in plan.features}


def _tensors(feature: FeaturePlan,
             data: EnqueueData | RaggedEnqueueData) -> EnqueueData | RaggedEnqueueData:
    """Flattens ids and weights, and casts ids and places to int64; None stays None."""
    ids, places, weights = feature_tensors(feature, data)
    return type(data)(tf.cast(tf.reshape(ids, [-1]), tf.int64),
                      None if places is None else tf.cast(places, tf.int64), weights)


def _checks(plan: EmbeddingPlan, feature: FeaturePlan, data: EnqueueData | RaggedEnqueueData,
            batch_size: Tensor) -> list[tf.Operation]:
    ids, places, weights = data
    name, num_ids = feature.name, tf.size(ids, out_type=tf.int64)
    batch_size = batch_size * feature.samples_per_unit
    found = id_checks.check_ids(ids, name, plan.vocabulary_size(feature))
    if weights is not None:
        found += id_checks.check_aligned(tf.size(weights, out_type=tf.int64), num_ids,
                                         "weights", name)
    if places is None:
        return found + id_checks.check_sample_count(num_ids, batch_size, name)
    if isinstance(data, RaggedEnqueueData):
        return [*found, *id_checks.check_row_splits(places, name),
                *id_checks.check_sample_count(tf.size(places, out_type=tf.int64) - 1, batch_size,
                                              name),
                *id_checks.check_aligned(places[-1], num_ids, "row splits", name)]
    samples = places if places.shape.rank == 1 else places[:, 0]
    return [*found, *id_checks.check_aligned(tf.shape(places, tf.int64)[0], num_ids,
                                             "sample indices", name),
            *id_checks.check_samples(samples, batch_size, name)]


def _to_sparse_ids(feature: FeaturePlan, data: EnqueueData | RaggedEnqueueData) -> SparseIds:
    ids, places, weights = data
    if places is None:
        return sparse_ids.one_id_per_sample(ids, weights)
    if isinstance(data, RaggedEnqueueData):
        return sparse_ids.from_row_splits(ids, places, weights, feature.max_sequence_length)
    return sparse_ids.in_order(sparse_ids.from_coordinates(
        ids, places, weights, feature.max_sequence_length), feature.name)


def to_stack_rows(stacked: StackedFeature, ids: SparseIds, num_rows: Tensor) -> SparseIds:
    """Returns rows of the stack, whose weights contain the factors of the combiner.

    Tables of one stack may have different combiners, so the stack itself has none.

    Args:
        stacked: the table and its stack.
        ids: the checked ids of the feature.
        num_rows: scalar, rows of its activations.
    """
    ids = without_negative(ids)
    scales = row_scales(stacked.combiner, ids, num_rows)
    weights = ids.weights
    if scales is not None:
        weights = weights_or_ones(ids) * tf.gather(scales, ids.rows)
    return SparseIds(stacked.row(ids.ids), ids.rows, weights)
