# SPDX-License-Identifier: Apache-2.0
"""Splits the features of an input_fn into ids for the engine and features for the model_fn.

The meaning of ids depends on the kind of tensor, as on a TPU:

==============  ================  ==================================================
ids             combiner          read as
==============  ================  ==================================================
SparseTensor    any               ids with their sample indices; empty samples give 0
RaggedTensor    any               the ids of each row
dense           None              one id per sample, `[batch]` or `[batch, 1]`
dense           mean, sum, sqrtn  `[batch, ids]` without the entries that are 0
==============  ================  ==================================================

Columns with `embedding_lookup_device='tpu_tensor_core'` have ordinary trainable variables that the
model's own optimizer trains. TF's columns look them up from ids of a fixed shape, and a mask of the
valid ids.
"""

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, EnqueueData, to_enqueue_data
from tpu_estimator_embedding.feature_column.column_checks import EmbeddingColumn
from tpu_estimator_embedding.ops import id_checks, sparse_ids
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Structure, Tensor

SEQUENCE_LENGTH_SUFFIX = "_seq_length_"  # the suffix that TF's sequence columns expect for lengths
MASK_SUFFIX = "__TENSOR_CORE_MASK"  # the suffix that TF's columns expect for masks

# The ids of a feature, or their weights.
Ids: TypeAlias = Tensor | tf.SparseTensor | tf.RaggedTensor


class SplitFeatures(NamedTuple):
    """The features of one step, split.

    Attributes:
        enqueue_datas: feature name -> ids, for every feature of the plan.
        others: the other features, for the model_fn, plus the lengths of sequences.
        batch_size: samples in the step: an int if all ids have a static size, else a scalar
            tensor, which is checked.
        static_batch_size: samples in the step, if any tensor of the batch has a static size.
    """

    enqueue_datas: dict[str, AnyEnqueueData]
    others: Structure
    batch_size: Tensor | int
    static_batch_size: int | None


def split_features(plan: EmbeddingPlan, features: Structure,
                   labels: Structure = None) -> SplitFeatures:
    """Separates the ids and weights of the plan's features from the other features.

    Args:
        plan: the plan with the embedding features.
        features: the features of the input_fn; not modified.
        labels: its labels, whose static shapes may also give the batch size.

    Raises:
        TypeError: if `features` is not a dictionary although the plan has features.
        ValueError: if a feature or its weights are missing or of the wrong kind.
    """
    if not plan.features:
        return SplitFeatures({}, features, 0, None)
    checks.check_type(Mapping, "features", "a dictionary, because embedding features are found "
                      "by name", features)
    ids = {feature.name: _ids_of(feature, features) for feature in plan.features}
    datas = {feature.name: _enqueue_data(plan, feature, ids[feature.name], features)
             for feature in plan.features}
    taken = set(ids) | {feature.weight_key for feature in plan.features}
    others = {key: value for key, value in features.items() if key not in taken}
    static = static_batch_size(list(ids.values()), others, labels)
    batch_size = _common_batch_size(ids, static)
    for feature in plan.features:
        if feature.max_sequence_length:
            lengths = sparse_ids.sequence_lengths(
                _in_batch(ids[feature.name], feature.name), feature.max_sequence_length, batch_size)
            lengths.set_shape([static])
            others[feature.name + SEQUENCE_LENGTH_SUFFIX] = lengths
    return SplitFeatures(datas, others, batch_size, static)


def static_batch_size(ids: Sequence[Ids], others: Structure, labels: Structure) -> int | None:
    """Returns the batch size if static shapes give it.

    Ids take precedence, then labels, then other features if they all agree. If labels have no
    static size, other features are not used: their first axis may not be the batch.

    Args:
        ids: ids of embedding features.
        others, labels: nests of tensors.
    """
    for tensors, need_all in ((ids, False), (tf.nest.flatten(labels), True),
                              (tf.nest.flatten(others), True)):
        sizes = [tf.compat.dimension_value(tensor.shape[0]) for tensor in tensors
                 if (not need_all or tf.is_tensor(tensor)) and tensor.shape.rank]
        known = set(sizes) - {None}
        if need_all and None in sizes:
            return None
        if len(known) == 1:
            return known.pop()
    return None


def _ids_of(feature: FeaturePlan, features: Mapping[str, Ids]) -> Ids:
    checks.check(feature.name in features, "features", f"have the embedding feature "
                 f"{feature.name!r}", sorted(features), "Return it from input_fn.")
    ids = features[feature.name]
    if not isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
        ids = tf.convert_to_tensor(ids)
    checks.check_with_sentence(
        ids.dtype != tf.string, "SparseTensor with string as values are not supported.",
        f"Ids of feature {feature.name!r} must be integers: the vocabulary of a categorical "
        "column is not used in training; map strings to ids in input_fn, with tf.lookup for "
        "instance.")
    checks.check(ids.dtype.is_integer, f"ids of feature {feature.name!r}", "integers",
                 ids.dtype.name)
    if ids.shape.rank == 0:
        raise ValueError(f"Feature {feature.name!r}: the ids are a scalar, without a dimension of "
                         "samples. Batch the dataset in input_fn, or give ids of shape [batch].")
    if isinstance(ids, tf.RaggedTensor) and ids.ragged_rank > 1:
        raise ValueError(f"Feature {feature.name!r}: the ids are a RaggedTensor of ragged rank "
                         f"{ids.ragged_rank}, and only rank 1 can be looked up. Call "
                         "ids.merge_dims(1, -1) in input_fn.")
    return ids


def _enqueue_data(plan: EmbeddingPlan, feature: FeaturePlan, ids: Ids,
                  features: Mapping[str, Ids]) -> AnyEnqueueData:
    weights = _weights_of(feature, ids, features)
    if feature.max_sequence_length:
        ids, weights = _cut(ids, feature), _cut(weights, feature)
    if isinstance(ids, tf.SparseTensor | tf.RaggedTensor):
        return to_enqueue_data(ids, weights)
    checks.check(not feature.max_sequence_length, f"ids of sequence feature {feature.name!r}",
                 "a SparseTensor or RaggedTensor", ids, "Convert them in input_fn, with "
                 "tf.sparse.from_dense for instance.")
    if plan.table_by_name[feature.table].combiner is None:
        is_single = ids.shape.rank == 1 or (
            ids.shape.rank == 2 and tf.compat.dimension_value(ids.shape[1]) == 1)
        checks.check(is_single, f"dense ids of feature {feature.name!r} with combiner None",
                     "of shape [batch] or [batch, 1]", ids.shape)
        return to_enqueue_data(ids)
    return _without_zeros(feature, ids)


def _in_batch(ids: Ids, feature: str) -> Ids:
    return id_checks.in_batch(ids, feature) if isinstance(ids, tf.SparseTensor) else ids


def _cut(values: Ids | None, feature: FeaturePlan) -> Any:
    """Returns the positions of a sequence that are looked up; later ones are not checked."""
    limit = feature.max_sequence_length
    if isinstance(values, tf.RaggedTensor):
        return values[:, :limit]
    if isinstance(values, tf.SparseTensor):
        return tf.sparse.retain(values, values.indices[:, 1] < limit)
    return values


def _without_zeros(feature: FeaturePlan, ids: Tensor) -> EnqueueData:
    _warn_that_zeros_are_dropped(feature.name)
    if ids.shape.rank == 1:
        ids = ids[:, tf.newaxis]
    places = tf.where(tf.not_equal(ids, 0))
    return EnqueueData(tf.gather_nd(ids, places), places)


@functools.cache  # logged once per process and feature, however many graphs it builds
def _warn_that_zeros_are_dropped(feature: str) -> None:
    warnings.warn(
        f"Feature {feature!r} is dense and its table has a combiner: zeros are treated as padding "
        "and dropped, as on a TPU, so id 0 is never looked up. Give a SparseTensor, or "
        "combiner=None for one id per sample, to look up id 0.", stacklevel=2)


def _weights_of(feature: FeaturePlan, ids: Ids, features: Mapping[str, Ids]) -> Ids | None:
    key = feature.weight_key
    if key is None:
        return None
    checks.check(key in features, "features", f"have the weights {key!r} of feature "
                 f"{feature.name!r}", sorted(features), "Return them from input_fn.",
                 sentence=f"Cannot find weights {key} for weighted_categorical_column. Please "
                 "check if the weights are present in feature dict.")
    weights = features[key]
    checks.check_with_sentence(
        not isinstance(weights, tf.Tensor) or not isinstance(ids, tf.SparseTensor),
        f"weighted_categorical_column with weight key name {key} has dense weights. Dense weights "
        "are not supported on TPU.", f"Give the weights of feature {feature.name!r} as a "
        "SparseTensor with the indices of the ids.")
    is_aligned = any(isinstance(ids, kind) and isinstance(weights, kind)
                     for kind in (tf.SparseTensor, tf.RaggedTensor))
    checks.check(is_aligned,
                 f"weights {key!r} of feature {feature.name!r}",
                 "a SparseTensor or RaggedTensor, as the ids", weights,
                 "Dense ids and dense weights cannot be aligned; give both as SparseTensors.",
                 sentence="" if not isinstance(ids, tf.Tensor) else
                 f"Found weights {key} for weighted_categorical_column, which is notcompatible "
                 f"with sparse feature {feature.name} enqueued as dense tensor.")
    sparse_ids.check_weights_are_numbers(weights, feature.name)
    return tf.cast(weights, tf.float32)


def _common_batch_size(ids: Mapping[str, Ids], static: int | None) -> Tensor | int:
    """Checks that all features have the same number of samples, and returns it."""
    sizes = {name: tf.compat.dimension_value(tensor.shape[0]) for name, tensor in ids.items()}
    known = {name: size for name, size in sizes.items() if size is not None}
    checks.check(len(set(known.values())) <= 1, "embedding features", "have one batch size", known)
    if len(known) == len(ids):
        return next(iter(known.values()))
    dynamic = _dynamic_batch_sizes(list(ids.values()))
    (reference, *rest), size = ids, dynamic[0]
    assertions = id_checks.check_batch_size(dynamic[1:], size, rest, reference) if rest else []
    if static is not None:
        assertions += id_checks.check_static_batch_size(size, static, reference)
    with tf.control_dependencies(assertions):
        return tf.identity(size)


def _dynamic_batch_sizes(ids: Sequence[Any]) -> Tensor:
    """Returns the number of samples of each feature; few ops for many SparseTensors."""
    ranks = {tensor.shape.rank if isinstance(tensor, tf.SparseTensor) else None for tensor in ids}
    if len(ranks) == 1 and None not in ranks:
        return tf.stack([tensor.dense_shape for tensor in ids])[:, 0]
    return tf.stack([_dynamic_batch_size(tensor) for tensor in ids])


def _dynamic_batch_size(ids: Ids) -> Tensor:
    if isinstance(ids, tf.SparseTensor):
        return ids.dense_shape[0]
    if isinstance(ids, tf.RaggedTensor):
        return ids.nrows(out_type=tf.int64)
    return tf.shape(ids, out_type=tf.int64)[0]


def pad_tensor_core_features(columns: Sequence[EmbeddingColumn], features: Structure,
                             labels: Structure = None) -> Structure:
    """Returns the features with the ids of these columns padded, and their masks.

    Args:
        columns: tensor-core embedding columns.
        features: tensors by feature name; not modified.
        labels: the labels, whose static shapes may also give the batch size.

    Raises:
        ValueError: if a feature is missing, its ids are not a SparseTensor of integers, or
            the key of its mask is in use.
    """
    padded = {}
    for column in columns:
        key = column.get_feature_key_name()
        checks.check(key in features, "features", f"have the embedding feature {key!r}",
                     sorted(features), "Return it from input_fn.")
        checks.check(key + MASK_SUFFIX not in features, "features",
                     f"have no key {key + MASK_SUFFIX!r}, which is reserved for a mask",
                     sorted(features))
        padded[key], padded[key + MASK_SUFFIX] = _pad(key, features[key],
                                                      column._tensor_core_shape[1],
                                                      static_batch_size(
                                                          [features[key]], features, labels))
    return {**features, **padded} if padded else features


def _pad(key: str, ids: Ids, length: int, batch_size: int | None) -> tuple[Tensor, Tensor]:
    """Returns ids `[batch, length]` int32 and mask `[batch, length]` float32."""
    is_sparse_ids = isinstance(ids, tf.SparseTensor) and ids.dtype.is_integer
    checks.check(is_sparse_ids, f"ids of feature {key!r}", "a SparseTensor of integers", ids)
    ids = id_checks.in_batch(ids, key)
    kept = tf.where(ids.indices[:, 1] < length)[:, 0]
    places = tf.gather(ids.indices, kept)
    shape = tf.stack([ids.dense_shape[0], length])
    values = tf.scatter_nd(places, tf.cast(tf.gather(ids.values, kept), tf.int32), shape)
    mask = tf.scatter_nd(places, tf.ones_like(kept, tf.float32), shape)
    for tensor in (values, mask):
        tensor.set_shape([batch_size, length])
    return values, mask
