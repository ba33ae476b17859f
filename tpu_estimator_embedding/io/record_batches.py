# SPDX-License-Identifier: Apache-2.0
"""Datasets of batches of serialized records."""

import os
from typing import Any

import tensorflow as tf

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.kernels import load
from tpu_estimator_embedding.types import Tensor

_COMPRESSION_TYPES = (None, "", "GZIP", "ZLIB")
_BUFFER_SIZE = 1 << 20


def record_batches(filenames: Any, batch_size: int | Tensor, drop_remainder: bool | Tensor = False,
                   compression_type: str | None = None,
                   buffer_size: int | Tensor | None = None) -> tf.data.Dataset:
    """Reads batches of records from TFRecord files.

    The elements are those of ::

        tf.data.TFRecordDataset(filenames, compression_type, buffer_size).batch(
            batch_size, drop_remainder)

    TensorFlow passes every record through the two datasets as a tensor. This dataset reads all
    records of a batch into one tensor, in a fraction of the time. Without the native kernels,
    TensorFlow's datasets read the files. Iterators can be checkpointed, as TensorFlow's can.

    To shuffle, read small batches, of several files at once, and make batches of the wanted size
    after that; for example, to mix 256 pieces of 64 records from 16 files::

        files = tf.data.Dataset.list_files(pattern).interleave(
            lambda file: record_batches(file, 64), cycle_length=16)
        batches = files.shuffle(256).rebatch(4096)

    Args:
        filenames: paths of the files: a string, a list or tensor of them, or a dataset of such.
        batch_size: records in a batch. A batch continues in the next file.
        drop_remainder: whether to drop a last batch of fewer records.
        compression_type: "GZIP", "ZLIB", or None or "" for files that are not compressed.
        buffer_size: bytes to read from a file at a time; 0 means no buffer, None 1 MiB.

    Returns:
        A dataset of `[batch_size]` string, for `parse_examples`.

    Raises:
        ValueError: `compression_type` is none of those, or `buffer_size` is negative.
        TypeError: `batch_size` is no integer.
        tf.errors.InvalidArgumentError: `batch_size` is not positive.
        tf.errors.NotFoundError: while reading: there is no such file.
        tf.errors.DataLossError: while reading: a file is truncated, or not of TFRecords; the next
            batch starts with the next file. Or a restored iterator should continue beyond the end
            of a file that is not compressed.

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "numbers.tfrecord")
    >>> with tf.io.TFRecordWriter(path) as writer:
    ...     for number in range(5):
    ...         writer.write(f"record {number}")
    >>> for batch in record_batches(path, 3):
    ...     print(batch.numpy())
    [b'record 0' b'record 1' b'record 2']
    [b'record 3' b'record 4']
    """
    checks.check_one_of("compression_type", _COMPRESSION_TYPES, compression_type)
    compression_type = compression_type or ""
    if batch_size is None or not tf.convert_to_tensor(batch_size).dtype.is_integer:
        raise TypeError(checks.complaint("batch_size", "an integer", batch_size))
    if isinstance(filenames, tf.data.Dataset):
        return filenames.flat_map(lambda some: record_batches(
            some, batch_size, False, compression_type, buffer_size)).rebatch(
                batch_size, drop_remainder)
    batch_size = tf.cast(batch_size, tf.int64)
    buffer_size = tf.cast(_BUFFER_SIZE if buffer_size is None else buffer_size, tf.int64)
    static_buffer_size = int(tf.get_static_value(buffer_size) or 0)
    checks.check(static_buffer_size >= 0, "buffer_size", "at least 0, where 0 means no buffer",
                 static_buffer_size)
    ops = load.native_ops()
    if ops is None:
        return tf.data.TFRecordDataset(filenames, compression_type, buffer_size).batch(
            batch_size, drop_remainder)
    handle = ops.tpu_embedding_record_batches_dataset(
        filenames=_paths(filenames), compression_type=compression_type, buffer_size=buffer_size,
        batch_size=batch_size, drop_remainder=drop_remainder)
    is_static = tf.get_static_value(tf.convert_to_tensor(drop_remainder))
    static_size = tf.get_static_value(batch_size) if is_static else None
    return tf.data.experimental.from_variant(handle, tf.TensorSpec([static_size], tf.string))


def _paths(filenames: Any) -> Tensor:
    if isinstance(filenames, list | tuple):
        filenames = [os.fspath(name) if isinstance(name, os.PathLike) else name
                     for name in filenames]
    elif isinstance(filenames, os.PathLike):
        filenames = os.fspath(filenames)
    return tf.reshape(tf.convert_to_tensor(filenames, tf.string), [-1])
