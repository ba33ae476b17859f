# SPDX-License-Identifier: Apache-2.0
"""Converts ids of features to ids of stacks, and rows of stacks to activations.

Every local core computes the activations of its share of the samples of each feature. The order
of cores sorts the rows of a stack by core, then feature; the order of features sorts them by
feature.
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.engine.checked_ids import checked_ids, to_stack_rows, unchecked_ids
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import StackIds
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import FeaturePlace, Stacks
from tpu_estimator_embedding.ops.sparse_ids import SparseIds, weights_or_ones
from tpu_estimator_embedding.plan.embedding_plan import FeaturePlan
from tpu_estimator_embedding.types import Tensor


def stack_ids(stacks: Stacks, datas: EnqueueDatas) -> dict[str, StackIds]:
    """Checks the ids of all features, and concatenates those of each stack.

    Args:
        stacks: the tables and features.
        datas: path -> ids of the feature.

    Returns:
        Stack name -> ids in the order of features; gains include the combiners.

    Raises:
        The errors of the engine's `checked_ids`.
    """
    ids = checked_ids(stacks.feature_plan, datas, tf.constant(1, tf.int64))
    return {name: _concatenated(stacks, name, ids) for name in stacks.stacks}


def unchecked_stack_ids(stacks: Stacks, name: str, datas: EnqueueDatas) -> StackIds:
    """Concatenates the ids of one stack like `stack_ids`; the engine checked them before."""
    return _concatenated(stacks, name, unchecked_ids(stacks.feature_plan_of(name), datas))


def by_core(stacks: Stacks, name: str, ids: StackIds) -> StackIds:
    """Converts the rows of ids from the order of features to the order of cores; does not sort."""
    places = [place for place in stacks.features.values() if place.stack == name]
    num_cores = stacks.cores.num_sc_per_chip
    rows = tf.concat([tf.reshape(tf.range(num_cores, dtype=tf.int64)[:, tf.newaxis]
                                 * (stacks.sample_count(name) // num_cores) + tf.range(
                                     first, first + count, dtype=tf.int64), [-1])
                      for first, count in (_share(stacks, place) for place in places)], 0)
    return ids._replace(rows=tf.gather(rows, ids.rows))


def engine_ids(ids: StackIds, rows_per_shard: int) -> EnqueueData:
    """Converts ids, sorted by rows of activations, to EnqueueData."""
    return EnqueueData(ids.shards * rows_per_shard + ids.tokens, ids.rows, ids.gains)


def split_cores(stacks: Stacks, name: str, activations: Tensor) -> dict[str, Tensor]:
    """Returns path -> `output_shape + [dim]`, from the activations of a stack.

    Args:
        stacks: the tables and features.
        name: name of the stack.
        activations: `[samples, padded dimension]`, in the order of cores.
    """
    cores = stacks.cores.num_sc_per_chip
    by_core = tf.reshape(activations, [cores, -1, stacks.stacks[name].shape[1]])
    split = {}
    for path, place in stacks.features.items():
        if place.stack == name:
            shape = stacks.activation_shapes[path]
            first, count = place.first // cores, place.sample_count // cores
            split[path] = tf.reshape(by_core[:, first:first + count, :shape[-1]], shape)
    return split


def join_cores(stacks: Stacks, name: str, gradients: Mapping[str, Tensor]) -> Tensor:
    """Returns `[samples, padded dimension]` in the order of cores, the inverse of `split_cores`.

    Args:
        stacks: the tables and features.
        name: name of the stack.
        gradients: path -> `output_shape + [dim]` of every feature.
    """
    cores, width = stacks.cores.num_sc_per_chip, stacks.stacks[name].shape[1]
    parts = [tf.reshape(padded(gradients[path], width), [cores, -1, width])
             for path, place in stacks.features.items() if place.stack == name]
    return tf.reshape(tf.concat(parts, 1), [-1, width])


def padded(gradient: Tensor, width: int) -> Tensor:
    """Pads the gradient with columns of zeros to the width of the stack: `[rows, width]`."""
    dimension = gradient.shape[-1]
    rows = tf.reshape(gradient, [-1, dimension])
    return rows if dimension == width else tf.pad(rows, [[0, 0], [0, width - dimension]])


def _share(stacks: Stacks, place: FeaturePlace) -> tuple[int, int]:
    """Returns the first row of a feature on each core, and its number of rows per core."""
    num_cores = stacks.cores.num_sc_per_chip
    return place.first // num_cores, place.sample_count // num_cores


def _concatenated(stacks: Stacks, name: str, ids: Mapping[str, SparseIds]) -> StackIds:
    plans = {feature.name: feature for feature in stacks.feature_plan.features}
    parts = [_stack_ids(plans[path], place, ids[path])
             for path, place in stacks.features.items() if place.stack == name]
    return StackIds(*(tf.concat(each, 0) for each in zip(*parts, strict=True)))


def _stack_ids(feature: FeaturePlan, place: FeaturePlace, ids: SparseIds) -> StackIds:
    stacked = feature.stacked
    assert stacked is not None
    ids = to_stack_rows(stacked, ids, tf.constant(place.sample_count, tf.int64))
    rows_per_shard = stacked.stack.rows_per_shard
    return StackIds(ids.ids // rows_per_shard, ids.ids % rows_per_shard, ids.rows + place.first,
                    weights_or_ones(ids))
