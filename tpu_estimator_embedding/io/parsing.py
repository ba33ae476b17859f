# SPDX-License-Identifier: Apache-2.0
"""Parses batches of serialized `tf.train.Example` records."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.io.embedding_features import embedding_features
from tpu_estimator_embedding.io.native_features import NativeFeatures
from tpu_estimator_embedding.kernels import load


def parse_examples(serialized: Any, embeddings: Any,
                   features: Mapping[str, Any] | None = None,
                   example_names: Any = None) -> dict[str, Any]:
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
        TypeError: `embeddings` is of no known kind.
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
    wanted = {**embedding_features(embeddings), **(features or {})}
    checks.check(bool(wanted), "embeddings and features", "of at least one feature", wanted)
    ops = load.native_ops()
    native = NativeFeatures.of(wanted) if ops is not None else NativeFeatures.of({})
    others = {key: feature for key, feature in wanted.items() if key not in native.keys}
    parsed: dict[str, Any] = {}
    if native.keys:
        parsed = native.parse(ops, serialized, example_names)
    if others:
        parsed |= tf.io.parse_example(serialized, others, example_names)
    return {key: parsed[key] for key in sorted(parsed)}


def _batch(argument: str, strings: Any) -> Any:
    tensor = tf.convert_to_tensor(strings, tf.string)
    checks.check(tensor.shape.rank in (None, 1), argument, "a batch, of shape [batch]",
                 tensor.shape, "Batch the dataset before it is parsed: that is many times faster "
                 "than to parse record by record.")
    return tensor
