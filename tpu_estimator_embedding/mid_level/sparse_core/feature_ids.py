# SPDX-License-Identifier: Apache-2.0
"""Converts the input of a feature, of any rank, to EnqueueData.

Row r of the activations is element r of `output_shape` in row-major order. A dense input has one
id per row; a sparse or ragged input has the ids along its last dimension.
"""

import math
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, to_enqueue_data
from tpu_estimator_embedding.mid_level.runtime_checks import require
from tpu_estimator_embedding.mid_level.sparse_core.to_stacks import FeaturePlace
from tpu_estimator_embedding.ops.sparse_ids import row_major
from tpu_estimator_embedding.types import Tensor


def feature_ids(path: str, place: FeaturePlace, value: Any,
                weights: Any) -> AnyEnqueueData:
    """Returns the ids of a feature and the rows of activations that they contribute to.

    Args:
        path: path of the feature.
        place: the shape of its activations.
        value: Tensor, SparseTensor or RaggedTensor of integers.
        weights: floats of the same tensor type with the same indices, or None.

    Raises:
        ValueError: if the input has another type, weights and ids differ in tensor type, or the
            input does not fill output_shape.
    """
    kind = next((kind for kind in (tf.RaggedTensor, tf.SparseTensor)
                 if isinstance(value, kind)), tf.Tensor)
    checks.check(isinstance(value, kind), f"input of feature {path!r}",
                 "a Tensor, SparseTensor or RaggedTensor", type(value).__name__, sentence=
                 f"Input of unknown type {type(value)}. Please only pass Tensor, SparseTensor or "
                 "RaggedTensor as input to embedding lookup.")
    checks.check(weights is None or isinstance(weights, kind), f"weights of feature {path!r}",
                 "of the tensor type of the ids, or None", type(weights).__name__, sentence=
                 f"Expect weight to be {kind.__name__} type but got {type(weights)}.")
    return _CONVERSIONS[kind](path, place, value, weights)


def _from_dense(path: str, place: FeaturePlace, value: Tensor, weights: Any) -> AnyEnqueueData:
    for what, tensor in (("ids", value), ("weights", weights)):
        count = None if tensor is None else tensor.shape.num_elements()
        checks.check(count in (None, place.sample_count), f"{what} of feature {path!r}",
                     f"{place.sample_count} values, the size of output_shape "
                     f"{list(place.output_shape)}", count)
    return to_enqueue_data(value, weights)


def _from_sparse(path: str, place: FeaturePlace, value: tf.SparseTensor,
                 weights: Any) -> AnyEnqueueData:
    checks.check((value.shape.rank or 0) >= 2, f"rank of the sparse input of feature {path!r}",
                 "at least 2", value.shape.rank)
    sizes = value.dense_shape[:-1]
    _check_batch(path, place, value.shape[:-1])
    with tf.control_dependencies(require(
            tf.equal(tf.reduce_prod(sizes), place.sample_count),
            f"`batch of feature {path!r}` must fill output_shape {list(place.output_shape)}.",
            ValueError)):
        rows = tf.identity(row_major(value.indices, sizes, value.shape.rank - 1))
    return to_enqueue_data(value, weights, places=rows)


def _from_ragged(path: str, place: FeaturePlace, value: tf.RaggedTensor,
                 weights: Any) -> AnyEnqueueData:
    checks.check(value.shape.rank == 2, f"rank of the ragged input of feature {path!r}", "2",
                 value.shape.rank)
    _check_batch(path, place, value.shape[:1])
    return to_enqueue_data(value, weights)


def _check_batch(path: str, place: FeaturePlace, shape: tf.TensorShape) -> None:
    if shape.is_fully_defined():
        checks.check(math.prod(shape.as_list()) == place.sample_count,
                     f"batch of feature {path!r}",
                     f"{place.sample_count}, which fills output_shape "
                     f"{list(place.output_shape)}", shape.as_list())


_CONVERSIONS: dict[type, Any] = {
    tf.Tensor: _from_dense, tf.SparseTensor: _from_sparse, tf.RaggedTensor: _from_ragged}
