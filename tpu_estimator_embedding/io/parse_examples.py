# SPDX-License-Identifier: Apache-2.0
"""Parses serialized records: the features that a configuration of embeddings names, and others."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.feature_column.column_checks import is_tpu_column
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.mid_level.config.structure import named_features
from tpu_estimator_embedding.plan.embedding_plan import EmbeddingPlan
from tpu_estimator_embedding.types import FeatureColumn, Tensor

if TYPE_CHECKING:
    from tpu_estimator_embedding.estimator.embedding_config_spec import EmbeddingConfigSpec

Specifications = dict[str, Any]  # key -> what tf.io.parse_example takes

_KINDS = ("a list of feature columns, an EmbeddingConfigSpec, a feature_config of the TF2 classes "
          "or an EmbeddingPlan")
_DTYPES = (tf.int64, tf.float32, tf.string)


def parse_examples(serialized: Tensor | Sequence[bytes], embeddings: Any,
                   features: Mapping[str, Any] | None = None,
                   example_names: Tensor | Sequence[bytes] | None = None) -> dict[str, Any]:
    """Parses a batch of serialized `tf.train.Example` records.

    The result is that of `tf.io.parse_example`, several times faster where the native kernels
    run: a multi-threaded op reads the records without a protocol buffer library. Without the
    kernels, `tf.io.parse_example` runs.

    For input pipelines: the op is not in plain TensorFlow, so a serving input that a SavedModel
    keeps has to use `tf.io.parse_example`.

    Args:
        serialized: `[batch]` string, the records. Batch a dataset before it is parsed.
        embeddings: the embedding features to parse: a list of feature columns, an
            `EmbeddingConfigSpec`, the feature_config of the TF2 classes, or an `EmbeddingPlan`.
            A feature of a nested feature_config has its path as its key, "user/country".
        features: key -> `tf.io.FixedLenFeature`, `tf.io.VarLenFeature` or any other
            specification that `tf.io.parse_example` takes, for the label and all other features.
            For a key of an embedding feature it overrides how the feature is parsed.
        example_names: `[batch]` string, names of the records for messages, or None.

    Returns:
        Key -> tensor. Ids of embedding features, of sequences too, are `RaggedTensor`s
        `[batch, (ids)]` int64 with int64 row splits, their weights float32: half the memory of
        a `SparseTensor`, and the form that the lookup takes as it is. Columns whose vocabulary
        is of strings give strings. For columns that need no embedding, and for `features`, the
        tensors that `tf.io.parse_example` returns.

    Raises:
        ValueError: `serialized` is no batch, or there is nothing to parse.
        TypeError: `embeddings` is of no known kind, or `features` no mapping.
        tf.errors.InvalidArgumentError: a record is malformed, lacks a required feature, or has
            values of another type or number. The message begins as that of
            `tf.io.parse_example` and gives the index of the record in the batch.

    >>> import tpu_estimator_embedding as tee
    >>> item = tf.feature_column.categorical_column_with_identity("item", 1000)
    >>> record = tf.train.Example(features=tf.train.Features(feature={
    ...     "item": tf.train.Feature(int64_list=tf.train.Int64List(value=[7, 300])),
    ...     "clicked": tf.train.Feature(float_list=tf.train.FloatList(value=[1]))}))
    >>> batch = tee.io.parse_examples(
    ...     [record.SerializeToString()], [tee.embedding_column(item, 16)],
    ...     {"clicked": tf.io.FixedLenFeature([1], tf.float32)})
    >>> batch["item"], batch["clicked"].numpy().tolist()
    (<tf.RaggedTensor [[7, 300]]>, [[1.0]])
    """
    serialized = _batch("serialized", serialized)
    checks.check_type((Mapping, type(None)), "features",
                      "a mapping of keys to specifications, or None", features)
    checks.check(all(isinstance(key, str) for key in features or ()), "features",
                 "keyed by strings", features)
    wanted = {**embedding_features(embeddings), **(features or {})}
    checks.check(bool(wanted), "embeddings and features", "have at least one feature", wanted)
    ops = load.native_ops()
    native = NativeFeatures.of(wanted) if ops is not None else NativeFeatures.of({})
    others = {key: feature for key, feature in wanted.items() if key not in native.keys}
    parsed: dict[str, Any] = {}
    if native.keys:
        parsed = native.parse(ops, serialized, example_names)
    if others:
        parsed |= tf.io.parse_example(serialized, others, example_names)
    return {key: parsed[key] for key in sorted(parsed)}


def _batch(argument: str, strings: Tensor | Sequence[bytes]) -> Tensor:
    tensor = tf.convert_to_tensor(strings, tf.string)
    checks.check(tensor.shape.rank in (None, 1), argument, "a batch, of shape [batch]",
                 tensor.shape, "Batch the dataset before it is parsed: that is many times faster "
                 "than parsing record by record.")
    return tensor


def embedding_features(embeddings: Any) -> Specifications:
    """Returns how to parse the ids and weights that a configuration names.

    Args:
        embeddings: what `parse_examples` takes.

    Raises:
        TypeError: if it is of another kind.

    >>> words = tf.feature_column.categorical_column_with_identity("words", 1000)
    >>> embedding_features([tf.compat.v1.tpu.experimental.embedding_column(words, 16)])["words"]
    RaggedFeature(dtype=tf.int64, value_key=None, partitions=(), row_splits_dtype=tf.int64,
                  validate=False)
    """
    if isinstance(embeddings, EmbeddingPlan):
        return _of_keys((feature.name, feature.weight_key) for feature in embeddings.features)
    if hasattr(embeddings, "feature_to_config_dict"):
        return _of_spec(embeddings)
    if isinstance(embeddings, list | tuple) and all(map(_is_column, embeddings)):
        return _of_columns(embeddings)
    if _is_column(embeddings):
        raise TypeError(checks.complaint("embeddings", _KINDS, embeddings, "Pass it in a list."))
    checks.check_type((dict, list, tuple, *_feature_config_types(embeddings)), "embeddings", _KINDS,
                      embeddings)
    return _of_keys((path, None) for path in named_features(embeddings))


def _of_spec(spec: "EmbeddingConfigSpec") -> Specifications:
    if spec.feature_to_config_dict:
        return _of_keys((key, config.weight_key)
                        for key, config in spec.feature_to_config_dict.items())
    return _of_columns([*spec.feature_columns,
                        *(getattr(spec, "tensor_core_feature_columns", None) or ())])


def _of_columns(columns: Iterable[FeatureColumn]) -> Specifications:
    """Takes keys and types from the columns: vocabularies may be of strings."""
    specifications: Specifications = {}
    for column in columns:
        given = column.parse_example_spec
        specifications |= {key: _ragged(feature.dtype) for key, feature in given.items()
                           } if is_tpu_column(column) else given
    return specifications


def _of_keys(keys: Iterable[tuple[str, str | None]]) -> Specifications:
    specifications: Specifications = {}
    for key, weight_key in keys:
        specifications[key] = _ragged(tf.int64)
        if weight_key is not None:
            specifications[weight_key] = _ragged(tf.float32)
    return specifications


def _ragged(dtype: tf.DType) -> tf.io.RaggedFeature:
    # Row splits of 64 bits, as tf.ragged makes them: TensorFlow's ops take no mixture.
    return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)


def _is_column(value: object) -> bool:
    return hasattr(value, "parse_example_spec")


def _feature_config_types(value: object) -> tuple[type, ...]:
    """The type of a configuration that is one FeatureConfig."""
    return (type(value),) if hasattr(value, "table") else ()


class NativeFeatures(NamedTuple):
    """Features of `tf.io.parse_example` by kind, name -> specification, sorted by name.

    Attributes:
        dense: of FixedLenFeature, with a fully defined shape.
        ragged: of RaggedFeature, without partitions.
        sparse: of VarLenFeature.
    """

    dense: dict[str, tf.io.FixedLenFeature]
    ragged: dict[str, tf.io.RaggedFeature]
    sparse: dict[str, tf.io.VarLenFeature]

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

    def parse(self, ops: ModuleType, serialized: Tensor,
              example_names: Tensor | Sequence[bytes] | None) -> dict[str, Any]:
        """Returns name -> tensor, SparseTensor or RaggedTensor.

        Args:
            ops: the module of the compiled ops.
            serialized: `[batch]` string.
            example_names: `[batch]` string, for errors; or None.

        Raises:
            tf.errors.InvalidArgumentError: TensorFlow's own, if a record cannot be parsed.
        """
        parsed = ops.tpu_embedding_parse_examples(
            serialized=serialized,
            dense_defaults=[_default(feature) for feature in self.dense.values()],
            dense_keys=list(self.dense),
            dense_shapes=[feature.shape for feature in self.dense.values()],
            ragged_keys=[record_key(*item) for item in self.ragged.items()],
            ragged_types=[feature.dtype for feature in self.ragged.values()],
            ragged_split_types=[feature.row_splits_dtype for feature in self.ragged.values()],
            sparse_keys=list(self.sparse), num_sparse=len(self.sparse),
            sparse_types=[feature.dtype for feature in self.sparse.values()])
        checked = self._checked(parsed.is_valid, serialized, example_names)
        with tf.control_dependencies([checked]):
            parsed = tf.nest.map_structure(tf.identity, parsed)
        return {**dict(zip(self.dense, parsed.dense_values, strict=True)),
                **self._ragged_tensors(parsed), **self._sparse_tensors(parsed)}

    def _checked(self, is_valid: Tensor, serialized: Tensor,
                 example_names: Tensor | Sequence[bytes] | None) -> Tensor:
        """Returns True, or fails with the error of TensorFlow's op on the same records."""
        def fail() -> Tensor:
            features = {**self.dense, **self.ragged, **self.sparse}
            parsed = tf.io.parse_example(serialized, features, example_names)
            # Of the results, because Grappler drops control inputs from ops without effects.
            sizes = [tf.size(part) for part in tf.nest.flatten(parsed, expand_composites=True)]
            is_refused = tf.less(tf.add_n(sizes), 0)
            with tf.control_dependencies([tf.debugging.Assert(is_refused, [
                    "The native parser rejected records that TensorFlow accepts. Parse them with "
                    "tf.io.parse_example."])]):
                return tf.identity(is_refused)

        return tf.cond(is_valid, lambda: tf.constant(True), fail)

    def _ragged_tensors(self, parsed: Any) -> dict[str, tf.RaggedTensor]:
        rows = zip(parsed.ragged_values, parsed.ragged_row_splits, strict=True)
        return {name: tf.RaggedTensor.from_row_splits(values, splits, validate=False)
                for name, (values, splits) in zip(self.ragged, rows, strict=True)}

    def _sparse_tensors(self, parsed: Any) -> dict[str, tf.SparseTensor]:
        parts = zip(parsed.sparse_indices, parsed.sparse_values, parsed.sparse_shapes, strict=True)
        return {name: tf.SparseTensor(*of_feature)
                for name, of_feature in zip(self.sparse, parts, strict=True)}


def record_key(name: str, feature: object) -> str:
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
