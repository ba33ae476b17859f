# SPDX-License-Identifier: Apache-2.0
"""Serializes columns of values to `tf.train.Example` records.

Creating an Example message for every record would take most of the demo's writing time. The wire
format is simple: each feature is `prefix + values`, and the prefix depends only on the name and the
number of bytes that follow. Source: "Encoding", Protocol Buffers documentation; `example.proto` and
`feature.proto` of TensorFlow.
"""

import functools
from collections.abc import Iterator, Sequence

import numpy as np

# Tags, each a field number with a wire type.
_FLOAT_LIST, _INT64_LIST = b"\x12", b"\x1a"
_FIRST, _SECOND = b"\x0a", b"\x12"


def int64_feature(name: str, values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes one feature of every record.

    Args:
        name: key of the feature.
        values: `[n]` non-negative integers.
        lengths: `[records]`, number of values of each record; n in total.
    """
    encoded = [varint(value) for value in values.tolist()]
    ends = np.cumsum(lengths).tolist()
    payloads = [b"".join(encoded[end - length:end])
                for end, length in zip(ends, lengths.tolist(), strict=True)]
    return [_prefix(name, _INT64_LIST, len(payload)) + payload for payload in payloads]


def float_feature(name: str, values: np.ndarray, lengths: np.ndarray) -> list[bytes]:
    """Encodes one feature of every record from floats; see `int64_feature`."""
    data = values.astype("<f4").tobytes()
    ends = (4 * np.cumsum(lengths)).tolist()
    sizes = (4 * lengths).tolist()
    return [_prefix(name, _FLOAT_LIST, size) + data[end - size:end]
            for end, size in zip(ends, sizes, strict=True)]


def records(features: Sequence[list[bytes]]) -> Iterator[bytes]:
    """Joins the encoded features of each record into a serialized Example.

    >>> import tensorflow as tf
    >>> ids = int64_feature("id", np.array([7, 300]), np.array([2]))
    >>> tf.train.Example.FromString(next(records([ids]))).features.feature["id"].int64_list.value
    [7, 300]
    """
    for parts in zip(*features, strict=True):
        yield _delimited(_FIRST, b"".join(parts))


@functools.lru_cache(maxsize=1 << 16)
def varint(value: int) -> bytes:
    """Encodes a non-negative integer in groups of seven bits, the lowest first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low]) if not rest else bytes([low | 0x80]) + varint(rest)


@functools.cache
def _prefix(name: str, kind: bytes, size: int) -> bytes:
    """Returns the part of an entry of `Features.feature` before `size` bytes of values."""
    values = _delimited(_FIRST, bytes(size))
    entry = _delimited(_FIRST, name.encode()) + _delimited(_SECOND, _delimited(kind, values))
    return _delimited(_FIRST, entry)[:-size]


def _delimited(tag: bytes, payload: bytes) -> bytes:
    return tag + varint(len(payload)) + payload
