# SPDX-License-Identifier: Apache-2.0
"""Functions of `tf.contrib.layers`: those that tf-slim lacks, and those most used, without it."""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from tpu_estimator_embedding.types import Initializer, Tensor

_Collections = Sequence[str]
_Scope: TypeAlias = str | tf.compat.v1.VariableScope

_Regularizer = Callable[[Tensor], Tensor | None]


def xavier_initializer(uniform: bool = True, seed: int | None = None,
                       dtype: tf.DType = tf.float32) -> Initializer:
    """Returns Glorot's initializer: variance 2 / (fan in + fan out)."""
    return tf.compat.v1.variance_scaling_initializer(
        scale=1.0, mode="fan_avg", distribution="uniform" if uniform else "truncated_normal",
        seed=seed, dtype=dtype)


def variance_scaling_initializer(factor: float = 2.0, mode: str = "FAN_IN",
                                 uniform: bool = False, seed: int | None = None,
                                 dtype: tf.DType = tf.float32) -> Initializer:
    """Returns an initializer with variance factor / fan; by default He's initializer."""
    return tf.compat.v1.variance_scaling_initializer(
        scale=factor, mode=mode.lower(), distribution="uniform" if uniform
        else "truncated_normal", seed=seed, dtype=dtype)


def layer_norm(inputs: Tensor, center: bool = True, scale: bool = True,
               activation_fn: Callable[[Tensor], Tensor] | None = None, reuse: bool | None = None,
               variables_collections: _Collections | dict[str, _Collections] | None = None,
               outputs_collections: str | _Collections | None = None,
               trainable: bool = True, begin_norm_axis: int = 1, begin_params_axis: int = -1,
               scope: _Scope | None = None) -> Tensor:
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


def _collections(given: _Collections | dict[str, _Collections] | None,
                 name: str) -> list[str] | None:
    own = given.get(name) if isinstance(given, dict) else given
    return [*own, tf.compat.v1.GraphKeys.GLOBAL_VARIABLES] if own else None


def embed_sequence(ids: object, vocab_size: int | None = None, embed_dim: int | None = None,
                   unique: bool = False, initializer: Initializer | None = None,
                   regularizer: _Regularizer | None = None, trainable: bool = True,
                   scope: _Scope | None = None,
                   reuse: bool | None = None) -> Tensor:
    """Looks up each id in a variable `EmbedSequence/embeddings`.

    Args:
        ids: integers, `[batch, positions]`.
        vocab_size: number of rows of the variable; may be None if `reuse` is true.
        embed_dim: number of columns of the variable; may be None if `reuse` is true.
        unique: whether to gather each distinct id once.
        initializer: initializer of the variable.
        regularizer: function of the variable that returns a loss.
        trainable: whether the variable is trainable.
        scope: variable scope or its name; by default `EmbedSequence`.
        reuse: whether to reuse the existing variable.

    Returns:
        `[batch, positions, embed_dim]`.

    Raises:
        ValueError: if a size is missing and `reuse` is not true.
    """
    with tf.compat.v1.variable_scope(scope, "EmbedSequence", [ids], reuse=reuse):
        embeddings = _embeddings(vocab_size, embed_dim, initializer, regularizer, trainable, reuse)
        return (embedding_lookup_unique if unique else tf.nn.embedding_lookup)(embeddings, ids)


def bow_encoder(ids: Any, vocab_size: int, embed_dim: int, sparse_lookup: bool = True,
                initializer: Initializer | None = None, regularizer: _Regularizer | None = None,
                trainable: bool = True, scope: _Scope | None = None,
                reuse: bool | None = None) -> Tensor:
    """Averages the embeddings of each row of ids: a bag of words.

    Args:
        ids: integers, `[batch, positions]`, or a SparseTensor of that shape.
        vocab_size: number of rows of the variable `BowEncoder/embeddings`.
        embed_dim: number of columns of the variable.
        sparse_lookup: whether zeros in dense `ids` are padding, which does not count. If false,
            the mean is over all positions.
        initializer: initializer of the variable.
        regularizer: function of the variable that returns a loss.
        trainable: whether the variable is trainable.
        scope: variable scope or its name; by default `BowEncoder`.
        reuse: whether to reuse the existing variable.

    Returns:
        `[batch, embed_dim]`.

    Raises:
        TypeError: if `ids` is a SparseTensor and `sparse_lookup` is false.
    """
    is_sparse = isinstance(ids, tf.SparseTensor)
    if is_sparse and not sparse_lookup:
        raise TypeError(f"`ids` must be a dense tensor if `sparse_lookup` is false, got {ids}.")
    with tf.compat.v1.variable_scope(
            scope, "BowEncoder", [ids.values if is_sparse else ids], reuse=reuse):
        embeddings = _embeddings(vocab_size, embed_dim, initializer, regularizer, trainable, reuse)
        if not sparse_lookup:
            return tf.reduce_mean(tf.nn.embedding_lookup(embeddings, ids), axis=1)
        sparse_ids = ids if is_sparse else tf.sparse.from_dense(ids)
        return tf.compat.v1.nn.safe_embedding_lookup_sparse(
            [embeddings], tf.cast(sparse_ids, tf.int64), combiner="mean")


def embedding_lookup_unique(params: object, ids: Any, partition_strategy: str = "mod",
                            name: str | None = None) -> Tensor:
    """Returns the rows of ids of any shape, `[..., columns]`; gathers each distinct id once."""
    with tf.name_scope(name or "EmbeddingLookupUnique"):
        ids = tf.convert_to_tensor(ids)
        distinct, positions = tf.unique(tf.reshape(ids, [-1]))
        rows = tf.compat.v1.nn.embedding_lookup(params, distinct, partition_strategy)
        found = tf.gather(rows, tf.reshape(positions, tf.shape(ids)))
        found.set_shape(ids.shape.concatenate(rows.shape[1:]))
        return found


def _embeddings(vocab_size: int | None, embed_dim: int | None, initializer: Initializer | None,
                regularizer: _Regularizer | None, trainable: bool,
                reuse: bool | None) -> tf.Variable:
    is_complete = bool(vocab_size and embed_dim)
    if not is_complete and not reuse:
        raise ValueError("Must specify vocab size and embedding dimension when not reusing. Got "
                         f"vocab_size={vocab_size} and embed_dim={embed_dim}")
    return tf.compat.v1.get_variable(
        "embeddings", [vocab_size, embed_dim] if is_complete else None, initializer=initializer,
        regularizer=regularizer, trainable=trainable, collections=[
            tf.compat.v1.GraphKeys.GLOBAL_VARIABLES, tf.compat.v1.GraphKeys.MODEL_VARIABLES])


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
