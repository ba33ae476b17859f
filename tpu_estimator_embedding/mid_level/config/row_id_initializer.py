# SPDX-License-Identifier: Apache-2.0
"""An initializer that fills every row with its number."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from tpu_estimator_embedding.optimizers.setting_checks import check_number
from tpu_estimator_embedding.types import Tensor

if TYPE_CHECKING:
    from tensorflow.python.trackable.base import ShardInfo


@dataclasses.dataclass(frozen=True)
class RowIdInitializer:
    """Initializes row i with `offset + i`, to make table layouts visible.

    Attributes:
        offset: value of the first row. If the caller passes `shard_info`, the offset of the
            part replaces it.

    Raises:
        TypeError: if `offset` is no number.

    >>> RowIdInitializer(5)((2, 3), tf.float32).numpy().tolist()
    [[5.0, 5.0, 5.0], [6.0, 6.0, 6.0]]
    """

    offset: int = 0

    def __post_init__(self) -> None:
        check_number("offset", self.offset)

    def __call__(self, shape: "tf.TensorShape | Sequence[int]", dtype: tf.DType = tf.float32, *,
                 shard_info: "ShardInfo | None" = None, **unused: object) -> Tensor:
        """Returns a tensor of `shape` and `dtype`."""
        offset = self.offset if shard_info is None else shard_info.offset[0]
        rows = tf.cast(tf.range(offset, offset + shape[0]), dtype)
        return tf.broadcast_to(rows[:, tf.newaxis], shape)
