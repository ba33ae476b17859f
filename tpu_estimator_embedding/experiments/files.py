# SPDX-License-Identifier: Apache-2.0
"""Writes files atomically: they get their name when they are complete."""

import json
import os
import pathlib
from typing import Any


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Replaces a file, or keeps the old one if that fails.

    Raises:
        OSError: with the path, if it cannot be written.
    """
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a UTF-8 text file atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: pathlib.Path, value: object) -> None:
    """Writes a value as JSON atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: pathlib.Path) -> Any:
    """Returns the value in a JSON file; None if the file is missing or incomplete."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
