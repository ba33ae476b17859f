# SPDX-License-Identifier: Apache-2.0
"""The shape of a feature's activations without the table's dimension: configured or inferred.

An input `[batch, ids]` has activations `[batch, dim]`, or `[batch, length, dim]` for a sequence.
An input of higher rank, `[..., ids]`, has activations `[..., dim]`.
"""

import warnings
from typing import NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.mid_level.config.feature_config import FeatureConfig
from tpu_estimator_embedding.mid_level.config.structure import Ids, Shape

_KINDS = (tf.Tensor, tf.SparseTensor, tf.RaggedTensor)


class OutputShape(NamedTuple):
    """The shape of a feature's activations, without the table's dimension.

    Attributes:
        dims: sizes; None if a size is unknown.
        sequence_length: L if each sample has L rows, one per position; else 0.
        is_stated: whether the FeatureConfig sets it, or `build` got a shape of higher rank than
            samples and positions need.
        max_sequence_length: L if an input of rank 2 is a sequence with L rows per sample
            according to output_shape.
    """

    dims: tuple[int | None, ...]
    sequence_length: int = 0
    is_stated: bool = False
    max_sequence_length: int = 0


def stated(path: str, config: FeatureConfig) -> OutputShape | None:
    """Returns the output_shape of a FeatureConfig, or None if it does not set one.

    Raises:
        ValueError: if a size is unknown.
    """
    shape = tf.TensorShape(getattr(config, "output_shape", None))
    if not shape.rank:
        return None
    checks.check(shape.is_fully_defined(), f"output_shape of feature {path!r}",
                 "fully defined", shape, sentence=f"Input Feature {path} has output shape set as "
                 f"{shape} which is not fully defined.")
    return _stated(config, tuple(shape.as_list()))


def of_build(path: str, config: FeatureConfig, shape: Shape) -> OutputShape:
    """Returns the shape of activations for an input shape that was passed to `build`.

    Raises:
        ValueError: if a size other than the last is unknown, or output_shape differs.
    """
    given = of_input_shape(path, config, shape)
    if None in given.dims and stated(path, config) is None:
        raise ValueError(
            f"Input Feature {path} has output shape set as {list(given.dims)} which is not fully "
            f"defined. Pass `build` every size of its input except the last, got "
            f"{tf.TensorShape(shape)}.")
    if len(given.dims) > 1 and not given.sequence_length:
        given = _stated(config, given.dims)
    return agreed(path, config, given)


def agreed(path: str, config: FeatureConfig, given: OutputShape) -> OutputShape:
    """Returns the output_shape of a FeatureConfig; if it is not set, the shape from `build`.

    Raises:
        ValueError: if they contradict each other.
    """
    expected = stated(path, config)
    if expected is None:
        return given
    if not accepts(expected, given):
        raise ValueError(
            f"Inconsistent shape founded for input feature {path}, Output shape is set to be "
            f"{list(expected.dims)}, But got incoming output shape {list(given.dims)}. Pass "
            "`build` an input shape that matches `output_shape` of the FeatureConfig.")
    return expected


def accepts(expected: OutputShape, given: OutputShape) -> bool:
    """Whether an input with the inferred shape `given` can have activations of shape `expected`.

    As in TensorFlow, a shape of rank 1 or 2 is accepted for a configured shape of higher rank;
    the number of rows is checked with the ids.
    """
    if expected.is_stated and len(given.dims) <= 2 and len(given.dims) < len(expected.dims):
        return True
    return len(expected.dims) == len(given.dims) and all(
        size in (None, other) for size, other in zip(given.dims, expected.dims, strict=True))


def of_input(path: str, config: FeatureConfig, value: Ids) -> OutputShape:
    """Returns the shape of the activations of an input.

    Args:
        path: path of the feature.
        config: its FeatureConfig.
        value: a Tensor, SparseTensor or RaggedTensor.

    Raises:
        ValueError: if the input is of another type, or of an unsupported rank.
    """
    checks.check_with_sentence(
        isinstance(value, _KINDS), f"Input {path} is of unknown type {type(value)}. Please only "
        "pass Tensor, SparseTensor or RaggedTensor as input to enqueue.")
    shape = value.shape
    if isinstance(value, tf.RaggedTensor):
        checks.check(shape.rank == 2, f"rank of the ragged input of feature {path!r}", "2",
                     shape.rank, sentence="Only rank 2 ragged tensor is supported, find rank "
                     f"{shape.rank} ragged tensor for input {path}.")
    elif isinstance(value, tf.SparseTensor):
        checks.check(shape.rank is not None and shape.rank >= 2,
                     f"rank of the sparse input of feature {path!r}", "known and at least 2",
                     shape.rank, sentence="Only rank 2 and above sparse tensor is supported, find "
                     f"rank {shape.rank} sparse tensor for input {path}.")
    else:
        _check_dense(path, config, shape)
        return OutputShape(tuple(shape.as_list()[:-1] if shape.rank > 1 else shape.as_list()))
    return of_input_shape(path, config, shape)


def of_input_shape(path: str, config: FeatureConfig, shape: Shape) -> OutputShape:
    """Returns the shape of the activations of a sparse or ragged input of shape `[..., ids]`.

    Raises:
        ValueError: if the shape has rank 0 or an unknown rank.
    """
    shape = tf.TensorShape(shape)
    checks.check(shape.rank is not None and shape.rank >= 1, f"input shape of feature {path!r}",
                 "of at least one dimension", shape, sentence=
                 f"Received input tensor of shape {shape}. Rank must be 1 and above.")
    dims = tuple(shape.as_list())
    if len(dims) == 1:
        return OutputShape(dims)
    length = _sequence_length(config)
    if length and len(dims) == 2:
        return OutputShape((dims[0], length), length)
    if length:
        warnings.warn(f"max_sequence_length of feature {path!r} is ignored: its input has "
                      f"{len(dims)} dimensions, not 2.", stacklevel=2)
    return OutputShape(dims[:-1])


def of_batch_size(config: FeatureConfig, batch_size: int) -> OutputShape:
    """Returns the shape of the activations of a batch of `[batch_size, ids]`."""
    length = _sequence_length(config)
    return OutputShape((batch_size, length), length) if length else OutputShape((batch_size,))


def _sequence_length(config: FeatureConfig) -> int:
    """Returns max_sequence_length; 0 if output_shape is set, which overrides it."""
    return 0 if tf.TensorShape(getattr(config, "output_shape", None)).rank else (
        config.max_sequence_length)


def _stated(config: FeatureConfig, dims: tuple[int | None, ...]) -> OutputShape:
    length = config.max_sequence_length
    return OutputShape(dims, is_stated=True,
                       max_sequence_length=length if length and dims[1:] == (length,) else 0)


def _check_dense(path: str, config: FeatureConfig, shape: tf.TensorShape) -> None:
    what = f"dense input of feature {path!r}"
    checks.check(bool(shape.rank), f"rank of the {what}", "known and at least 1", shape.rank,
                 sentence="Only rank 1 and above dense tensor is supported, find rank "
                 f"{shape.rank} sparse tensor for input {path}.")
    checks.check(shape.rank == 1 or shape[-1] in (None, 1), f"last dimension of the {what}", "1",
                 shape[-1], "Pass a SparseTensor or RaggedTensor to combine several ids.",
                 sentence="Rank 2 or above dense tensor should have last dimension as 1 as the "
                 "last dimension will always be reduced. Instead got dense tensor as shape "
                 f"{shape}.")
    checks.check(not config.max_sequence_length or stated(path, config) is not None,
                 f"input of sequence feature {path!r}", "sparse or ragged", "a dense one")
