# SPDX-License-Identifier: Apache-2.0
"""The functions of `tf.contrib.data` that are methods or arguments of `tf.data.Dataset` today."""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding.types import Structure

_Dataset: TypeAlias = tf.data.Dataset
_Transformation = Callable[[_Dataset], _Dataset]


def batch_and_drop_remainder(batch_size: int) -> _Transformation:
    """Returns a function for `dataset.apply` that makes batches of equal size.

    >>> data = tf.data.Dataset.range(5).apply(batch_and_drop_remainder(2))
    >>> [batch.tolist() for batch in data.as_numpy_iterator()]
    [[0, 1], [2, 3]]
    """
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(batch_size: int, padded_shapes: Structure,
                                    padding_values: Structure | None = None) -> _Transformation:
    """Returns a function for `dataset.apply` that pads, and makes batches of equal size."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values,
                                                drop_remainder=True)


def sloppy_interleave(map_func: Callable[..., _Dataset], cycle_length: int,
                      block_length: int = 1) -> _Transformation:
    """Returns a function for `dataset.apply` that interleaves datasets in any order."""
    return tf.compat.v1.data.experimental.parallel_interleave(
        map_func, cycle_length, block_length, sloppy=True)


def sliding_window_batch(window_size: int, stride: int | None = None,
                         window_shift: int | None = None,
                         window_stride: int = 1) -> _Transformation:
    """Returns a function for `dataset.apply` that makes batches which overlap.

    Args:
        window_size: elements of a batch.
        stride: another name of `window_shift`.
        window_shift: elements between the beginnings of two batches; by default 1.
        window_stride: elements between two of a batch.

    Raises:
        ValueError: if both names of an argument are given.
    """
    if stride is not None and window_shift is not None:
        raise ValueError("Cannot specify both `stride` and `window_shift`, got "
                         f"{stride} and {window_shift}.")
    shift = window_shift or stride or 1

    def batch(*windows: Any) -> _Dataset:
        batches = tf.nest.map_structure(
            lambda window: window.batch(window_size, drop_remainder=True), windows)
        return tf.data.Dataset.zip(batches if len(batches) > 1 else batches[0])

    return lambda dataset: dataset.window(
        window_size, shift, window_stride, drop_remainder=True).flat_map(batch)


def assert_element_shape(expected_shapes: Structure) -> _Transformation:
    """Returns a function for `dataset.apply` that refuses elements of other shapes.

    Args:
        expected_shapes: a `tf.TensorShape` for each component, in the structure of the elements.
    """
    def check(*elements: Any) -> Structure:
        element = elements if len(elements) > 1 else elements[0]
        return tf.nest.map_structure(tf.ensure_shape, element, expected_shapes)

    return lambda dataset: dataset.map(check)
