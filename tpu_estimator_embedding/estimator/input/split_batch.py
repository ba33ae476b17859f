# SPDX-License-Identifier: Apache-2.0
"""Splits one batch among replicas."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks


def split_batch(features: Any, labels: Any, num_replicas: int,
                embedding_keys: Iterable[str] = (), batch_axis: Sequence[int] | None = None
                ) -> list[tuple[Any, Any]]:
    """Returns `(features, labels)` of every replica.

    Args:
        features: a tensor, or a dictionary of tensors, including sparse or ragged ones.
        labels: the same, or None.
        num_replicas: number of equal shares; must divide the batch.
        embedding_keys: features that are ids or weights; their batch axis is the first.
        batch_axis: the batch axis of every other tensor of features and then labels, in
            the order of `tf.nest.flatten`; None means the first axis.

    Raises:
        TypeError: if there are embedding_keys and `features` is not a dictionary.
        ValueError: if `batch_axis` has a wrong number of entries, or a batch of known size
            cannot be split.
    """
    keys = set(embedding_keys)
    if keys:
        checks.check_type(Mapping, "features", "a dictionary, to find embedding features by name",
                          features)
    by_row = {key: value for key, value in features.items() if key in keys} if keys else {}
    others = ({key: value for key, value in features.items() if key not in keys} if keys
              else features)
    shares_by_row = _split(by_row, num_replicas, None)
    shares = _split((others, labels), num_replicas, batch_axis)
    return [({**rows, **share} if keys else share, share_labels)
            for rows, (share, share_labels) in zip(shares_by_row, shares, strict=True)]


def _split(structure: Any, num_replicas: int, axes: Sequence[int] | None) -> list[Any]:
    leaves = tf.nest.flatten(structure)
    tensors = [leaf for leaf in leaves if leaf is not None]
    if axes is None:
        axes = [0] * len(tensors)
    checks.check(len(axes) == len(tensors), "batch_axis",
                 f"of one entry for each of the {len(tensors)} tensors of features and labels",
                 axes)
    remaining = iter(axes)
    parts = [[None] * num_replicas if leaf is None
             else _split_tensor(leaf, num_replicas, next(remaining)) for leaf in leaves]
    return [tf.nest.pack_sequence_as(structure, list(share))
            for share in zip(*parts, strict=True)] if parts else [structure] * num_replicas


def _split_tensor(tensor: Any, num_replicas: int, axis: int) -> list[Any]:
    size = tf.compat.dimension_value(tensor.shape[axis])
    checks.check(size is None or size % num_replicas == 0, "batch",
                 f"divisible by the number of replicas, {num_replicas}", size,
                 "Drop the remainder in input_fn.")
    if isinstance(tensor, tf.SparseTensor):
        return tf.sparse.split(tensor, num_replicas, axis=axis)
    if isinstance(tensor, tf.RaggedTensor):
        share = tensor.nrows() // num_replicas
        return [tensor[replica * share:(replica + 1) * share] for replica in range(num_replicas)]
    return tf.split(tensor, num_replicas, axis=axis)
