# SPDX-License-Identifier: Apache-2.0
"""Features of columns with `embedding_lookup_device='tpu_tensor_core'`.

Their tables are ordinary trainable variables that the model's own optimizer trains. TF's
columns look them up from ids of a fixed shape, and a mask of the valid ids.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.estimator.input.split_features import static_batch_size
from tpu_estimator_embedding.types import Tensor

MASK_SUFFIX = "__TENSOR_CORE_MASK"  # the suffix that TF's columns expect for masks


def pad_tensor_core_features(columns: Sequence[Any], features: Any, labels: Any = None) -> Any:
    """Returns the features with the ids of these columns padded, and their masks.

    Args:
        columns: tensor-core embedding columns.
        features: tensors by feature name; not modified.
        labels: the labels, whose static shapes may also give the batch size.

    Raises:
        ValueError: if a feature is missing, its ids are not a SparseTensor of integers, or
            the key of its mask is in use.
    """
    padded = {}
    for column in columns:
        key = column.get_feature_key_name()
        checks.check(key in features, "features", f"with the embedding feature {key!r}",
                     sorted(features), "Return it from input_fn.")
        checks.check(key + MASK_SUFFIX not in features, "features",
                     f"without the key {key + MASK_SUFFIX!r}, which is that of a mask",
                     sorted(features))
        padded[key], padded[key + MASK_SUFFIX] = _pad(key, features[key],
                                                      column._tensor_core_shape[1],
                                                      static_batch_size(
                                                          [features[key]], features, labels))
    return {**features, **padded} if padded else features


def _pad(key: str, ids: Any, length: int, batch_size: int | None) -> tuple[Tensor, Tensor]:
    """Returns ids `[batch, length]` int32 and mask `[batch, length]` float32."""
    is_sparse_ids = isinstance(ids, tf.SparseTensor) and ids.dtype.is_integer
    checks.check(is_sparse_ids, f"ids of feature {key!r}", "a SparseTensor of integers", ids)
    kept = tf.where(ids.indices[:, 1] < length)[:, 0]
    places = tf.gather(ids.indices, kept)
    shape = tf.stack([ids.dense_shape[0], length])
    values = tf.scatter_nd(places, tf.cast(tf.gather(ids.values, kept), tf.int32), shape)
    mask = tf.scatter_nd(places, tf.ones_like(kept, tf.float32), shape)
    for tensor in (values, mask):
        tensor.set_shape([batch_size, length])
    return values, mask
