# SPDX-License-Identifier: Apache-2.0
"""The report of a migration, as text, as JSON and as an exit status."""

import collections
import dataclasses
import json
import re
from collections.abc import Iterable, Sequence

from tpu_estimator_embedding.migration import codes
from tpu_estimator_embedding.migration.codes import CODES, Code

NOTHING_LEFT, HAND_WORK_LEFT = 0, 2
_QUOTED = re.compile("`([^`]+)`")


@dataclasses.dataclass(frozen=True, order=True)
class Finding:
    """One thing that was changed, is left to do or needs a decision.

    Attributes:
        path: the file; empty if it concerns the whole migration.
        line, column: the position in the file, from 1; 0 if it concerns the whole file.
        code: a key of `codes.CODES`.
        message: the details.
    """

    path: str
    line: int
    column: int
    code: str
    message: str

    @property
    def about(self) -> Code:
        """The code's record."""
        return CODES[self.code]

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.path, self.line, self.column) if part)
        return f"{f'{place}: ' if place else ''}{self.code} {self.about.title}: {self.message}"


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings of a run of `migrate`.

    Attributes:
        findings: sorted by file and place.
        is_strict: whether decisions count as work that is left.
    """

    findings: tuple[Finding, ...]
    is_strict: bool = False

    @classmethod
    def of(cls, findings: Iterable[Finding], *, is_strict: bool = False) -> "Report":
        """Sorts findings by file and place; several ways may lead to one."""
        return cls(tuple(sorted(set(findings))), is_strict)

    @property
    def open(self) -> tuple[Finding, ...]:
        """The findings that need attention."""
        return tuple(finding for finding in self.findings if finding.about.kind in codes.OPEN)

    @property
    def left(self) -> tuple[Finding, ...]:
        """The findings that need work by hand."""
        return tuple(one for one in self.findings if one.about.kind == codes.LEFT)

    @property
    def exit_status(self) -> int:
        """0 if nothing is left to do, 2 if manual work is left."""
        return HAND_WORK_LEFT if (self.open if self.is_strict else self.left) else NOTHING_LEFT

    def to_text(self) -> str:
        """Returns one line of totals, then the open findings and what explains them."""
        kinds = collections.Counter(finding.about.kind for finding in self.findings)
        lines = [f"{_count(kinds[codes.CHANGED], 'change')}, "
                 f"{_count(kinds[codes.LEFT], 'thing')} left to do by hand, "
                 f"{_count(kinds[codes.DECISION], 'decision')} to make."]
        lines += [f"{finding}\n    explained by: migrate --explain {finding.code}"
                  for finding in self.open]
        lines += [str(finding) for finding in self.findings if finding.about.kind == codes.NOTE]
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        """Returns every finding, changes included, and the exit status."""
        return json.dumps({
            "exit_status": self.exit_status,
            "findings": [{**dataclasses.asdict(finding), "kind": finding.about.kind,
                          "title": finding.about.title, "guide": finding.about.guide}
                         for finding in self.findings]}, indent=2) + "\n"


def in_words_of_program(finding: Finding, changes: Sequence[Finding]) -> str:
    """Returns the message of a finding with quoted code as the program had it.

    Args:
        finding: it quotes code with explicit imports.
        changes: what was written for those.
    """
    message = finding.message
    pairs = [(words[1], words[0]) for change in sorted(
        changes, key=lambda one: abs(one.line - finding.line))
        if change.code == "TEE101" and (words := _QUOTED.findall(change.message))[1:]]
    names = dict(reversed(pairs))  # of the nearest lines
    if not names:
        return message
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.])({known})(?!\w)")
    return re.sub(r"`[^`]*`", lambda quoted: pattern.sub(
        lambda found: names[found[0]], quoted[0]), message)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
