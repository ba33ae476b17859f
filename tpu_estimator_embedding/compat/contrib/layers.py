# SPDX-License-Identifier: Apache-2.0
"""The functions of `tf.contrib.layers` that TPU models used most, without tf-slim."""

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
    """Returns an initializer with variance factor / fan; by default He's initializer."""
    return tf.compat.v1.variance_scaling_initializer(
        scale=factor, mode=mode.lower(), distribution="uniform" if uniform
        else "truncated_normal", seed=seed, dtype=dtype)


def layer_norm(inputs: Tensor, center: bool = True, scale: bool = True,
               activation_fn: Callable[[Tensor], Tensor] | None = None, reuse: bool | None = None,
               variables_collections: Any = None, outputs_collections: Any = None,
               trainable: bool = True, begin_norm_axis: int = 1, begin_params_axis: int = -1,
               scope: Any = None) -> Tensor:
    """Normalizes each sample, `(x - mean) / sqrt(variance + 1e-12) * gamma + beta`.

    Args:
        inputs: a tensor of known rank, with known sizes from begin_params_axis on.
        center: whether to add a variable `LayerNorm/beta`, initially 0.
        scale: whether to multiply by a variable `LayerNorm/gamma`, initially 1.
        activation_fn: function that is applied to the result, or None.
        reuse: whether to reuse existing variables.
        variables_collections: additional collections of the variables: a list, or a dictionary
            with the keys "beta" and "gamma".
        outputs_collections: name of the collection that the result is added to.
        trainable: whether the variables are trainable.
        begin_norm_axis: first dimension over which mean and variance are computed.
        begin_params_axis: first dimension of the variables.
        scope: variable scope or its name; by default `LayerNorm`.

    Raises:
        ValueError: if a size of the variables is unknown.

    Source: Ba, Kiros, Hinton: Layer Normalization, https://arxiv.org/abs/1607.06450, 2016.
    """
    with tf.compat.v1.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse):
        inputs = tf.convert_to_tensor(inputs)
        shape = inputs.shape[begin_params_axis % inputs.shape.rank:]
        if not shape.is_fully_defined():
            raise ValueError(f"Inputs {inputs.name}: shape(inputs)[{begin_params_axis}:] is not "
                             f"fully defined: {inputs.shape}")
        beta, gamma = (tf.compat.v1.get_variable(
            name, shape, inputs.dtype.base_dtype, initializer, trainable=trainable,
            collections=_collections(variables_collections, name)) if is_used else None
            for name, initializer, is_used in (
                ("beta", tf.compat.v1.zeros_initializer(), center),
                ("gamma", tf.compat.v1.ones_initializer(), scale)))
        axes = list(range(begin_norm_axis % inputs.shape.rank, inputs.shape.rank))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        epsilon = 1e-3 if inputs.dtype.base_dtype == tf.float16 else 1e-12
        outputs = tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, epsilon)
        outputs.set_shape(inputs.shape)
        outputs = activation_fn(outputs) if activation_fn else outputs
        tf.compat.v1.add_to_collections(outputs_collections or (), outputs)
        return outputs


def _collections(given: Any, name: str) -> list[str] | None:
    own = given.get(name) if isinstance(given, dict) else given
    return [*own, tf.compat.v1.GraphKeys.GLOBAL_VARIABLES] if own else None


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
            return None  # like contrib, adds no penalty to the collection of losses
        with tf.name_scope(scope or "regularizer"):
            return scale * penalty(weights)

    return regularize
