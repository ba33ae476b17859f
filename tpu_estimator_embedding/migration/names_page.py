# SPDX-License-Identifier: Apache-2.0
"""The table of legacy names as reStructuredText, for the migration guide."""

from collections.abc import Iterator

from tpu_estimator_embedding.migration.legacy_names import NAMES, STAGES

_HEADS = {"imports": "Imports", "tf2": "TF2", "layers": "Layers", "keras-rs": "Keras RS"}


def lines() -> Iterator[str]:
    """Yields a list-table with a row for each name and a column for each stage."""
    yield from (".. list-table::", "   :header-rows: 1", "")
    yield from _row(["Legacy name", *(_HEADS[stage] for stage in STAGES)])
    for name, row in sorted(NAMES.items()):
        texts = [row.counterpart(stage).replace("`", "") for stage in STAGES[1:]]
        yield from _row([f"``{name}``", f"``{row.imports}``", *map(_escaped, texts)])


def _row(cells: list[str]) -> Iterator[str]:
    for index, cell in enumerate(cells):
        yield f"   {'  ' if index else '* '}- {cell}"


def _escaped(text: str) -> str:
    for character in "\\*_|":
        text = text.replace(character, f"\\{character}")
    return text
