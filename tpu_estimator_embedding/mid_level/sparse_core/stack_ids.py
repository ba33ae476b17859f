# SPDX-License-Identifier: Apache-2.0
"""From the ids of features to those of stacks, and from rows of stacks to activations.

Every local core computes the activations of its share of the samples of each feature. The
rows of a stack are those of the first core, feature by feature, then those of the second.
"""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from tpu_estimator_embedding.engine.checked_ids import EnqueueDatas, checked_ids
from tpu_estimator_embedding.engine.enqueue_data import EnqueueData
from tpu_estimator_embedding.mid_level.sparse_core.partitioned_csr import StackIds
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import FeaturePlace, Stacks
from tpu_estimator_embedding.ops.combiners import row_scales
from tpu_estimator_embedding.ops.sparse_ids import weights_or_ones, without_negative
from tpu_estimator_embedding.types import Tensor


def stack_ids(stacks: Stacks, datas: EnqueueDatas) -> dict[str, StackIds]:
    """Checks the ids of all features, and puts those of each stack together.

    Args:
        stacks: the tables and features.
        datas: path -> ids of the feature.

    Returns:
        Stack name -> ids, in whose gains the combiners are.

    Raises:
        Those of the engine's `checked_ids`.
    """
    by_stack: dict[str, list[StackIds]] = {name: [] for name in stacks.stacks}
    for path, place in stacks.features.items():
        by_stack[place.stack].append(_ids_of_feature(stacks, path, place, datas))
    return {name: StackIds(*(tf.concat(parts, 0) for parts in zip(*ids, strict=True)))
            for name, ids in by_stack.items()}


def engine_ids(ids: StackIds, rows_per_shard: int) -> EnqueueData:
    """Returns ids in the order of activations as the engine takes them."""
    return EnqueueData(ids.shards * rows_per_shard + ids.tokens, ids.rows, ids.gains)


def split_stacks(stacks: Stacks, activations: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns path -> `output_shape + [dim]`, from the activations of stacks.

    Args:
        stacks: the tables and features.
        activations: stack name -> `[samples, padded dimension]`.
    """
    split = {}
    for path, place in stacks.features.items():
        shape = stacks.activation_shapes[path]
        by_core = tf.reshape(activations[place.stack], [
            stacks.cores.num_sc_per_chip, -1, stacks.stacks[place.stack].shape[1]])
        first, count = _share(stacks, place)
        split[path] = tf.reshape(by_core[:, first:first + count, :shape[-1]], shape)
    return split


def join_gradients(stacks: Stacks, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns stack name -> `[samples, padded dimension]`: `split_stacks` backwards.

    Args:
        stacks: the tables and features.
        gradients: path -> `output_shape + [dim]` of every feature.
    """
    joined: dict[str, list[Tensor]] = {name: [] for name in stacks.stacks}
    for path, place in stacks.features.items():
        dimension = stacks.activation_shapes[path][-1]
        width = stacks.stacks[place.stack].shape[1]
        by_core = tf.reshape(gradients[path], [stacks.cores.num_sc_per_chip, -1, dimension])
        joined[place.stack].append(tf.pad(by_core, [[0, 0], [0, 0], [0, width - dimension]]))
    return {name: _flatten_cores(parts) for name, parts in joined.items()}


def _flatten_cores(parts: Sequence[Tensor]) -> Tensor:
    by_core = tf.concat(parts, 1)
    return tf.reshape(by_core, [-1, by_core.shape[2]])


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
    first, share = _share(stacks, place)
    stack = stacks.stacks[place.stack]
    rows_per_core = stacks.sample_count(place.stack) // stacks.cores.num_sc_per_chip
    rows = ids.rows // share * rows_per_core + first + ids.rows % share
    return StackIds(*stack.table(place.table).place(ids.ids), rows, gains)
