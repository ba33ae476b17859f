# SPDX-License-Identifier: Apache-2.0
"""Writes the page of the migration guide on arguments, from the table that `migrate` uses.

    python docs/constructor_arguments.py > migration_guide/arguments.rst
"""

import textwrap
from collections.abc import Iterator

from tpu_estimator_embedding.migration.constructor_arguments import ARGUMENTS, REPORTED

_INTRODUCTION = """\
From the checkout, this reports an argument that a program of stage 2 does not have::

    tpu-estimator-embedding migrate migration_guide/replicas/before.py --to tf2 --no-capture

What becomes of every argument of the Estimator's constructors with ``migrate --to tf2`` and
``layers``. An argument that is *reported* needs a decision (:ref:`tee408`) or work
by hand (:ref:`tee404`), except with the values that are named. This page is generated from the
table that the tool uses.
"""
_NEXT = "Continue with :doc:`migration_report_codes`."


def lines() -> Iterator[str]:
    """Yields the page: a table for each constructor."""
    yield from ("Arguments of constructors", "=" * 25, "", *_INTRODUCTION.splitlines())
    for constructor, arguments in ARGUMENTS.items():
        yield from ("", constructor, "-" * len(constructor), "", ".. list-table::",
                    "   :header-rows: 1", "   :widths: 34 14 52", "", "   * - Argument",
                    "     - Fate", "     - Details")
        for argument in arguments:
            text = argument.text
            others = [f"`{value}`" for value in argument.harmless if value != "None"]
            if argument.fate == REPORTED and others:
                text += f"; not reported with {', '.join(others)}"
            yield from (f"   * - ``{argument.name}``", f"     - {argument.fate}",
                        *textwrap.wrap(text.replace("`", "``"), 100, initial_indent="     - ",
                                       subsequent_indent="       ", break_on_hyphens=False))
    yield from ("", _NEXT)


if __name__ == "__main__":
    print("\n".join(lines()))
