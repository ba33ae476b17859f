# SPDX-License-Identifier: Apache-2.0
"""The codes of a migration's report, which stay the same from release to release."""

import dataclasses
import textwrap

from tpu_estimator_embedding import checks
from tpu_estimator_embedding.toml_table import read_table

CHANGED, NOTE, DECISION, LEFT = "changed", "note", "decision", "left"

# Kinds that need a person's attention: the exit status is 2.
OPEN = (DECISION, LEFT)

_GUIDE = "migration_guide/report_codes.rst"
_TERMINAL = 80  # columns
_KINDS = {CHANGED: "a change", NOTE: "a note", DECISION: "a decision", LEFT: "left to do by hand"}


@dataclasses.dataclass(frozen=True)
class Code:
    """The code of a line in the report.

    Attributes:
        name: "TEE" and three digits.
        kind: CHANGED, NOTE, DECISION (it works, but needs a person's decision) or LEFT.
        title: what happened, without the particulars.
        advice: what to do.
    """

    name: str
    kind: str
    title: str
    advice: str

    @property
    def guide(self) -> str:
        """The place in the migration guide that explains it."""
        return f"{_GUIDE}#{self.name.lower()}"

    @property
    def kind_in_words(self) -> str:
        """Its kind, for a reader."""
        return _KINDS[self.kind]


CODES = {name: Code(name, **row) for name, row in read_table(__package__, "codes.toml").items()}


def explanation(name: str) -> str:
    """Returns what a code means and what to do, for a terminal.

    Raises:
        ValueError: if there is no such code.
    """
    code = CODES.get(name.upper())
    if code is None:
        raise ValueError(checks.complaint("--explain", "a code of the report, such as TEE201",
                                          name))
    text = f"{code.title} ({code.kind_in_words}). {code.advice}"
    return "\n".join((code.name, *textwrap.wrap(text, _TERMINAL, break_on_hyphens=False)))
