# SPDX-License-Identifier: Apache-2.0
"""The format of TensorFlow's checkpoint files: the index, its entries, strings, checksums.

The index file is a table of sorted keys, in the format of LevelDB. A tensor that was saved as a
whole has one entry. A tensor that was saved in parts has an entry that lists its slices, and one
more entry per slice under a longer key.

>>> entry = Entry(1, (13, 4), size=208, masked_crc=7)
>>> parse_entry(parse_index(format_index({b"words": entry.encode()}))[b"words"]) == entry
True

Sources: "leveldb File format", https://github.com/google/leveldb/blob/main/doc/table_format.md;
tensorflow/core/protobuf/tensor_bundle.proto.
"""

import dataclasses
import itertools
import os
import pathlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

HEADER_KEY = b""

Handle = tuple[int, int]  # offset of a block of the index, and its size without the trailer
Slice = tuple[tuple[int, int | None], ...]  # (start, length) of each axis; None is the whole axis

# The messages of tensorflow/core/protobuf/tensor_bundle.proto, as far as checkpoints use them:
# field -> (number, type). TensorBoard has no copy of them, and importing TensorFlow's takes seconds
# and half a gigabyte of memory.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "Header": {"num_shards": (1, "int32"), "endianness": (2, "int32"), "version": (3, "Version")},
    "Version": {"producer": (1, "int32")},
    "Entry": {"dtype": (1, "int32"), "shape": (2, "Shape"), "shard_id": (3, "int32"),
              "offset": (4, "int64"), "size": (5, "int64"), "crc32c": (6, "fixed32"),
              "slices": (7, "repeated Slice")},
    "Shape": {"dim": (2, "repeated Dimension")},
    "Dimension": {"size": (1, "int64")},
    "Slice": {"extent": (1, "repeated Extent")},
    "Extent": {"start": (1, "int64"), "length": (2, "int64")},
}
_MAGIC = struct.pack("<Q", 0xDB4775248B80FB57)
_FOOTER_SIZE = 48
_TRAILER_SIZE = 5  # compression and checksum after each block
_DELTA = 0xA282EAD8  # of masked checksums


def _message_classes() -> dict[str, type]:
    file = descriptor_pb2.FileDescriptorProto(name="bundle.proto", package="bundle")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            kind = kind.removeprefix("repeated ")
            label = "LABEL_OPTIONAL" if fields[field][1] == kind else "LABEL_REPEATED"
            described.field.add(name=field, number=number, label=label, **(
                {"type": "TYPE_MESSAGE", "type_name": f".bundle.{kind}"} if kind in _MESSAGES
                else {"type": f"TYPE_{kind.upper()}"}))
    pool = descriptor_pool.DescriptorPool()  # not the default one, which is TensorFlow's
    pool.AddSerializedFile(file.SerializeToString())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"bundle.{name}"))
            for name in _MESSAGES}


_CLASSES = _message_classes()
_HEADER, _ENTRY = _CLASSES["Header"], _CLASSES["Entry"]


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
        content = _ENTRY(dtype=self.dtype, shape={"dim": [{"size": size or None}
                                                          for size in self.shape]})
        for piece in self.slices:
            content.slices.add(extent=[{"start": start or None, "length": length}
                                       for start, length in piece])
        if not self.slices:
            content.MergeFrom(_ENTRY(shard_id=self.shard or None, offset=self.offset or None,
                                     size=self.size or None, crc32c=self.masked_crc))
        return bytes(content.SerializeToString())


def parse_entry(content: bytes) -> Entry:
    """Parses an entry of the index.

    Raises:
        ValueError: if the content is not an entry.
    """
    entry = _parse(_ENTRY, content)
    return Entry(
        entry.dtype, tuple(dim.size for dim in entry.shape.dim), entry.shard_id, entry.offset,
        entry.size, entry.crc32c, tuple(
            tuple((extent.start, extent.length if extent.HasField("length") else None)
                  for extent in piece.extent) for piece in entry.slices))


def encode_header(num_shards: int) -> bytes:
    """Returns the value of HEADER_KEY: the number of data files, little-endian, version 1."""
    return bytes(_HEADER(num_shards=num_shards, version={"producer": 1}).SerializeToString())


def parse_header(content: bytes) -> int:
    """Returns the number of data files.

    Raises:
        ValueError: if the header is missing or names no data file, or the checkpoint was written
            in big-endian byte order.
    """
    header = _parse(_HEADER, content)
    if header.num_shards < 1:
        raise ValueError("it has no header with a number of data files")
    if header.endianness:
        raise ValueError("it was written on a big-endian machine")
    return int(header.num_shards)


def _parse(message_class: Any, content: bytes) -> Any:
    try:
        return message_class.FromString(content)
    except message.DecodeError as error:
        raise ValueError(f"a message is damaged: {error}") from error


def slice_key(name: str, piece: Slice) -> bytes:
    """Returns the key of one slice of a tensor."""
    escaped = name.encode().replace(b"\0", b"\0\xff")  # UTF-8 has no byte 255
    extents = b"".join(_ordered_signed(start) + _ordered_signed(-1 if length is None else length)
                       for start, length in piece)
    return b"\0" + escaped + b"\0\1" + _ordered(len(piece)) + extents


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


def format_index(items: Mapping[bytes, bytes]) -> bytes:
    """Returns the bytes of an index file with `items`."""
    keys = sorted(items)
    data = _block([(key, items[key]) for key in keys])
    whole = 0, len(data) - _TRAILER_SIZE
    # The index of blocks maps a key at or after the last key of each block to the block.
    empty, blocks = _block([]), _block([(keys[-1] + b"\xff", _encode_handle(whole))])
    footer = _footer((len(data), len(empty) - _TRAILER_SIZE),
                     (len(data) + len(empty), len(blocks) - _TRAILER_SIZE))
    return data + empty + blocks + footer


def is_sorted_table(path: pathlib.Path) -> bool:
    """Whether a file has the format of an index, which is also that of checkpoints V1."""
    with path.open("rb") as file:
        file.seek(-min(len(_MAGIC), path.stat().st_size), os.SEEK_END)
        return file.read() == _MAGIC


def parse_index(content: bytes) -> dict[bytes, bytes]:
    """Returns the items of an index file, sorted by key.

    The footer has no checksum, so it is compared with what a writer puts there. The blocks must
    fill the rest: then a checksum covers every other byte, and no block is left out.

    Raises:
        ValueError: if this is not an index file, or it is damaged; the message says which.
    """
    start = len(content) - _FOOTER_SIZE
    if start < 0 or content[-len(_MAGIC):] != _MAGIC:
        raise ValueError("it is truncated, or not an index file")
    meta, position = _read_handle(content, start)
    index, position = _read_handle(content, position)
    if content[start:] != _footer(meta, index):
        raise ValueError("its footer is damaged")
    blocks = [_read_handle(handle, 0)[0] for _, handle in _block_items(content, index)]
    _check_adjacent([*blocks, meta, index], start)
    list(_block_items(content, meta))  # for its checksum: of checkpoints, it is empty
    items = [item for block in blocks for item in _block_items(content, block)]
    if any(key >= following for (key, _), (following, _) in itertools.pairwise(items)):
        raise ValueError("its keys are not in order")
    return dict(items)


def _check_adjacent(blocks: Sequence[Handle], end: int) -> None:
    """Raises ValueError unless blocks, in this order, are all bytes up to `end`."""
    position = 0
    for offset, size in blocks:
        if offset != position:
            raise ValueError(f"a block must begin at byte {position}, got {offset}")
        position += size + _TRAILER_SIZE
    if position != end:
        raise ValueError(f"its blocks must end at byte {end}, got {position}")


def _block(items: list[tuple[bytes, bytes]]) -> bytes:
    restarts: list[int] = []
    parts: list[bytes] = []
    size = 0
    for key, value in items:  # without key compression: an index is small compared with its tables
        restarts.append(size)
        parts.append(b"\0" + varint(len(key)) + varint(len(value)) + key + value)
        size += len(parts[-1])
    restarts = restarts or [0]
    content = b"".join(parts) + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
    uncompressed = content + b"\0"
    return uncompressed + struct.pack("<I", masked(crc32c(uncompressed)))


def _footer(meta: Handle, index: Handle) -> bytes:
    handles = _encode_handle(meta) + _encode_handle(index)
    return handles.ljust(_FOOTER_SIZE - len(_MAGIC), b"\0") + _MAGIC


def _encode_handle(handle: Handle) -> bytes:
    offset, size = handle
    return varint(offset) + varint(size)


def _read_handle(content: bytes, position: int) -> tuple[Handle, int]:
    offset, position = read_varint(content, position)
    size, position = read_varint(content, position)
    return (offset, size), position


def _block_items(content: bytes, handle: Handle) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size
    stored = content[end + 1:end + _TRAILER_SIZE]
    if len(stored) < 4 or masked(crc32c(content[offset:end + 1])) != struct.unpack(
            "<I", stored)[0]:
        raise ValueError("the checksum of a block does not match")
    if content[end] != 0:
        raise ValueError(f"a block is compressed (kind {content[end]}), but blocks of checkpoints "
                         "never are")
    block = content[offset:end]
    restarts = int.from_bytes(block[-4:], "little")
    position, limit, key = 0, size - 4 * (restarts + 1), b""
    while position < limit:
        shared, position = read_varint(block, position)
        rest, position = read_varint(block, position)
        length, position = read_varint(block, position)
        key = key[:shared] + block[position:position + rest]
        position += rest
        yield key, block[position:position + length]
        position += length
    if position != limit:
        raise ValueError("the entries of a block do not span it exactly")


def encode_strings(texts: Sequence[bytes]) -> tuple[bytes, int]:
    """Returns the bytes of a string tensor for the data file, and their masked checksum.

    The bytes are the lengths, a checksum of the lengths, and the texts.

    >>> stored, crc = encode_strings([b"words", b""])
    >>> decode_strings(stored, count=2) == ([b"words", b""], crc)
    True
    """
    lengths = [len(text) for text in texts]
    lengths_crc = _crc_of_lengths(lengths)
    stored_crc, content = struct.pack("<I", masked(lengths_crc)), b"".join(texts)
    return (b"".join(map(varint, lengths)) + stored_crc + content,
            masked(crc32c(content, crc32c(stored_crc, lengths_crc))))


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


def crc32c(content: bytes | memoryview, crc: int = 0) -> int:
    """Extends the checksum `crc` of preceding bytes by `content`."""
    # Of writable buffers, the library accepts only arrays.
    return int(google_crc32c.extend(crc, np.frombuffer(content, np.uint8)))


def masked(crc: int) -> int:
    """Returns a checksum in the masked form of files, which is safe for data that contains CRCs.

    >>> hex(crc32c(b"123456789")), hex(masked(crc32c(b"123456789")))
    ('0xe3069283', '0xc78ab0e5')

    Source: the table format of LevelDB, which TensorFlow's checkpoints share.
    """
    return ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + _DELTA) & 0xFFFFFFFF


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
    raise ValueError("a varint is unterminated")
