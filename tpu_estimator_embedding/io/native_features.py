# SPDX-License-Identifier: Apache-2.0
"""The features that the native op parses."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding.types import Tensor

_DTYPES = (tf.int64, tf.float32, tf.string)


class NativeFeatures(NamedTuple):
    """Features of `tf.io.parse_example` by kind, name -> specification, sorted by name.

    Attributes:
        dense: of FixedLenFeature, with a fully defined shape.
        ragged: of RaggedFeature, without partitions.
        sparse: of VarLenFeature.
    """

    dense: dict[str, Any]
    ragged: dict[str, Any]
    sparse: dict[str, Any]

    @classmethod
    def of(cls, features: Mapping[str, Any]) -> "NativeFeatures":
        """Returns the features that the op can parse; the others are for TensorFlow's."""
        uses = Counter(record_key(name, feature) for name, feature in features.items())
        able = {name: features[name] for name in sorted(features)
                if uses[record_key(name, features[name])] == 1}
        return cls(
            {name: feature for name, feature in able.items() if _is_dense(feature)},
            {name: feature for name, feature in able.items() if _is_ragged(feature)},
            {name: feature for name, feature in able.items() if _is_sparse(feature)})

    @property
    def keys(self) -> set[str]:
        """The names of all features."""
        return {*self.dense, *self.ragged, *self.sparse}

    def parse(self, ops: Any, serialized: Tensor, example_names: Any) -> dict[str, Any]:
        """Returns name -> tensor, SparseTensor or RaggedTensor.

        Args:
            ops: the module of the compiled ops.
            serialized: `[batch]` string.
            example_names: `[batch]` string, or None.
        """
        parsed = ops.tpu_embedding_parse_examples(
            serialized=serialized, names=[] if example_names is None else example_names,
            dense_defaults=[_default(feature) for feature in self.dense.values()],
            dense_keys=list(self.dense),
            dense_shapes=[feature.shape for feature in self.dense.values()],
            ragged_keys=[record_key(*item) for item in self.ragged.items()],
            ragged_types=[feature.dtype for feature in self.ragged.values()],
            ragged_split_types=[feature.row_splits_dtype for feature in self.ragged.values()],
            sparse_keys=list(self.sparse), num_sparse=len(self.sparse),
            sparse_types=[feature.dtype for feature in self.sparse.values()])
        return {**dict(zip(self.dense, parsed.dense_values, strict=True)),
                **self._ragged_tensors(parsed), **self._sparse_tensors(parsed)}

    def _ragged_tensors(self, parsed: Any) -> dict[str, tf.RaggedTensor]:
        rows = zip(parsed.ragged_values, parsed.ragged_row_splits, strict=True)
        return {name: tf.RaggedTensor.from_row_splits(values, splits, validate=False)
                for name, (values, splits) in zip(self.ragged, rows, strict=True)}

    def _sparse_tensors(self, parsed: Any) -> dict[str, tf.SparseTensor]:
        parts = zip(parsed.sparse_indices, parsed.sparse_values, parsed.sparse_shapes, strict=True)
        return {name: tf.SparseTensor(*of_feature)
                for name, of_feature in zip(self.sparse, parts, strict=True)}


def record_key(name: str, feature: Any) -> str:
    """Returns the key in records of a feature, which a RaggedFeature can set.

    >>> record_key("words", tf.io.RaggedFeature(tf.int64, value_key="ids"))
    'ids'
    """
    return getattr(feature, "value_key", None) or name


def _default(feature: tf.io.FixedLenFeature) -> Tensor:
    """Returns the default value, without values where records must have the feature."""
    if feature.default_value is None:
        return tf.constant([], feature.dtype)
    value = tf.convert_to_tensor(feature.default_value, feature.dtype)
    return tf.reshape(value, feature.shape)


def _is_dense(feature: Any) -> bool:
    return (type(feature) is tf.io.FixedLenFeature and feature.dtype in _DTYPES
            and isinstance(feature.shape, list | tuple | tf.TensorShape)
            and tf.TensorShape(feature.shape).is_fully_defined())


def _is_ragged(feature: Any) -> bool:
    return (type(feature) is tf.io.RaggedFeature and feature.dtype in _DTYPES
            and not feature.partitions)


def _is_sparse(feature: Any) -> bool:
    return type(feature) is tf.io.VarLenFeature and feature.dtype in _DTYPES
