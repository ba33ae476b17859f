# SPDX-License-Identifier: Apache-2.0
"""What models for TPUs used most of `tf.contrib.layers`, and which needs no tf-slim."""

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


def layer_norm(inputs: Tensor, center: bool = True, scale: bool = True,
               activation_fn: Callable[[Tensor], Tensor] | None = None, reuse: bool | None = None,
               variables_collections: Any = None, outputs_collections: Any = None,
               trainable: bool = True, begin_norm_axis: int = 1, begin_params_axis: int = -1,
               scope: Any = None) -> Tensor:
    """Normalizes each sample, `(x - mean) / sqrt(variance + 1e-12) * gamma + beta`.

    Args:
        inputs: of known rank; the sizes from begin_params_axis on are known, too.
        center: whether there is a variable `LayerNorm/beta`, at first 0.
        scale: whether there is a variable `LayerNorm/gamma`, at first 1.
        activation_fn: what the result goes through, or None.
        reuse: whether the variables exist already.
        variables_collections: collections of the variables, besides TensorFlow's; a list, or a
            dictionary with the keys "beta" and "gamma".
        outputs_collections: name of the collection that the result is added to.
        trainable: whether the variables are trained.
        begin_norm_axis: first of the dimensions that mean and variance are taken over.
        begin_params_axis: first of the dimensions that the variables have.
        scope: name of the variables' scope, or the scope, instead of `LayerNorm`.

    Raises:
        ValueError: if a size that the variables need is not known.

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
            return None  # as contrib did: no penalty enters the collection of losses
        with tf.name_scope(scope or "regularizer"):
            return scale * penalty(weights)

    return regularize
