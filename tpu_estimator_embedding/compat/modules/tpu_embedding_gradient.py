# SPDX-License-Identifier: Apache-2.0
"""`tensorflow.python.tpu.tpu_embedding_gradient`: gradients of activations, by hand."""

import collections
from collections.abc import Mapping
from typing import Any, NoReturn

from tpu_estimator_embedding.types import Tensor


def get_gradients_through_compute_gradients(
        optimizer: Any, loss: Tensor, activations: Mapping[str, Tensor]
        ) -> "collections.OrderedDict[str, Tensor]":
    """Differentiates the loss by the activations.

    Args:
        optimizer: a `tf.compat.v1.train.Optimizer`, usually a `CrossShardOptimizer`.
        loss: scalar float32.
        activations: feature name -> `[batch, dim]` or `[batch, length, dim]` float32.

    Returns:
        Feature name -> gradient of the shape of its activation, in the same order; None
        where the loss does not depend on the activation.

    >>> import tensorflow as tf
    >>> with tf.Graph().as_default():
    ...     activations = {"word": tf.constant([[1.0, 2.0]])}
    ...     loss = tf.reduce_sum(3.0 * activations["word"])
    ...     gradients = get_gradients_through_compute_gradients(
    ...         tf.compat.v1.train.GradientDescentOptimizer(1.0), loss, activations)
    ...     tf.compat.v1.Session().run(gradients["word"]).tolist()
    [[3.0, 3.0]]
    """
    gradients = optimizer.compute_gradients(loss, list(activations.values()))
    return collections.OrderedDict(
        (feature, gradient)
        for feature, (gradient, _) in zip(activations, gradients, strict=True))


def create_dummy_table_variables(tpu_embedding: Any) -> NoReturn:
    """Raises RuntimeError: it takes a `TPUEmbedding`, which cannot be made here."""
    raise _needs_tpu_embedding("create_dummy_table_variables")


def hook_dummy_table_variables_to_activations(
        tpu_embedding: Any, activations: Mapping[str, Tensor],
        dummy_table_variables: Mapping[str, Any]) -> NoReturn:
    """Raises RuntimeError: it takes a `TPUEmbedding`, which cannot be made here."""
    raise _needs_tpu_embedding("hook_dummy_table_variables_to_activations")


def get_gradients_through_dummy_table_variables(tpu_embedding: Any) -> NoReturn:
    """Raises RuntimeError: it takes a `TPUEmbedding`, which cannot be made here."""
    raise _needs_tpu_embedding("get_gradients_through_dummy_table_variables")


def _needs_tpu_embedding(function: str) -> RuntimeError:
    return RuntimeError(
        f"{function} works on a TPUEmbedding made by hand, which this version of TensorFlow "
        f"does not have: TPUEstimator(embedding_config_spec=...) captures the gradients of "
        f"the activations itself.")
