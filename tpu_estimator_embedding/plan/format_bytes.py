# SPDX-License-Identifier: Apache-2.0
"""Human-readable byte counts."""


def format_bytes(count: float) -> str:
    """Returns a byte count with the largest binary unit that keeps it above one.

    >>> format_bytes(512), format_bytes(3 * 1024 * 1024)
    ('512 B', '3.0 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
