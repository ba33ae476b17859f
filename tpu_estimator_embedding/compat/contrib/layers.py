# SPDX-License-Identifier: Apache-2.0
"""Initializers and regularizers of `tf.contrib.layers`, which need nothing of tf-slim."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_Regularizer = Callable[[Tensor], Tensor | None]


def xavier_initializer(uniform: bool = True, seed: int | None = None,
                       dtype: tf.DType = tf.float32) -> Any:
    """Returns Glorot's initializer: variance 2 / (fan in + fan out)."""
    return tf.compat.v1.variance_scaling_initializer(
        scale=1.0, mode="fan_avg", distribution="uniform" if uniform else "truncated_normal",
        seed=seed, dtype=dtype)


def variance_scaling_initializer(factor: float = 2.0, mode: str = "FAN_IN",
                                 uniform: bool = False, seed: int | None = None,
                                 dtype: tf.DType = tf.float32) -> Any:
    """Returns an initializer of variance factor / fan, by default He's."""
    return tf.compat.v1.variance_scaling_initializer(
        scale=factor, mode=mode.lower(), distribution="uniform" if uniform
        else "truncated_normal", seed=seed, dtype=dtype)


def l1_regularizer(scale: float, scope: str | None = None) -> _Regularizer:
    """Returns `weights -> scale * sum(|weights|)`."""
    return _regularizer(scale, lambda weights: tf.reduce_sum(tf.abs(weights)), scope)


def l2_regularizer(scale: float, scope: str | None = None) -> _Regularizer:
    """Returns `weights -> scale * sum(weights ** 2) / 2`."""
    return _regularizer(scale, tf.nn.l2_loss, scope)


def _regularizer(scale: float, penalty: Callable[[Tensor], Tensor],
                 scope: str | None) -> _Regularizer:
    if scale < 0:
        raise ValueError("Setting a scale less than 0 on a regularizer: `scale` must be 0 or more, "
                         f"got {scale!r}.")

    def regularize(weights: Tensor) -> Tensor | None:
        if scale == 0:
            return None  # as contrib did: no penalty enters the collection of losses
        with tf.name_scope(scope or "regularizer"):
            return scale * penalty(weights)

    return regularize
