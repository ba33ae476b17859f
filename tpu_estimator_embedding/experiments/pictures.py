# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of a report: pictures for its page, and files for papers."""

import pathlib
from collections.abc import Iterable, Sequence

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments import html_page, plots
from tpu_estimator_embedding.experiments.looks import SCREEN, paper


def draw(planned: Iterable[plots.Figure], directory: pathlib.Path, formats: Sequence[str]
         ) -> tuple[list[str], list[pathlib.Path]]:
    """Draws figures; without matplotlib, one sentence says how to get it.

    Args:
        planned: the figures.
        directory: directory of the files.
        formats: formats of the files, some of `figures.FORMATS`; none for the page only.

    Returns:
        The parts of a page, and the paths of the files.
    """
    if not figures.can_draw():
        return [html_page.paragraph(f"Figures need matplotlib: {figures.HOW_TO_GET}, and the same "
                                    "command again.")], []
    parts: list[str] = []
    files: list[pathlib.Path] = []
    for name, caption, draw_in in planned:
        parts.append(html_page.figure(draw_in(look=SCREEN)["png"], caption))
        if formats:
            files += plots.write(directory, name, draw_in(look=paper(formats)))
    return parts, files
