# SPDX-License-Identifier: Apache-2.0
"""The index file of a checkpoint: a table of sorted keys, in the format of LevelDB.

>>> parse_index(format_index({b"": b"header", b"words": b"entry"}))
{b'': b'header', b'words': b'entry'}

Source: "leveldb File format", https://github.com/google/leveldb/blob/main/doc/table_format.md.
"""

import struct
from collections.abc import Iterator, Mapping

from tpu_estimator_embedding.checkpoint.bundle.checksums import crc32c, masked
from tpu_estimator_embedding.checkpoint.bundle.wire_format import read_varint, varint

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
