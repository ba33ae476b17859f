# SPDX-License-Identifier: Apache-2.0
"""Files that appear under their name only when they are complete."""

import json
import os
import pathlib
from typing import Any


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Replaces a file, or keeps the old one if that fails."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a file of text in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as JSON, as `write_bytes` does."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: pathlib.Path) -> Any:
    """Returns the value in a file of JSON; None where there is no file, or not all of it."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
