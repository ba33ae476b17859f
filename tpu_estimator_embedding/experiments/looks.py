# SPDX-License-Identifier: Apache-2.0
"""How figures look on the page of a report, and how in a paper."""

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpu_estimator_embedding import checks, figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COMMON = {"axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
           "axes.titlelocation": "left"}

# Widths in inches that fit the columns, and the pages, of IEEE, ACM, Elsevier and Nature.
_COLUMN, _PAGE = 3.33, 7.0
_COLUMN_RATIO = 0.75  # of height to width; a column is small for the shape of a screen
_WIDTH_OF_LETTER = 0.6  # of the size of the font, on average
_DPI = 600  # what those publishers ask of line art that is no vector format


@dataclasses.dataclass(frozen=True)
class Look:
    """The formats, sizes and settings of figures.

    Attributes:
        formats: what a figure is drawn as, some of `figures.FORMATS`.
        settings: matplotlib's settings.
        small: points of the titles of small figures in a grid.
        line: points of the width of a line.
        dpi: dots per inch of PNG files.
        is_for_paper: whether a caption replaces the title, and the width is that of a column or a
            page.
    """

    formats: tuple[str, ...]
    settings: Mapping[str, object]
    small: float
    line: float
    dpi: int
    is_for_paper: bool

    width = 7.5  # inches on a screen, up to which a figure fits a column of a paper

    def size(self, width: float, height: float) -> tuple[float, float]:
        """Returns width and height in inches, given those on a screen."""
        if not self.is_for_paper:
            return width, height
        if width <= self.width:
            return _COLUMN, _COLUMN * _COLUMN_RATIO
        return _PAGE, height * max(0.6, _PAGE / width)

    def describe(self, axis: "Axes", title: str, x_label: str, y_label: str) -> None:
        """Writes what an axis shows, in lines that are no longer than the figure."""
        figure: Any = axis.figure
        width, height = figure.get_size_inches()
        letters = 72 / (_WIDTH_OF_LETTER * float(axis.xaxis.label.get_fontsize()))  # per inch
        axis.set(xlabel=wrapped(x_label, int(0.85 * width * letters)),
                 ylabel=wrapped(y_label, int(0.75 * height * letters)))
        if not self.is_for_paper:
            axis.set_title(wrapped(title, int(0.75 * width * letters)))


def wrapped(text: str, letters: int) -> str:
    """Breaks a text after commas, slashes and spaces; a word that is too long, anywhere.

    >>> wrapped("multiplier=0.5,table:user*=1", 16).splitlines()
    ['multiplier=0.5,', 'table:user*=1']
    """
    most = f".{{1,{max(1, letters)}}}"
    return "\n".join(re.findall(f"{most}(?:(?<=[,/ ])|$)|{most}(?<=[:*=])|{most}", text))


SCREEN = Look(("png",), {
    **_COMMON, "font.size": 10, "legend.fontsize": "small", "lines.markersize": 5,
    "axes.grid": True, "grid.alpha": 0.3}, small=8.3, line=2.0, dpi=120, is_for_paper=False)


def paper(formats: Sequence[str]) -> Look:
    """Returns the look of figures for papers: no letter of a text below 7 points, no grid."""
    return Look(tuple(formats), {
        **_COMMON, "font.size": 8, "legend.fontsize": 7, "xtick.labelsize": 7,
        "ytick.labelsize": 7, "lines.markersize": 3.5, "legend.frameon": False,
        "axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6,
        "xtick.minor.width": 0.4, "ytick.minor.width": 0.4, "hatch.linewidth": 0.5},
        small=7, line=1.2, dpi=_DPI, is_for_paper=True)


def add_figures(parser: argparse.ArgumentParser) -> None:
    """Adds the option `--figures`."""
    parser.add_argument("--figures", metavar="FORMATS",
                        help="file formats of the figures next to the page, which fit the columns "
                        f"of a paper ({','.join(figures.FORMATS)})")


def read_formats(text: str | None) -> tuple[str, ...]:
    """Returns the formats that `--figures` names; without it, all.

    >>> read_formats("pdf,svg")
    ('pdf', 'svg')

    Raises:
        ValueError: if a name is none of a format, or comes twice.
    """
    if text is None:
        return figures.FORMATS
    formats = tuple(text.split(","))
    _check_formats(formats, "--figures", ", with commas between them", text)
    return formats


def check_formats(formats: Sequence[str]) -> None:
    """Raises ValueError unless the argument `figures` names formats, each once."""
    _check_formats(None if isinstance(formats, str) else formats, "figures", " in a list", formats)


def _check_formats(formats: Sequence[str] | None, name: str, how: str, given: object) -> None:
    checks.check(formats is not None and set(formats) <= set(figures.FORMATS)
                 and len(set(formats)) == len(formats), name,
                 f"one or more of {','.join(figures.FORMATS)}{how}", given)
