# SPDX-License-Identifier: Apache-2.0
"""The heads of `tf.contrib.estimator`: those of canned Estimators, with the mean loss."""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow_estimator.python.estimator.canned import head

from tpu_estimator_embedding.types import FeatureColumn, Tensor

_MEAN = tf.compat.v1.losses.Reduction.SUM_OVER_BATCH_SIZE


def regression_head(weight_column: str | FeatureColumn | None = None, label_dimension: int = 1,
                    loss_reduction: str = _MEAN, loss_fn: Callable[..., Tensor] | None = None,
                    inverse_link_fn: Callable[[Tensor], Tensor] | None = None,
                    name: str | None = None) -> Any:
    """Returns a head for regression by mean squared error; logits `[batch, label_dimension]`."""
    return head._regression_head(weight_column, label_dimension, loss_reduction, loss_fn,
                                 inverse_link_fn, name)


def binary_classification_head(weight_column: str | FeatureColumn | None = None,
                               thresholds: Sequence[float] | None = None,
                               label_vocabulary: Sequence[str] | None = None,
                               loss_reduction: str = _MEAN,
                               loss_fn: Callable[..., Tensor] | None = None,
                               name: str | None = None) -> Any:
    """Returns a head for two classes by sigmoid cross entropy; logits `[batch, 1]`."""
    return head._binary_logistic_head_with_sigmoid_cross_entropy_loss(
        weight_column, thresholds, label_vocabulary, loss_reduction, loss_fn, name)


def multi_class_head(n_classes: int, weight_column: str | FeatureColumn | None = None,
                     label_vocabulary: Sequence[str] | None = None, loss_reduction: str = _MEAN,
                     loss_fn: Callable[..., Tensor] | None = None,
                     name: str | None = None) -> Any:
    """Returns a head for several classes by softmax cross entropy; logits `[batch, n_classes]`."""
    return head._multi_class_head_with_softmax_cross_entropy_loss(
        n_classes, weight_column, label_vocabulary, loss_reduction, loss_fn, name)


def poisson_regression_head(weight_column: str | FeatureColumn | None = None,
                            label_dimension: int = 1, loss_reduction: str = _MEAN,
                            compute_full_loss: bool = True, name: str | None = None) -> Any:
    """Returns a head for counts by Poisson's loss; logits are the logarithm of the mean."""
    def loss_fn(labels: Tensor, logits: Tensor) -> Tensor:
        return tf.nn.log_poisson_loss(labels, logits, compute_full_loss)

    return regression_head(weight_column, label_dimension, loss_reduction, loss_fn, tf.exp, name)


def logistic_regression_head(weight_column: str | FeatureColumn | None = None,
                             loss_reduction: str = _MEAN, name: str | None = None) -> Any:
    """Returns a head for labels from 0 to 1 by sigmoid cross entropy; logits `[batch, 1]`."""
    def loss_fn(labels: Tensor, logits: Tensor) -> Tensor:
        return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)

    return regression_head(weight_column, 1, loss_reduction, loss_fn, tf.sigmoid, name)
