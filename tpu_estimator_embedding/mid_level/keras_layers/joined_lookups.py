# SPDX-License-Identifier: Apache-2.0
"""Several lookups as one: their samples one after another, whatever the types of their inputs.

The ids of all features are kept in one tensor, so that a graph needs few ops for many features.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.engine.enqueue_data import (
    AnyEnqueueData,
    EnqueueData,
    RaggedEnqueueData,
)
from tpu_estimator_embedding.engine.step import EnqueueDatas
from tpu_estimator_embedding.types import Tensor


class Batch(NamedTuple):
    """Ids of one replica.

    Attributes:
        datas: the ids of every feature.
        size: the samples; scalar int64 where it waits.
    """

    datas: EnqueueDatas
    size: Any


class JoinedLookups(NamedTuple):
    """Any number of lookups.

    Attributes:
        size: scalar int64, the samples of all.
        counts: `[lookups, features]` int64, ids.
        starts: `[lookups, features]` int64, where these begin in the following.
        ids: `[n]` int64.
        places: `[n, 2]` int64, sample and position.
        weights: `[n]` float32.
        gradients: `[size, columns]` float32, those of the activations of all features.
    """

    size: Tensor
    counts: Tensor
    starts: Tensor
    ids: Tensor
    places: Tensor
    weights: Tensor
    gradients: Tensor


def no_lookups(batch: Batch, gradients: Mapping[str, Tensor]) -> JoinedLookups:
    """Returns no lookups, given the features and gradients of an example."""
    count = len(batch.datas)
    return JoinedLookups(
        tf.constant(0, tf.int64), tf.zeros([0, count], tf.int64), tf.zeros([0, count], tf.int64),
        tf.zeros([0], tf.int64), tf.zeros([0, 2], tf.int64), tf.zeros([0]),
        tf.zeros([0, sum(map(_columns, gradients.values()))]))


def with_lookup(before: JoinedLookups, batch: Batch, gradients: Mapping[str, Tensor],
                factor: Tensor) -> JoinedLookups:
    """Adds a lookup and its gradients times a factor; adds nothing if that is 0."""
    alike: dict[type | None, list[str]] = {}
    for name, data in batch.datas.items():
        alike.setdefault(None if data[1] is None else type(data), []).append(name)
    places, order = [], []
    for placement, group in alike.items():
        datas = [batch.datas[name] for name in group]
        order += group
        places.append(_each_once(datas, batch.size) if placement is None else
                      _of_row_splits(datas, batch.size) if placement is RaggedEnqueueData else
                      tf.concat([tf.cast(data[1], tf.int64) for data in datas], 0))
    in_order = [batch.datas[name] for name in order]
    of_features = [tf.cast(data[0], tf.int64) for data in in_order]
    ids = tf.concat(of_features, 0)
    counts = tf.concat(tf.shape_n(of_features, out_type=tf.int64), 0)
    starts = tf.cumsum(counts, exclusive=True) + tf.size(before.ids, tf.int64)
    by_name = [order.index(name) for name in gradients]
    is_used = tf.cast(tf.not_equal(factor, 0.0), tf.int64)
    number, size = tf.size(ids, tf.int64) * is_used, batch.size * is_used
    columns = tf.concat([tf.reshape(gradient, [-1, _columns(gradient)])
                         if gradient.shape.rank != 2 else gradient
                         for gradient in gradients.values()], 1)

    def added(old: Tensor, new: Tensor, length: Tensor) -> Tensor:
        return tf.concat([old, new[:length]], 0)
    return JoinedLookups(
        before.size + size,
        added(before.counts, tf.gather(counts, by_name)[tf.newaxis], is_used),
        added(before.starts, tf.gather(starts, by_name)[tf.newaxis], is_used),
        added(before.ids, ids, number),
        added(before.places, tf.concat(places, 0) + tf.stack([before.size, 0]), number),
        added(before.weights, _weights(in_order, ids), number),
        added(before.gradients, factor * columns, size))


def as_one_lookup(joined: JoinedLookups, examples: Mapping[str, Tensor],
                  weighted: Collection[str]) -> tuple[Batch, dict[str, Tensor]]:
    """Returns the ids and gradients of all lookups as those of one.

    Args:
        joined: the lookups.
        examples: feature name -> gradient of any lookup, in the order of the features.
        weighted: the features that have weights.
    """
    counts, starts = (tf.reshape(tf.transpose(part), [-1]) for part in (
        joined.counts, joined.starts))
    order = tf.ragged.range(starts, starts + counts).flat_values
    sizes = tf.reduce_sum(joined.counts, 0)
    ids, places, weights = (tf.split(tf.gather(part, order), sizes, num=len(examples))
                            for part in (joined.ids, joined.places, joined.weights))
    columns = tf.split(joined.gradients, list(map(_columns, examples.values())), 1)
    return Batch({
        name: EnqueueData(ids[index], places[index], weights[index] if name in weighted else None)
        for index, name in enumerate(examples)}, joined.size), {
        name: part if example.shape.rank == 2 else tf.reshape(part, [-1, *example.shape[1:]])
        for (name, example), part in zip(examples.items(), columns, strict=True)}


def _columns(gradient: Tensor) -> int:
    count: int = gradient.shape[1:].num_elements()
    return count


def _weights(datas: list[AnyEnqueueData], ids: Tensor) -> Tensor:
    if all(data[2] is None for data in datas):
        return tf.ones_like(ids, tf.float32)
    return tf.concat([tf.ones_like(data[0], tf.float32) if data[2] is None else
                      tf.cast(data[2], tf.float32) for data in datas], 0)


def _each_once(datas: list[AnyEnqueueData], size: Tensor) -> Tensor:
    samples = tf.tile(tf.range(size), [len(datas)])
    return tf.stack([samples, tf.zeros_like(samples)], 1)


def _of_row_splits(datas: list[AnyEnqueueData], size: Tensor) -> Tensor:
    splits = tf.stack([tf.cast(data[1], tf.int64) for data in datas])
    lengths = tf.reshape(splits[:, 1:] - splits[:, :-1], [-1])
    rows = tf.repeat(tf.range(len(datas) * size), lengths)
    positions = tf.range(tf.size(rows, tf.int64)) - tf.gather(
        tf.cumsum(lengths, exclusive=True), rows)
    return tf.stack([rows % tf.maximum(size, 1), positions], 1)
