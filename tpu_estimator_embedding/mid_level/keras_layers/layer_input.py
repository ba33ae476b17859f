# SPDX-License-Identifier: Apache-2.0
"""Converts the inputs of a layer to EnqueueData, for any batch size."""

import math
from collections.abc import Callable
from typing import NamedTuple

import ml_dtypes
import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.engine.enqueue_data import AnyEnqueueData, to_enqueue_data
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.structure import Ids
from tpu_estimator_embedding.mid_level.input.feature_input import check_weights
from tpu_estimator_embedding.ops.assertion import require
from tpu_estimator_embedding.ops.sparse_ids import row_major
from tpu_estimator_embedding.types import Structure, Tensor


class LayerInput(NamedTuple):
    """The ids of a feature.

    Attributes:
        data: the ids and weights.
        batch_size: number of samples: an int if it is known, else a scalar tensor.
        inner_shape: shape of a sample's activations, without the table's dimension.
    """

    data: AnyEnqueueData
    batch_size: int | Tensor
    inner_shape: tuple[int, ...]

    @property
    def rows_per_sample(self) -> int:
        """Rows of activations per sample; 0 if the ids of a sample are combined into one row."""
        return math.prod(self.inner_shape) if self.inner_shape else 0


def with_batch(features: Structure) -> tuple[Structure, bool]:
    """Converts features that are all scalar ids to a batch of 1; returns others unchanged.

    Returns:
        `(features, is_single)`; is_single is whether the features were scalars.

    >>> with_batch({"a": tf.constant(3)})[0]["a"].numpy().tolist()
    [3]
    """
    is_single = all(isinstance(value, tf.Tensor) and value.shape.rank == 0
                    for value in tf.nest.flatten(features))
    if not is_single:
        return features, False
    return tf.nest.map_structure(lambda value: value[tf.newaxis], features), True


def with_integer_ids(path: str, value: Ids) -> Ids:
    """Converts ids that are floats, which Keras 3 passes when it traces a model for an export.

    Args:
        path: path of the feature.
        value: Tensor, SparseTensor or RaggedTensor; one of integers is returned unchanged.

    Raises:
        ValueError: if an id is not an integer, or too large for all integers up to it to be floats
            of its type. In a graph it is a tf.errors.InvalidArgumentError of the step.

    >>> with_integer_ids("a", tf.constant([3.0])).numpy().tolist()
    [3]
    """
    if not getattr(value, "dtype", tf.int64).is_floating:
        return value
    floats = (value.values if isinstance(value, tf.SparseTensor) else
              value.flat_values if isinstance(value, tf.RaggedTensor) else value)
    limits = ml_dtypes.finfo(value.dtype.as_numpy_dtype)  # type: ignore[no-untyped-call]
    most = 2.0 ** (limits.nmant + 1)
    are_integers = tf.reduce_all((tf.round(floats) == floats) & (tf.abs(floats) <= most))
    with tf.control_dependencies(require(
            are_integers, f"Ids of feature {path!r} must be integers, got {value.dtype.name!r} "
            f"with a fraction, or above {most:.0f}. Give the input of the model an integer dtype, "
            "or `export` an input_signature with one.", ValueError)):
        ids = tf.cast(floats, tf.int64)
    if isinstance(value, tf.SparseTensor):
        return tf.SparseTensor(value.indices, ids, value.dense_shape)
    return value.with_flat_values(ids) if isinstance(value, tf.RaggedTensor) else ids


def read_input(path: str, config: FeatureConfig, value: Ids, weights: Ids | None) -> LayerInput:
    """Returns the ids of a feature.

    A dense input has one id per element. Sparse and ragged inputs have any number of ids per
    sample. These are combined, or truncated and padded to max_sequence_length or to the second
    size of output_shape.

    Args:
        path: path of the feature.
        config: its FeatureConfig.
        value: Tensor, SparseTensor or RaggedTensor of ids.
        weights: floats of the same tensor type, or None.

    Raises:
        ValueError: if the input has another type or rank, or weights and ids differ in tensor
            type.
    """
    value = with_integer_ids(path, value)
    check_weights(path, value, weights)
    if isinstance(value, tf.SparseTensor):
        return _from_sparse(path, config, value, weights)
    if isinstance(value, tf.RaggedTensor):
        return _from_ragged(path, config, value, weights)
    checks.check(tf.is_tensor(value), f"input of feature {path!r}",
                 "a Tensor, SparseTensor or RaggedTensor", type(value).__name__)
    return _from_dense(path, value)


def _from_dense(path: str, value: Tensor) -> LayerInput:
    checks.check((value.shape.rank or 0) >= 1 and value.shape[1:].is_fully_defined(),
                 f"input of feature {path!r}", "of shape [batch, ...] with known sizes except "
                 "the batch size", value.shape)
    inner = tuple(value.shape[1:].as_list())
    if inner[-1:] == (1,):
        inner = inner[:-1]
    places = None
    if inner:
        rows = tf.range(tf.size(value, tf.int64))
        places = tf.stack([rows // math.prod(inner), rows % math.prod(inner)], 1)
    return LayerInput(to_enqueue_data(value, places=places),
                      _size(value.shape[0], lambda: tf.shape(value)[0]), inner)


def _from_sparse(path: str, config: FeatureConfig, value: tf.SparseTensor,
                 weights: tf.SparseTensor | None) -> LayerInput:
    rank = value.shape.rank
    checks.check((rank or 0) >= 1, f"rank of the sparse input of feature {path!r}", "at least 1",
                 rank)
    if rank == 1:  # one id for each sample, or none
        value = tf.sparse.expand_dims(value, -1)
    places, inner = value.indices, tuple(value.shape[1:-1].as_list())
    if inner:
        checks.check(None not in inner, f"sizes of the sparse input of feature {path!r}",
                     "known except the first and the last", value.shape)
        places = tf.stack([places[:, 0], row_major(places[:, 1:], inner, len(inner))], 1)
    return LayerInput(to_enqueue_data(value, weights, places=places),
                      _size(value.shape[0], lambda: value.dense_shape[0]), inner or _length(config))


def _from_ragged(path: str, config: FeatureConfig, value: tf.RaggedTensor,
                 weights: tf.RaggedTensor | None) -> LayerInput:
    checks.check(value.shape.rank == 2, f"rank of the ragged input of feature {path!r}", "2",
                 value.shape.rank)
    return LayerInput(
        to_enqueue_data(value, weights),
        _size(value.shape[0], value.nrows), _length(config))


def _length(config: FeatureConfig) -> tuple[int, ...]:
    """Returns `(length,)` for a sequence feature, else `()`."""
    shape = tf.TensorShape(getattr(config, "output_shape", None))
    if shape.rank:
        return tuple(shape.as_list()[1:])
    return (config.max_sequence_length,) if config.max_sequence_length else ()


def _size(static: int | None, dynamic: Callable[[], Tensor]) -> int | Tensor:
    return tf.cast(dynamic(), tf.int64) if static is None else static
