# SPDX-License-Identifier: Apache-2.0
"""Copies of tensors whose memory may belong to the program."""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_COPIED = (
    tf.bool, tf.int8, tf.uint8, tf.int16, tf.uint16, tf.int32, tf.uint32, tf.int64, tf.uint64,
    tf.half, tf.bfloat16, tf.float32, tf.float64, tf.complex64, tf.complex128)


def owned(tensor: Tensor | tf.RaggedTensor) -> Tensor | tf.RaggedTensor:
    """Returns a copy, in memory that TensorFlow has allocated.

    An array that a generator yields, or that a session is fed, becomes a tensor without a copy.
    TensorFlow never writes into that tensor, but into a slice of it, where an op may reuse the
    memory of its input. So what is sliced on behalf of a program is copied before.

    Args:
        tensor: a tensor or ragged tensor. Texts, and types that TensorFlow hardly computes with
            (quantized ones, floats of eight bits), are returned as they are.

    >>> owned(tf.constant([1.0, 2.0])).numpy().tolist()
    [1.0, 2.0]
    """
    if tensor.dtype not in _COPIED:
        return tensor
    return tf.nest.map_structure(lambda part: tf.raw_ops.DeepCopy(x=part), tensor,
                                 expand_composites=True)
