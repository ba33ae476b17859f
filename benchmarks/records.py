# SPDX-License-Identifier: Apache-2.0
"""Writes a workload to TFRecord files, and creates the `input_fn` that reads them."""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.baselines import click_model
from benchmarks.baselines.graph_inputs import feature
from benchmarks.batches import Batch, make_labels
from benchmarks.workloads import Workload

LABEL = "label"
_BUFFER_SIZE = 1 << 20  # bytes


def write_once(workload: Workload, batches: Sequence[Batch], directory: str) -> list[str]:
    """Writes missing files, one for each batch; returns all files."""
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    labels = make_labels(workload)
    return [_write(workload, batch, labels, pathlib.Path(
        directory, f"{workload.name}-{workload.batch_size}-{number}.tfrecord"))
        for number, batch in enumerate(batches)]


def make_input_fn(workload: Workload, files: Sequence[str], cached: bool, is_stock: bool
                  ) -> Callable[[dict[str, Any]], tf.data.Dataset]:
    """Returns an `input_fn` that repeats the files forever.

    Args:
        workload: the workload of the files.
        files: paths of the files.
        cached: whether to keep parsed batches in memory, so that files are read and parsed only
            in the first round.
        is_stock: whether TensorFlow reads and parses them, or this package.
    """
    label = {LABEL: tf.io.FixedLenFeature([1], tf.float32)}
    columns = click_model.columns(workload)

    def read(batch_size: int) -> tf.data.Dataset:
        if is_stock:
            dataset = tf.data.TFRecordDataset(files, buffer_size=_BUFFER_SIZE)
            dataset = dataset.repeat() if not cached else dataset
            return dataset.batch(batch_size, drop_remainder=True)
        from tpu_estimator_embedding.io import record_batches
        dataset = record_batches(files, batch_size, drop_remainder=True, buffer_size=_BUFFER_SIZE)
        return dataset if cached else dataset.repeat()

    def parse(serialized: tf.Tensor) -> tuple[dict[str, Any], tf.Tensor]:
        if is_stock:
            features = tf.io.parse_example(
                serialized, tf.feature_column.make_parse_example_spec(columns) | label)
        else:
            from tpu_estimator_embedding.io import parse_examples
            features = parse_examples(serialized, columns, label)
        return features, features.pop(LABEL)

    def input_fn(params: dict[str, Any]) -> tf.data.Dataset:
        dataset = read(params["batch_size"]).map(parse, num_parallel_calls=2)
        return dataset.cache().repeat() if cached else dataset.prefetch(2)

    return input_fn


def _write(workload: Workload, batch: Batch, labels: np.ndarray, path: pathlib.Path) -> str:
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        with tf.io.TFRecordWriter(str(unfinished)) as writer:
            for sample in range(workload.batch_size):
                writer.write(_example(batch, labels, sample).SerializeToString())
        unfinished.replace(path)
    return str(path)


def _example(batch: Batch, labels: np.ndarray, sample: int) -> tf.train.Example:
    example = tf.train.Example()
    values = example.features.feature
    for table, (ids, splits) in enumerate(zip(batch.ids, batch.splits, strict=True)):
        values[feature(table)].int64_list.value.extend(ids[splits[sample]:splits[sample + 1]])
    values[LABEL].float_list.value.extend(labels[sample])
    return example
