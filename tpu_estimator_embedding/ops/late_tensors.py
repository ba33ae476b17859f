# SPDX-License-Identifier: Apache-2.0
"""Tensors that a graph uses before the ops that compute them exist.

>>> with tf.Graph().as_default(), tf.compat.v1.Session() as session:
...     late = late_tensor(tf.TensorSpec([]))
...     doubled = 2.0 * late
...     set_late_tensor(late, tf.constant(3.0))
...     float(session.run(doubled))
6.0
"""

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor


def late_tensor(spec: tf.TensorSpec, *, name: str | None = None,
                missing: str | None = None) -> Tensor:
    """Returns a tensor whose value `set_late_tensor` sets later.

    Args:
        spec: its shape and dtype.
        name: name of its op.
        missing: name that the error shows if the tensor is evaluated without a value.
    """
    placeholder = tf.compat.v1.placeholder(spec.dtype, spec.shape, name=missing)
    return tf.identity(placeholder, name=name)


def set_late_tensor(late: Tensor, value: Tensor) -> None:
    """Replaces a late tensor by `value` wherever it was used."""
    late.op._update_input(0, value)
