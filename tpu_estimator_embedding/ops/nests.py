# SPDX-License-Identifier: Apache-2.0
"""The tensors of a nest, without its other leaves, and nests of one's own.

>>> nest = {"ids": tf.constant([1, 2]), "weights": None, "batch_size": 2}
>>> with_tensors(nest, [10 * tensor for tensor in tensors_of(nest)])["ids"].numpy().tolist()
[10, 20]
"""

from collections.abc import Iterable
from typing import TypeVar

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_Nest = TypeVar("_Nest")


def tensors_of(nest: object) -> list[Tensor]:
    """Returns the tensors of a nest, those of sparse and ragged tensors included."""
    return [leaf for leaf in tf.nest.flatten(nest, expand_composites=True) if tf.is_tensor(leaf)]


def own_containers(nest: _Nest) -> _Nest:
    """Returns the nest in new containers, with the same leaves.

    A user's function is given fresh containers, because it may change them in place. Sparse and
    ragged tensors are leaves.

    >>> features = {"x": 1, "inner": [2]}
    >>> own = own_containers(features)
    >>> own["inner"].append(own.pop("x"))
    >>> own, features
    ({'inner': [2, 1]}, {'x': 1, 'inner': [2]})
    """
    return tf.nest.map_structure(lambda leaf: leaf, nest)


def with_tensors(nest: _Nest, tensors: Iterable[Tensor]) -> _Nest:
    """Returns the nest with its tensors replaced, in the order of `tensors_of`."""
    remaining = iter(tensors)
    leaves = tf.nest.flatten(nest, expand_composites=True)
    return tf.nest.pack_sequence_as(
        nest, [next(remaining) if tf.is_tensor(leaf) else leaf for leaf in leaves],
        expand_composites=True)
