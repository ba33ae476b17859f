# SPDX-License-Identifier: Apache-2.0
"""Writes a report: a page of sections with its figures, and the figures as files for papers."""

import dataclasses
import pathlib
from collections.abc import Iterator, Sequence

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments import html_page, plots
from tpu_estimator_embedding.experiments.files import write_text
from tpu_estimator_embedding.experiments.looks import SCREEN, paper

_FILE = "report.html"


@dataclasses.dataclass(frozen=True)
class Section:
    """A part of a report.

    Attributes:
        title: its heading; empty if it has none.
        parts: HTML, and figures that are drawn where they stand.
    """

    title: str
    parts: Sequence[str | plots.Figure]


def write(directory: pathlib.Path, title: str, sections: Sequence[Section],
          formats: Sequence[str]) -> list[pathlib.Path]:
    """Writes `report.html` and its figures; without matplotlib, a sentence says how to get it.

    Args:
        directory: directory of the files, which is made.
        title: of the page.
        sections: its sections. One without parts is left out.
        formats: formats of the files, some of `figures.FORMATS`; none for the page only.

    Returns:
        The paths of the files, starting with the page.
    """
    directory.mkdir(parents=True, exist_ok=True)
    files: list[pathlib.Path] = []
    parts = [part for section in sections for part in _drawn(section, directory, formats, files)]
    page = directory / _FILE
    write_text(page, html_page.page(title, parts))
    return [page, *files]


def file_name(name: str) -> str:
    """Returns a name of a scalar as that of a file."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)


def _drawn(section: Section, directory: pathlib.Path, formats: Sequence[str],
           files: list[pathlib.Path]) -> Iterator[str]:
    """Yields the HTML of a section, and adds the paths of its figures to `files`."""
    if section.title and section.parts:
        yield html_page.heading(section.title)
    is_said = False
    for part in section.parts:
        if isinstance(part, str):
            yield part
        elif figures.can_draw():
            name, caption, draw_in = part
            yield html_page.figure(draw_in(look=SCREEN)["png"], caption)
            if formats:
                files += plots.write(directory, name, draw_in(look=paper(formats)))
        elif not is_said:
            is_said = True
            yield html_page.paragraph(f"Figures: {figures.NONE}.")
