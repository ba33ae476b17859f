# SPDX-License-Identifier: Apache-2.0
"""The entries of the index of a checkpoint.

A tensor that was saved as a whole has one entry. A tensor that was saved in parts has an entry
that lists its slices, and one more entry per slice under a longer key.

>>> entry = Entry(1, (13, 4), size=208, masked_crc=7)
>>> parse_entry(entry.encode()) == entry
True
"""

import dataclasses

from tpu_estimator_embedding.checkpoint.bundle.wire_format import (
    Fields,
    all_bytes,
    bytes_field,
    first_int,
    fixed32_field,
    parse_fields,
    varint_field,
)

HEADER_KEY = b""

Slice = tuple[tuple[int, int | None], ...]  # (start, length) of each axis; None is the whole axis


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of the index.

    Attributes:
        dtype: number of TensorFlow's DataType.
        shape: shape of the tensor, or of this slice.
        shard: index of the data file.
        offset: first byte in the data file.
        size: number of bytes.
        masked_crc: checksum of the bytes.
        slices: the slices of a tensor that was saved in parts; such an entry has no bytes.
    """

    dtype: int
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    masked_crc: int = 0
    slices: tuple[Slice, ...] = ()

    def encode(self) -> bytes:
        """Returns the entry serialized for the index."""
        shape = b"".join(bytes_field(2, varint_field(1, size) if size else b"")
                         for size in self.shape)
        start = varint_field(1, self.dtype) + bytes_field(2, shape)
        if self.slices:
            return start + b"".join(bytes_field(7, _encode_slice(one)) for one in self.slices)
        return (start + (varint_field(3, self.shard) if self.shard else b"")
                + (varint_field(4, self.offset) if self.offset else b"")
                + (varint_field(5, self.size) if self.size else b"")
                + fixed32_field(6, self.masked_crc))


def parse_entry(content: bytes) -> Entry:
    """Parses an entry of the index.

    Raises:
        ValueError: if the content is not an entry.
    """
    fields = parse_fields(content)
    return Entry(
        dtype=first_int(fields, 1), shape=_parse_shape(fields), shard=first_int(fields, 3),
        offset=first_int(fields, 4), size=first_int(fields, 5), masked_crc=first_int(fields, 6),
        slices=tuple(_parse_slice(one) for one in all_bytes(fields, 7)))


def encode_header(num_shards: int) -> bytes:
    """Returns the value of HEADER_KEY: the number of data files, little-endian, version 1."""
    return varint_field(1, num_shards) + bytes_field(3, varint_field(1, 1))


def parse_header(content: bytes) -> int:
    """Returns the number of data files.

    Raises:
        ValueError: if the checkpoint was written in big-endian byte order.
    """
    fields = parse_fields(content)
    if first_int(fields, 2):
        raise ValueError("it was written on a big-endian machine")
    return first_int(fields, 1)


def slice_key(name: str, piece: Slice) -> bytes:
    """Returns the key of one slice of a tensor."""
    escaped = name.encode().replace(b"\0", b"\0\xff")  # UTF-8 has no byte 255
    extents = b"".join(_ordered_signed(start) + _ordered_signed(-1 if length is None else length)
                       for start, length in piece)
    return b"\0" + escaped + b"\0\1" + _ordered(len(piece)) + extents


def _parse_shape(fields: Fields) -> tuple[int, ...]:
    return tuple(first_int(parse_fields(size), 1) for shape in all_bytes(fields, 2)
                 for size in all_bytes(parse_fields(shape), 2))


def _encode_slice(piece: Slice) -> bytes:
    return b"".join(bytes_field(1, (varint_field(1, start) if start else b"")
                                + (b"" if length is None else varint_field(2, length)))
                    for start, length in piece)


def _parse_slice(content: bytes) -> Slice:
    extents = [parse_fields(extent) for extent in all_bytes(parse_fields(content), 1)]
    return tuple((first_int(extent, 1), first_int(extent, 2) if 2 in extent else None)
                 for extent in extents)


def _ordered(value: int) -> bytes:
    """Encodes a non-negative number so that codes sort like the numbers."""
    content = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(content)]) + content


def _ordered_signed(value: int) -> bytes:
    """Encodes a signed number in the order-preserving code of TensorFlow's keys.

    The leading bits encode the number of bytes, as in UTF-8; negative numbers are inverted.
    """
    magnitude = ~value if value < 0 else value
    length = next(n for n in range(1, 10) if magnitude < 1 << (7 * n - 1))
    prefix = ((1 << length) - 1) << (8 * length - length)
    content = (magnitude | prefix).to_bytes(length, "big")
    return bytes(byte ^ 0xFF for byte in content) if value < 0 else content
