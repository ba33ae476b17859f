# SPDX-License-Identifier: Apache-2.0
"""The documentation pages, as text."""

import pathlib
import re
import textwrap

ROOT = pathlib.Path(__file__).parent.parent
DOCS = ROOT / "docs"


def page(name: str) -> str:
    """Returns a page of docs/, or one beside it, without its ending."""
    path = next(path for path in (DOCS / f"{name}.rst", ROOT / f"{name}.rst") if path.exists())
    return path.read_text(encoding="utf-8")


def pages() -> list[pathlib.Path]:
    """Returns every page."""
    return sorted([*DOCS.glob("*.rst"), *ROOT.glob("*.rst"), *ROOT.glob("examples/*.rst")])


def code_blocks(text: str) -> list[str]:
    """Returns the Python programs of a page."""
    blocks = re.findall(r"^\.\. code-block:: python\n\n((?:    .*\n|\n)+)", text, re.MULTILINE)
    return [textwrap.dedent(block) for block in blocks]


def literal_blocks(text: str) -> list[str]:
    """Returns the indented blocks after a `::`: commands and layouts."""
    blocks = re.findall(r"::\n\n((?:    .*\n|\n)+)", text)
    return [textwrap.dedent(block).strip("\n") for block in blocks]
