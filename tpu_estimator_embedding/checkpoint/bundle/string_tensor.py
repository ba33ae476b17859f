# SPDX-License-Identifier: Apache-2.0
"""The format of strings in checkpoints: lengths, a checksum of the lengths, bytes.

>>> stored, crc = encode_string(b"words")
>>> decode_strings(stored, count=1) == ([b"words"], crc)
True
"""

import struct

from tpu_estimator_embedding.checkpoint.bundle.checksums import crc32c, masked
from tpu_estimator_embedding.checkpoint.bundle.wire_format import read_varint, varint


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
