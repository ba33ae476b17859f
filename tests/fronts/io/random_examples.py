# SPDX-License-Identifier: Apache-2.0
"""Random serialized Examples, as libraries write them and as the wire format allows them."""

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

KEYS = ("a", "b", "c", "label", "other")

int64s = st.lists(st.integers(-2 ** 63, 2 ** 63 - 1) | st.integers(0, 3_000_000), max_size=12)
floats = st.lists(st.floats(width=32, allow_nan=False), max_size=5)
strings = st.lists(st.binary(max_size=30), max_size=4)


def varint(value: int) -> bytes:
    """Encodes an integer, negative ones in ten bytes."""
    value &= 2 ** 64 - 1
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number: int, payload: bytes) -> bytes:
    """Encodes a field that has a length."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def int64_list(values: list[int], is_packed: bool = True) -> bytes:
    """Encodes a Feature of integers."""
    if is_packed:
        return field(3, field(1, b"".join(map(varint, values))))
    return field(3, b"".join(b"\x08" + varint(value) for value in values))


def float_list(values: list[float], is_packed: bool = True) -> bytes:
    """Encodes a Feature of floats."""
    data = [np.float32(value).tobytes() for value in values]
    return field(2, field(1, b"".join(data)) if is_packed else
                 b"".join(b"\x0d" + value for value in data))


def bytes_list(values: list[bytes]) -> bytes:
    """Encodes a Feature of strings."""
    return field(1, b"".join(field(1, value) for value in values))


def entry(key: str, feature: bytes, key_first: bool = True) -> bytes:
    """Encodes an entry of the map of features."""
    parts = [field(1, key.encode()), field(2, feature)]
    return field(1, b"".join(parts if key_first else parts[::-1]))


def example(entries: list[bytes]) -> bytes:
    """Encodes an Example."""
    return field(1, b"".join(entries))


features = st.one_of(
    st.builds(int64_list, int64s, st.booleans()), st.builds(float_list, floats, st.booleans()),
    st.builds(bytes_list, strings), st.just(b""))
entries = st.builds(entry, st.sampled_from(KEYS), features, st.booleans())
unknown_fields = st.sampled_from([b"", b"\x10\x05", b"\x1a\x02hi", b"\x21" + bytes(8),
                                  b"\x25" + bytes(4)])


def joined(*parts: bytes) -> bytes:
    """Joins messages, which merges them."""
    return b"".join(parts)


# With duplicate keys, unknown fields, and in parts that are merged.
records = st.builds(
    joined, unknown_fields, st.builds(example, st.lists(entries, max_size=8)), unknown_fields,
    st.builds(example, st.lists(entries, max_size=2)))


@st.composite
def typed_records(draw) -> bytes:
    """An Example whose keys have the types that `SPECIFICATION` states, in any order."""
    values = {"a": int64_list(draw(int64s), draw(st.booleans())),
              "b": float_list(draw(floats), draw(st.booleans())),
              "c": bytes_list(draw(strings)),
              "label": float_list([draw(st.floats(width=32, allow_nan=False))]),
              "other": int64_list(draw(int64s))}
    keys = draw(st.permutations(KEYS))
    absent = draw(st.sets(st.sampled_from(KEYS)))
    return example([entry(key, values[key], draw(st.booleans()))
                    for key in keys if key not in absent])


@st.composite
def damaged_records(draw) -> bytes:
    """An Example of which bytes are changed, removed or added."""
    record = bytearray(draw(records))
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, max(0, len(record) - 1)))
        change = draw(st.sampled_from(["set", "insert", "delete", "truncate"]))
        byte = draw(st.sampled_from([0, 1, 5, 8, 10, 13, 18, 26, 127, 128, 255])
                    | st.integers(0, 255))
        if change == "insert" or not record:
            record.insert(place, byte)
        elif change == "set":
            record[place] = byte
        elif change == "delete":
            del record[place]
        else:
            del record[place:]
    return bytes(record)


# TensorFlow's parser writes beyond its buffer where a record has more floats than a dense feature
# has room for. So these have room for all floats that a record can have.
_ROOM = 400

# For examples of the right types.
SPECIFICATION = {
    "a": tf.io.RaggedFeature(tf.int64),
    "b": tf.io.VarLenFeature(tf.float32),
    "c": tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int64),
    "label": tf.io.FixedLenFeature([1], tf.float32, default_value=0.5),
}
OTHER_SPECIFICATION = {
    "a": tf.io.VarLenFeature(tf.int64),
    "b": tf.io.FixedLenFeature([5], tf.float32, default_value=[1.0, 2.0, 3.0, 4.0, 5.0]),
    "c": tf.io.VarLenFeature(tf.string),
    "label": tf.io.RaggedFeature(tf.float32),
    "other": tf.io.FixedLenFeature([], tf.int64, default_value=-3),
}

# For any examples.
MIXED = {
    "a": tf.io.RaggedFeature(tf.int64),
    "b": tf.io.VarLenFeature(tf.float32),
    "c": tf.io.FixedLenFeature([2], tf.string, default_value=["x", "y"]),
    "label": tf.io.FixedLenFeature([_ROOM], tf.float32, default_value=[0.5] * _ROOM),
}
SPARSE = {key: tf.io.VarLenFeature(dtype) for key, dtype in
          (("a", tf.int64), ("b", tf.float32), ("c", tf.string), ("other", tf.int64))}
REQUIRED = {
    "a": tf.io.FixedLenFeature([2, 1], tf.int64),
    "b": tf.io.FixedLenFeature([_ROOM], tf.float32),
    "c": tf.io.FixedLenFeature([1], tf.string),
    "other": tf.io.FixedLenFeature([0], tf.int64),
}
