# SPDX-License-Identifier: Apache-2.0
"""CRC-32C in the masked form that TensorFlow stores, which is safe for data that contains CRCs.

>>> hex(crc32c(b"123456789")), hex(masked(crc32c(b"123456789")))
('0xe3069283', '0xc78ab0e5')
"""

import google_crc32c
import numpy as np

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
