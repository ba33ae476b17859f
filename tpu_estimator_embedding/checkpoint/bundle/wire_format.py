# SPDX-License-Identifier: Apache-2.0
"""The part of the wire format of protocol buffers that checkpoints need.

Checkpoints contain small messages (an entry per tensor, the object graph). Parsing them here avoids
importing TensorFlow, which takes seconds and half a gigabyte of memory.

>>> message = varint_field(1, 300) + bytes_field(2, b"words") + fixed32_field(6, 7)
>>> parse_fields(message)
{1: [300], 2: [b'words'], 6: [7]}

Source: "Encoding", Protocol Buffers, https://protobuf.dev/programming-guides/encoding.
"""

import struct

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
