# SPDX-License-Identifier: Apache-2.0
"""The proximal step of l1 and l2 regularization, the last step of several rules."""

from tpu_estimator_embedding.types import Tensor


def soft_threshold(point: Tensor, rate: Tensor, l1: float, l2: float) -> Tensor:
    """Shrinks a point towards 0, and sets it to 0 if it is close.

        w = sign(p) max(|p| - η l1, 0) / (1 + η l2)

    This w minimizes |w - p|² / 2η + l1 |w| + l2 w² / 2.

    Args:
        point: `[rows, dim]` float32, p: the result of the gradient step alone.
        rate: η, the step size of each element, of a shape that broadcasts with `point`.
        l1: strength of the l1 penalty, at least 0.
        l2: strength of the l2 penalty, at least 0.

    Returns:
        `[rows, dim]` float32.

    Source: J. Duchi, Y. Singer, "Efficient Online and Batch Learning Using Forward
    Backward Splitting", JMLR 10 (2009).

    >>> import tensorflow as tf
    >>> soft_threshold(tf.constant([3.0, 0.5]), 0.5, l1=2.0, l2=2.0).numpy().tolist()
    [1.0, 0.0]
    """
    import tensorflow as tf  # not above: names of slots are read without it
    return tf.sign(point) * tf.maximum(tf.abs(point) - rate * l1, 0.0) / (1.0 + rate * l2)
