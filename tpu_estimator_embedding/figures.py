# SPDX-License-Identifier: Apache-2.0
"""The way to matplotlib for all commands that draw. It comes with the extra `plots`."""

import contextlib
import importlib.util
import io
import pathlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HOW_TO_GET = "pip install 'tpu_estimator_embedding[plots]'"
NONE = f"none: they need matplotlib, {HOW_TO_GET}, and the same command again"
FORMATS = ("png", "svg", "pdf")

# Without dates and random ids, so that the same values give the same files; with text as text.
_SETTINGS: dict[Any, Any] = {"svg.hashsalt": "report", "svg.fonttype": "none", "pdf.fonttype": 42}
_METADATA = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_format(argument: str, path: pathlib.Path) -> None:
    """Raises ValueError unless the name of a figure ends in one of FORMATS."""
    if path.suffix[1:] not in FORMATS:
        endings = ", ".join(f".{kind}" for kind in FORMATS)
        raise ValueError(f"`{argument}` must be a name that ends in one of {endings}, got "
                         f"{str(path)!r}.")


def check_can_draw(argument: str) -> None:
    """Raises ImportError if an argument asks for a figure without matplotlib."""
    if not can_draw():
        raise ImportError(f"`{argument}` needs matplotlib, which is not installed. Run "
                          f"`{HOW_TO_GET}`.")


@contextlib.contextmanager
def figure(width: float, height: float,
           settings: Mapping[Any, Any] | None = None) -> "Iterator[Figure]":
    """Yields an empty matplotlib Figure of a size in inches; draw and save it in the context.

    Args:
        width: inches.
        height: inches.
        settings: matplotlib's settings that differ from its defaults.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_SETTINGS, **(settings or {})}):
        drawn = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(drawn)  # no window, and no state shared with the figures of a notebook
        yield drawn


def content(drawn: "Figure", kind: str, dpi: int = 120) -> bytes:
    """Returns the file of a figure in a format, one of FORMATS; `dpi` is of PNG."""
    file = io.BytesIO()
    drawn.savefig(file, format=kind, dpi=dpi, metadata=_METADATA[kind])
    return file.getvalue()
