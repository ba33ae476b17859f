# SPDX-License-Identifier: Apache-2.0
"""The ids of one feature for one step, with the names of the v1 API."""

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.ops import sparse_ids
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan, FeaturePlan
from tpu_estimator_embedding.types import Tensor


class EnqueueData(NamedTuple):
    """Ids in coordinate (COO) format: id, sample index and weight.

    Attributes:
        embedding_indices: `[n]` int32 or int64, row ids in [0, vocabulary_size).
        sample_indices: `[n]`, `[n, 1]` or, for sequence features, `[n, 2]` integers: the
            sample (and the position) of each id; sorted in every step unless they are in
            increasing order. None means that sample j has the one id `embedding_indices[j]`.
        aggregation_weights: `[n]` float32, or None for 1 everywhere.

    >>> data = EnqueueData.from_sparse_tensor(tf.sparse.from_dense([[3, 1], [0, 2]]))
    >>> data.embedding_indices.numpy().tolist(), data.sample_indices.numpy().tolist()
    ([3, 1, 2], [[0, 0], [0, 1], [1, 1]])
    """

    embedding_indices: Tensor
    sample_indices: Tensor | None = None
    aggregation_weights: Tensor | None = None

    @staticmethod
    def from_sparse_tensor(sp_tensor: tf.SparseTensor,
                           weights: tf.SparseTensor | None = None) -> "EnqueueData":
        """Splits sparse tensors into their parts; ids and weights must have the same indices.

        Args:
            sp_tensor: `[batch, max ids]` integers.
            weights: `[batch, max ids]` floats, or None.

        Raises:
            TypeError: if either is not a SparseTensor.
        """
        checks.check_type(tf.SparseTensor, "sp_tensor", "a SparseTensor", sp_tensor)
        if weights is not None:
            checks.check_type(tf.SparseTensor, "weights", "a SparseTensor or None", weights)
        return EnqueueData(sp_tensor.values, sp_tensor.indices,
                           None if weights is None else weights.values)


class RaggedEnqueueData(NamedTuple):
    """Ids in ragged format: the concatenated ids of all samples, and the row splits.

    Attributes:
        embedding_indices: `[n]` int32 or int64, row ids in [0, vocabulary_size).
        row_splits: `[batch + 1]` integers; sample j has the ids from `row_splits[j]` up to
            `row_splits[j + 1]`. None means one id per sample.
        aggregation_weights: `[n]` float32, or None for 1 everywhere.

    >>> RaggedEnqueueData.from_ragged_tensor(tf.ragged.constant([[3, 1], [], [2]])).row_splits
    <tf.Tensor: shape=(4,), dtype=int64, numpy=array([0, 2, 2, 3])>
    """

    embedding_indices: Tensor
    row_splits: Tensor | None = None
    aggregation_weights: Tensor | None = None

    @staticmethod
    def from_ragged_tensor(rg_tensor: tf.RaggedTensor,
                           weights: tf.RaggedTensor | None = None) -> "RaggedEnqueueData":
        """Splits ragged tensors into their parts; ids and weights must have the same row splits.

        Raises:
            TypeError: if either is not a RaggedTensor.
        """
        checks.check_type(tf.RaggedTensor, "rg_tensor", "a RaggedTensor", rg_tensor)
        if weights is not None:
            checks.check_type(tf.RaggedTensor, "weights", "a RaggedTensor or None", weights)
        return RaggedEnqueueData(rg_tensor.values, rg_tensor.row_splits,
                                 None if weights is None else weights.values)


AnyEnqueueData = EnqueueData | RaggedEnqueueData


def to_enqueue_data(ids: Tensor | tf.SparseTensor | tf.RaggedTensor,
                    weights: Tensor | tf.SparseTensor | tf.RaggedTensor | None = None, *,
                    places: Tensor | None = None) -> AnyEnqueueData:
    """Converts the input of a feature, of any tensor type, to EnqueueData or RaggedEnqueueData.

    Args:
        ids: integers: a Tensor with one id per sample, a SparseTensor or a RaggedTensor.
        weights: floats of the same tensor type, or None.
        places: replaces the sample indices of a Tensor or SparseTensor, or the row splits of a
            RaggedTensor; None keeps them.

    Raises:
        TypeError: if weights and sparse or ragged ids differ in tensor type.

    >>> to_enqueue_data(tf.constant([[3], [4]])).embedding_indices.numpy().tolist()
    [3, 4]
    """
    data: AnyEnqueueData
    if isinstance(ids, tf.SparseTensor):
        data = EnqueueData.from_sparse_tensor(ids, weights)
    elif isinstance(ids, tf.RaggedTensor):
        data = RaggedEnqueueData.from_ragged_tensor(ids, weights)
    else:
        data = EnqueueData(tf.reshape(ids, [-1]), None, weights)
    return data if places is None else type(data)(data[0], places, data[2])


def get_enqueue_datas_list_from_sparse_tensors_list(
        sp_tensors_list: list[dict[str, tf.SparseTensor]]) -> list[dict[str, EnqueueData]]:
    """Converts, for each core, a dictionary of SparseTensors."""
    return [{name: EnqueueData.from_sparse_tensor(tensor) for name, tensor in tensors.items()}
            for tensors in sp_tensors_list]


def get_enqueue_datas_list_from_ragged_tensors_list(
        rg_tensors_list: list[dict[str, tf.RaggedTensor]]) -> list[dict[str, RaggedEnqueueData]]:
    """Converts, for each core, a dictionary of RaggedTensors."""
    return [{name: RaggedEnqueueData.from_ragged_tensor(tensor)
             for name, tensor in tensors.items()} for tensors in rg_tensors_list]


def check_features(plan: EmbeddingPlan, given: Mapping[str, object]) -> None:
    """Raises ValueError unless there is one entry for each feature of the plan."""
    expected = {feature.name for feature in plan.features}
    missing, extra = sorted(expected - set(given)), sorted(set(given) - expected)
    checks.check(not missing and not extra, "features",
                 f"exactly {sorted(expected)}", sorted(given),
                 f"Missing: {missing}. Not configured: {extra}.")


def feature_tensors(feature: FeaturePlan, data: AnyEnqueueData) -> AnyEnqueueData:
    """Converts ids and places to int32 or int64, and weights to float32; None stays None.

    Raises:
        TypeError: if `data` is neither an EnqueueData nor a RaggedEnqueueData.
        ValueError: if ids are not integers, weights are not numbers, or a sequence has no
            positions.
    """
    name = feature.name
    checks.check_type((EnqueueData, RaggedEnqueueData), f"ids of feature {name!r}",
                      "an EnqueueData or RaggedEnqueueData", data,
                      "Make it with EnqueueData.from_sparse_tensor for instance.")
    ids, places, weights = data
    ids = tf.convert_to_tensor(ids)
    sparse_ids.check_ids_are_integers(ids, name)
    sparse_ids.check_weights_are_numbers(weights, name)
    if places is not None:
        places = _of_usual_width(tf.convert_to_tensor(places))
    if feature.max_sequence_length:
        has_positions = places is not None and (
            isinstance(data, RaggedEnqueueData) or
            (places.shape.rank == 2 and tf.compat.dimension_value(places.shape[1]) != 1))
        checks.check(has_positions, f"ids of sequence feature {name!r}",
                     "ragged, or sparse with sample indices [n, 2]",
                     None if places is None else f"sample indices {places.shape}")
    return type(data)(_of_usual_width(ids), places, sparse_ids.flat_weights(weights))


def _of_usual_width(numbers: Tensor) -> Tensor:
    if numbers.dtype in (tf.int32, tf.int64):
        return numbers
    width = tf.cast(numbers, tf.int64)
    if numbers.dtype == tf.uint64:  # or ids from 2**63 on would be negative, which means no id
        width = tf.where(width < 0, tf.int64.max, width)
    return width
