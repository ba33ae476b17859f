# SPDX-License-Identifier: Apache-2.0
"""From the ids of features to those of stacks, and from rows of stacks to activations.

Every local core computes the activations of its share of the samples of each feature. In the
order of cores, the rows of a stack are those of the first core, feature by feature, then those
of the second; in the order of features, those of the first feature, then those of the second.
"""

from collections.abc import Mapping

import tensorflow as tf

from tpu_estimator_embedding.engine.backend import EnqueueDatas
from tpu_estimator_embedding.engine.checked_ids import checked_ids
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import StackIds
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import FeaturePlace, Stacks
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import weights_or_ones, without_negative
from tpu_estimator_embedding.types import Tensor

CORES, FEATURES = "cores", "features"  # orders of the rows of a stack


def stack_ids(stacks: Stacks, datas: EnqueueDatas) -> dict[str, StackIds]:
    """Checks the ids of all features, and puts those of each stack together.

    Args:
        stacks: the tables and features.
        datas: path -> ids of the feature.

    Returns:
        Stack name -> ids, in whose gains the combiners are, in the order of features.

    Raises:
        Those of the engine's `checked_ids`.
    """
    by_stack: dict[str, list[StackIds]] = {name: [] for name in stacks.stacks}
    for path, place in stacks.features.items():
        by_stack[place.stack].append(_ids_of_feature(stacks, path, place, datas))
    return {name: StackIds(*(tf.concat(parts, 0) for parts in zip(*ids, strict=True)))
            for name, ids in by_stack.items()}


def by_core(stacks: Stacks, name: str, ids: StackIds) -> StackIds:
    """Returns ids in the order of features with the rows that cores compute, unsorted."""
    places = [place for place in stacks.features.values() if place.stack == name]
    num_cores = stacks.cores.num_sc_per_chip
    rows = tf.concat([tf.reshape(tf.range(num_cores, dtype=tf.int64)[:, tf.newaxis]
                                 * (stacks.sample_count(name) // num_cores) + tf.range(
                                     first, first + count, dtype=tf.int64), [-1])
                      for first, count in (_share(stacks, place) for place in places)], 0)
    return ids._replace(rows=tf.gather(rows, ids.rows))


def engine_ids(ids: StackIds, rows_per_shard: int) -> EnqueueData:
    """Returns ids in the order of activations as the engine takes them."""
    return EnqueueData(ids.shards * rows_per_shard + ids.tokens, ids.rows, ids.gains)


def split_stack(stacks: Stacks, name: str, activations: Tensor,
                order: str) -> dict[str, Tensor]:
    """Returns path -> `output_shape + [dim]`, from the activations of a stack.

    Args:
        stacks: the tables and features.
        name: name of the stack.
        activations: `[samples, padded dimension]`.
        order: whether the rows are in the order of `CORES`, or of `FEATURES`.
    """
    cores = stacks.cores.num_sc_per_chip if order == CORES else 1
    by_core = tf.reshape(activations, [cores, -1, stacks.stacks[name].shape[1]])
    split = {}
    for path, place in stacks.features.items():
        if place.stack == name:
            shape = stacks.activation_shapes[path]
            first, count = place.first // cores, place.sample_count // cores
            split[path] = tf.reshape(by_core[:, first:first + count, :shape[-1]], shape)
    return split


def join_gradients(stacks: Stacks, name: str, gradients: Mapping[str, Tensor],
                   order: str) -> Tensor:
    """Returns `[samples, padded dimension]`: `split_stack` backwards.

    Args:
        stacks: the tables and features.
        name: name of the stack.
        gradients: path -> `output_shape + [dim]` of every feature.
        order: as for `split_stack`.
    """
    cores = stacks.cores.num_sc_per_chip if order == CORES else 1
    width, parts = stacks.stacks[name].shape[1], []
    for path, place in stacks.features.items():
        if place.stack == name:
            dimension = stacks.activation_shapes[path][-1]
            by_core = tf.reshape(gradients[path], [cores, -1, dimension])
            parts.append(tf.pad(by_core, [[0, 0], [0, 0], [0, width - dimension]]))
    return tf.reshape(tf.concat(parts, 1), [-1, width])


def _share(stacks: Stacks, place: FeaturePlace) -> tuple[int, int]:
    """Returns the first row of a feature among those of a core, and their number."""
    num_cores = stacks.cores.num_sc_per_chip
    return place.first // num_cores, place.sample_count // num_cores


def _ids_of_feature(stacks: Stacks, path: str, place: FeaturePlace,
                    datas: EnqueueDatas) -> StackIds:
    tables = stacks.tables.restricted_to([path])
    [feature] = tables.features
    count = tf.constant(place.sample_count, tf.int64)
    ids = without_negative(checked_ids(tables, {path: datas[path]}, count)[path])
    scales = row_scales(tables.table_by_name[feature.table].combiner, ids, count)
    gains = weights_or_ones(ids)
    if scales is not None:
        gains *= tf.gather(scales, ids.rows)
    stack = stacks.stacks[place.stack]
    return StackIds(*stack.table(place.table).place(ids.ids), ids.rows + place.first, gains)
