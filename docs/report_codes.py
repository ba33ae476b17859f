# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the migration guide on report codes, from the codes that `migrate` prints.

    python docs/report_codes.py > migration_guide/report_codes.rst
"""

import textwrap
from collections.abc import Iterator

from tpu_estimator_embedding.migration.codes import CODES

_WIDTH = 100
_INTRODUCTION = """\
From the checkout, this prints a report with things left to do and to decide::

    tpu-estimator-embedding migrate migration_guide/replicas/before.py --to tf2 --no-capture

``tpu-estimator-embedding migrate`` ends with a report. Each line has a location, a code, and the
details. Codes keep their meaning from release to release. This page explains each code and what to
do, as ``migrate --explain CODE`` does in a terminal. It is generated from the table that the tool
uses.

Changes and notes need no action. A decision works, but has to be confirmed. Everything else is
left to do by hand. The exit status is 2 if hand work is left, or with ``--strict`` a decision, and
0 otherwise.
"""
_NEXT = "Continue with :doc:`migration_training` and :doc:`migration_limits`."


def lines() -> Iterator[str]:
    """Yields the page: a section for each code."""
    yield from _section("Report codes", "=")
    yield from (*_INTRODUCTION.splitlines(), "")
    for name, code in CODES.items():
        yield from (f".. _{name.lower()}:", "")
        yield from _section(name, "-")
        text = f"**{code.title}** ({code.kind_in_words}). {code.advice}".replace("`", "``")
        yield from (*textwrap.wrap(text, _WIDTH, break_on_hyphens=False), "")
    yield from (_NEXT, "")


def _section(title: str, character: str) -> tuple[str, str, str]:
    return title, character * len(title), ""


if __name__ == "__main__":
    print("\n".join(lines()), end="")
