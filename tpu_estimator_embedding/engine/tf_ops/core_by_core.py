# SPDX-License-Identifier: Apache-2.0
"""The order in which cores update a row when gradients are not accumulated.

Without gradient accumulation, a row gets one update from every core that looked it up, with the sum
of that core's gradients. Row i is on core i mod N; its updates come from the cores i mod N,
i mod N + 1, ... around the ring.
"""

import tensorflow as tf

from tpu_estimator_embedding.engine.tf_ops.sharded_ids import HostIds, with_unique_ids
from tpu_estimator_embedding.types import Tensor


def core_by_core(ids: HostIds, home_cores: Tensor, row_counts: Tensor) -> list[HostIds]:
    """Splits the ids of a step into rounds, in each of which a row has one core's ids.

    Args:
        ids: the ids of all cores.
        home_cores: `[u]` int64, the core that each of `ids.unique_ids` lives on.
        row_counts: `[cores]` int64, rows of activations of each core.

    Returns:
        One part of the ids for each core's distance from home, to be applied in order.

    >>> ids = with_unique_ids(HostIds(tf.constant([4, 5, 4]), tf.constant([0, 1, 2]), None,
    ...                               None, None))
    >>> rounds = core_by_core(ids, home_cores=tf.constant([0, 1], tf.int64),
    ...                       row_counts=tf.constant([2, 2], tf.int64))
    >>> [part.ids.numpy().tolist() for part in rounds]  # core 0 has [4, 5], core 1 has [4]
    [[4], [5, 4]]
    """
    num_cores = tf.compat.dimension_value(row_counts.shape[0])
    ends = tf.cumsum(row_counts)
    cores = tf.searchsorted(ends, tf.cast(ids.rows, ends.dtype), side="right",
                            out_type=tf.int64)
    distances = (cores - tf.gather(home_cores, ids.positions)) % num_cores
    return [_at(ids, tf.where(tf.equal(distances, distance))[:, 0])
            for distance in range(num_cores)]


def _at(ids: HostIds, kept: Tensor) -> HostIds:
    weights = None if ids.weights is None else tf.gather(ids.weights, kept)
    return with_unique_ids(HostIds(tf.gather(ids.ids, kept), tf.gather(ids.rows, kept),
                                   weights, None, None))
