# SPDX-License-Identifier: Apache-2.0
"""The entries of the index of a checkpoint.

A tensor that was saved as a whole has one entry. A tensor that was saved in parts has an entry
that lists its slices, and one more entry per slice under a longer key.

>>> entry = Entry(1, (13, 4), size=208, masked_crc=7)
>>> parse_entry(entry.encode()) == entry
True
"""

import dataclasses
import struct
from collections.abc import Iterator, Mapping

import google_crc32c
import numpy as np

Field = int | bytes
Fields = dict[int, list[Field]]  # by number

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def varint(value: int) -> bytes:
    """Encodes a non-negative int in groups of 7 bits, the lowest first."""
    encoded = bytearray()
    while value >= 128:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_varint(content: bytes, position: int) -> tuple[int, int]:
    """Returns a varint and the position after it.

    Raises:
        ValueError: if the varint is truncated, or has more than 64 bits.
    """
    value = shift = 0
    while position < len(content) and shift < 64:
        byte = content[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, position
        shift += 7
    raise ValueError("a varint has no end")


def varint_field(number: int, value: int) -> bytes:
    """Encodes a field with an int, a bool or an enum."""
    return varint(number << 3 | _VARINT) + varint(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encodes a field with a string or another message."""
    return varint(number << 3 | _BYTES) + varint(len(value)) + value


def fixed32_field(number: int, value: int) -> bytes:
    """Encodes a field with 32 bits."""
    return varint(number << 3 | _FIXED32) + struct.pack("<I", value)


def parse_fields(message: bytes) -> Fields:
    """Returns field number -> values, in order.

    Raises:
        ValueError: if this is not a message.
    """
    fields: dict[int, list[Field]] = {}
    position = 0
    while position < len(message):
        tag, position = read_varint(message, position)
        value, position = _read_value(tag & 7, message, position)
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _read_value(kind: int, message: bytes, position: int) -> tuple[Field, int]:
    if kind == _VARINT:
        return read_varint(message, position)
    if kind == _BYTES:
        size, position = read_varint(message, position)
    elif kind in (_FIXED32, _FIXED64):
        size = 4 if kind == _FIXED32 else 8
    else:
        raise ValueError(f"no field is of kind {kind}")
    end = position + size
    if end > len(message):
        raise ValueError("a field has no end")
    value = message[position:end]
    return (value if kind == _BYTES else int.from_bytes(value, "little")), end


def first_int(fields: dict[int, list[Field]], number: int, default: int = 0) -> int:
    """Returns the int of a field; `default` if the message does not have the field."""
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is no number")
    return value


def all_bytes(fields: dict[int, list[Field]], number: int) -> list[bytes]:
    """Returns all strings or messages of a field."""
    values = fields.get(number, [])
    if not all(isinstance(value, bytes) for value in values):
        raise ValueError(f"field {number} is no message")
    return [value for value in values if isinstance(value, bytes)]


_DELTA = 0xA282EAD8


def crc32c(content: bytes | memoryview, crc: int = 0) -> int:
    """Extends the checksum `crc` of preceding bytes by `content`."""
    # Of writable buffers, the library accepts only arrays.
    return int(google_crc32c.extend(crc, np.frombuffer(content, np.uint8)))


def masked(crc: int) -> int:
    """Returns a checksum in the masked form of files.

    Source: the table format of LevelDB, which TensorFlow's checkpoints share.
    """
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + _DELTA) & 0xFFFFFFFF


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


def encode_string(text: bytes) -> tuple[bytes, int]:
    """Returns the bytes of a scalar string for the data file, and their masked checksum."""
    lengths_crc = _crc_of_lengths([len(text)])
    stored_crc = struct.pack("<I", masked(lengths_crc))
    return (varint(len(text)) + stored_crc + text,
            masked(crc32c(text, crc32c(stored_crc, lengths_crc))))


def decode_strings(stored: bytes, count: int) -> tuple[list[bytes], int]:
    """Returns the strings of a tensor, and the masked checksum that the index must contain.

    Raises:
        ValueError: if the bytes are truncated.
    """
    lengths, position = [], 0
    for _ in range(count):
        length, position = read_varint(stored, position)
        lengths.append(length)
    crc = crc32c(stored[position:], _crc_of_lengths(lengths))
    position += 4  # skips the checksum of the lengths; the other checksum covers it
    strings = []
    for length in lengths:
        strings.append(stored[position:position + length])
        position += length
    return strings, masked(crc)


def _crc_of_lengths(lengths: list[int]) -> int:
    """Returns the checksum of lengths as 32-bit ints (64-bit from 4 GiB on), not as varints."""
    return crc32c(b"".join(struct.pack("<Q" if length >> 32 else "<I", length)
                           for length in lengths))


_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # compression and checksum after each block


def format_index(items: Mapping[bytes, bytes]) -> bytes:
    """Returns the bytes of an index file with `items`."""
    keys = sorted(items)
    data = _block([(key, items[key]) for key in keys])
    # The index of blocks maps a key at or after the last key of each block to the block.
    empty, blocks = _block([]), _block([(keys[-1] + b"\xff", _handle(0, data))])
    footer = _handle(len(data), empty) + _handle(len(data) + len(empty), blocks)
    return data + empty + blocks + footer.ljust(_FOOTER_SIZE - len(_MAGIC), b"\0") + _MAGIC


def parse_index(content: bytes) -> dict[bytes, bytes]:
    """Returns the items of an index file, sorted by key.

    Raises:
        ValueError: if this is not an index file, or it is damaged; the message says which.
    """
    if content[-len(_MAGIC):] != _MAGIC or len(content) < _FOOTER_SIZE:
        raise ValueError("it does not end as an index file ends: it is truncated or foreign")
    footer = content[-_FOOTER_SIZE:]
    _, position = _read_handle(footer, 0)
    blocks, _ = _read_handle(footer, position)
    return {key: value for _, handle in _block_items(content, *blocks)
            for key, value in _block_items(content, *_read_handle(handle, 0)[0])}


def _block(items: list[tuple[bytes, bytes]]) -> bytes:
    content, restarts = b"", []
    parts = []
    size = 0
    for key, value in items:  # without key compression: an index is small compared with its tables
        restarts.append(size)
        parts.append(b"\0" + varint(len(key)) + varint(len(value)) + key + value)
        size += len(parts[-1])
    restarts = restarts or [0]
    content = b"".join(parts) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    uncompressed = content + b"\0"
    return uncompressed + struct.pack("<I", masked(crc32c(uncompressed)))


def _handle(offset: int, block: bytes) -> bytes:
    return varint(offset) + varint(len(block) - _TRAILER_SIZE)


def _read_handle(content: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(content, position)
    size, position = read_varint(content, position)
    return (offset, size), position


def _block_items(content: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    end = offset + size
    stored = content[end + 1:end + _TRAILER_SIZE]
    if len(stored) < 4 or masked(crc32c(content[offset:end + 1])) != struct.unpack(
            "<I", stored)[0]:
        raise ValueError("the checksum of a block does not match")
    if content[end] != 0:
        raise ValueError(f"a block is compressed (kind {content[end]}), which checkpoints are not")
    block = content[offset:end]
    [restarts] = struct.unpack("<I", block[-4:])
    position, limit, key = 0, size - 4 * (restarts + 1), b""
    while position < limit:
        shared, position = read_varint(block, position)
        rest, position = read_varint(block, position)
        length, position = read_varint(block, position)
        key = key[:shared] + block[position:position + rest]
        position += rest
        yield key, block[position:position + length]
        position += length
