# SPDX-License-Identifier: Apache-2.0
"""Reads the tables of names and texts that modules have beside them, as TOML."""

import importlib.resources
import tomllib
from typing import Any


def read_table(package: str, name: str) -> dict[str, Any]:
    """Returns the table in a file of a package, such as `read_table(__package__, "codes.toml")`."""
    text = importlib.resources.files(package).joinpath(name).read_text(encoding="utf-8")
    return tomllib.loads(text)
