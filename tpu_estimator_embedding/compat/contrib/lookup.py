# SPDX-License-Identifier: Apache-2.0
"""Tables of `tf.contrib.lookup` whose arguments have other names or places in `tf.lookup`."""

from typing import Any

import tensorflow as tf
from tensorflow.python.ops import lookup_ops

from tpu_estimator_embedding.types import Tensor


class HashTable(tf.compat.v1.lookup.StaticHashTable):
    """A table that its initializer fills.

    Args:
        initializer: the keys and values.
        default_value: the value of other keys.
        shared_name: must be None; sessions of one process share tables by graph.
        name: name of the table.

    Raises:
        ValueError: if `shared_name` is given.
    """

    def __init__(self, initializer: Any, default_value: Any, shared_name: None = None,
                 name: str | None = None) -> None:
        if shared_name is not None:
            raise ValueError(f"`shared_name` must be None, got {shared_name!r}. Tables are shared "
                             "by their graph; use `name` to name one.")
        super().__init__(initializer, default_value, name=name)

    @property
    def init(self) -> tf.Operation:
        """The op that fills the table."""
        return self.initializer


def index_table_from_tensor(mapping: Any, num_oov_buckets: int = 0, default_value: int = -1,
                            hasher_spec: Any = lookup_ops.FastHashSpec,
                            dtype: tf.DType = tf.string, name: str | None = None) -> Any:
    """Returns a table of the positions of keys in `mapping`."""
    return lookup_ops.index_table_from_tensor(mapping, num_oov_buckets, default_value, hasher_spec,
                                              dtype, name)


def index_to_string_table_from_tensor(mapping: Any, default_value: str = "UNK",
                                      name: str | None = None) -> Any:
    """Returns a table of the strings at positions in `mapping`."""
    return lookup_ops.index_to_string_table_from_tensor(mapping, default_value, name)


def string_to_index(tensor: Tensor | tf.SparseTensor, mapping: Any, default_value: int = -1,
                    name: str | None = None) -> Tensor | tf.SparseTensor:
    """Returns the positions of strings in `mapping`."""
    return index_table_from_tensor(mapping, default_value=default_value, name=name).lookup(tensor)


def index_to_string(tensor: Tensor | tf.SparseTensor, mapping: Any, default_value: str = "UNK",
                    name: str | None = None) -> Tensor | tf.SparseTensor:
    """Returns the strings at positions in `mapping`."""
    return index_to_string_table_from_tensor(mapping, default_value, name).lookup(tensor)
