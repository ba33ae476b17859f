# SPDX-License-Identifier: Apache-2.0
"""Checks of the gradients that a program hands to `apply_gradients`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.types import Tensor


def checked_gradients(gradients: Mapping[str, Any],
                      shapes: Mapping[str, Sequence[int]]) -> dict[str, Tensor]:
    """Returns path -> gradient, float32, of the shape of its activation.

    Args:
        gradients: path -> Tensor, or None for zeros.
        shapes: path -> shape of the activation.

    Raises:
        ValueError: if a gradient is no Tensor, or known to be of another shape.
        tf.errors.InvalidArgumentError: when run, if it turns out to be of another shape.
    """
    return {path: _checked(path, gradients[path], shape) for path, shape in shapes.items()}


def _checked(path: str, gradient: Any, shape: Sequence[int]) -> Tensor:
    if gradient is None:
        warnings.warn(
            f"The gradient of feature {path!r} is None: zeros are applied. The momenta of its "
            "rows go on moving them; leave the feature out to leave its rows alone.",
            stacklevel=2)
        return tf.zeros(shape)
    checks.check(tf.is_tensor(gradient) and hasattr(gradient, "shape"),
                 f"gradient of feature {path!r}", "a Tensor or None", type(gradient).__name__)
    checks.check(isinstance(gradient, tf.Tensor), f"gradient of feature {path!r}",
                 "a dense Tensor or None", type(gradient).__name__)
    checks.check(gradient.shape.is_compatible_with(shape), f"gradient of feature {path!r}",
                 f"of shape {list(shape)}, that of its activation", gradient.shape)
    return tf.ensure_shape(tf.cast(gradient, tf.float32), shape)
