# SPDX-License-Identifier: Apache-2.0
"""Input functions that read click logs."""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding.demo.features import FEATURES, LABEL, PRICE
from tpu_estimator_embedding.demo.model import embedding_columns
from tpu_estimator_embedding.io import parse_examples, record_batches


def record_spec() -> dict[str, Any]:
    """Returns the parsing spec of a SavedModel for a record's features, without the label."""
    spec = {PRICE: tf.io.FixedLenFeature([1], tf.float32)}
    for feature in FEATURES:
        spec[feature.name] = tf.io.VarLenFeature(tf.int64)
        if feature.weight_key:
            spec[feature.weight_key] = tf.io.VarLenFeature(tf.float32)
    return spec


def make_input_fn(files: Sequence[pathlib.Path], first_batch: int = 0
                  ) -> Callable[[dict[str, Any]], tf.data.Dataset]:
    """Returns an `input_fn` that reads the files once, in order.

    Args:
        files: click logs.
        first_batch: batches before it are skipped, because an earlier run has used them.

    Returns:
        A function of `params` that returns a dataset of `(features, labels)`: id features as
        RaggedTensors `[batch, (ids)]`, the price `[batch, 1]`, labels `[batch, 1]` float32. The
        last batch may be smaller.
    """
    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        dataset = record_batches(files, params["batch_size"]).skip(first_batch)
        return dataset.map(_parse, num_parallel_calls=2).prefetch(4)

    return input_fn


def _parse(serialized: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
    # Parses whole batches, which is several times faster than single records.
    features = parse_examples(serialized, embedding_columns(), {
        PRICE: record_spec()[PRICE], LABEL: tf.io.FixedLenFeature([1], tf.int64)})
    return features, tf.cast(features.pop(LABEL), tf.float32)
