# SPDX-License-Identifier: Apache-2.0
"""Reads the cases from the pairs of files."""

import pathlib
import re
from collections.abc import Iterator
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent


class Case(NamedTuple):
    """A module before and after a stage, and what the report says of it."""

    name: str
    stage: str
    before: str
    after: str
    report: list[str]


def read_cases(folder: pathlib.Path = FOLDER) -> list[Case]:
    """Returns the cases of all pairs."""
    cases = []
    for path in sorted(folder.glob("*/*.before.py")):
        after = dict(_sections(path.with_name(path.name.replace(".before.", ".after."))))
        reports = {name.partition(": ")[0]: name.partition(": ")[2].split() for name in after}
        texts = {name.partition(": ")[0]: text for name, text in after.items()}
        before = dict(_sections(path))
        if list(before) != list(texts):
            raise ValueError(f"{path.name} and its counterpart must have the same cases, got "
                             f"{sorted(before.keys() ^ texts.keys())} in one of them only.")
        cases += [Case(name, path.parent.name, text, texts[name], reports[name])
                  for name, text in before.items()]
    return cases


def _sections(path: pathlib.Path) -> Iterator[tuple[str, str]]:
    _, *sections = re.split(r"^# === ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for section in sections:
        name, _, text = section.partition("\n")
        yield name, text
