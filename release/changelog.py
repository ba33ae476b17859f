# SPDX-License-Identifier: Apache-2.0
"""The sections of CHANGELOG.rst: one for each release, and what changed since the newest."""

import pathlib
import re
from typing import NamedTuple

PATH = pathlib.Path(__file__).parent.parent / "CHANGELOG.rst"
UNRELEASED = "Unreleased"


class Section(NamedTuple):
    """What changed with a release.

    Attributes:
        version: the release, or "Unreleased".
        date: its date as it is written, or nothing.
        text: the changes.
    """

    version: str
    date: str
    text: str


def sections(text: str | None = None) -> list[Section]:
    """Returns the sections, newest first.

    Args:
        text: a changelog; that of the checkout by default.

    >>> sections("Changelog\\n=========\\n\\n1.0 (2026-01-02)\\n----------------\\n\\n* First.\\n")
    [Section(version='1.0', date='2026-01-02', text='* First.')]
    """
    if text is None:
        text = PATH.read_text(encoding="utf-8")
    _, *parts = re.split(r"^(\S+)(?: \((.*)\))?\n-{3,}\n", text, flags=re.MULTILINE)
    return [Section(version, date or "", body.strip()) for version, date, body
            in zip(parts[::3], parts[1::3], parts[2::3], strict=True)]


def newest(text: str | None = None) -> Section:
    """Returns the section of the newest release.

    >>> newest("Unreleased\\n----------\\n\\n1.0 (2026-01-02)\\n----------------\\n").version
    '1.0'
    """
    return next(section for section in sections(text) if section.version != UNRELEASED)


def unreleased(text: str | None = None) -> str:
    """Returns what changed since the newest release.

    >>> unreleased("1.0 (2026-01-02)\\n----------------\\n")
    ''
    """
    return "".join(section.text for section in sections(text)
                   if section.version == UNRELEASED)
