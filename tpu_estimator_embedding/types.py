# SPDX-License-Identifier: Apache-2.0
"""The aliases that signatures in this package share."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Tensors are not a usable static type: TensorFlow ships no stubs.
Tensor = Any

# Called as `initializer(shape, dtype)`; returns a tensor of that shape.
Initializer = Callable[..., Tensor]

# A float, or a function of the global step that returns a scalar tensor.
LearningRate = float | Callable[[Tensor], Tensor]

# How the ids of one sample become one activation; None: a sample has exactly one id.
COMBINERS = ("mean", "sum", "sqrtn", None)

# Slot name -> rows of that slot, `[rows, dim]` float32 each.
SlotRows = Mapping[str, Tensor]


class Quantization(NamedTuple):
    """Levels that looked-up values are rounded to: `num_buckets` of them in [lower, upper]."""

    num_buckets: int
    lower: float
    upper: float
