# SPDX-License-Identifier: Apache-2.0
"""The figures of reports: PNG on the page, and PNG, SVG or PDF files for papers."""

import collections
import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments.files import write_bytes
from tpu_estimator_embedding.experiments.looks import SCREEN, Look

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

# M. Okabe, K. Ito, "Color Universal Design" (2008): colours that people with any common colour
# vision can distinguish, without the light yellow, which is hard to see on white. Colours, line
# styles and markers have different periods, so that their combinations are unique.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
_PLOTLY_DASHES = ("solid", "dash", "dashdot", "dot", "longdashdot")  # the same of Plotly
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

# A standard deviation of two values says next to nothing of the spread of others.
FEWEST_OF_SPREAD = 3

# Of small text, to choose the columns of a legend; wide letters, so that it is never too many.
_LETTERS_PER_INCH, _LETTERS_OF_HANDLE = 15, 6
_MOST_IN_AXIS = 6  # entries of a legend
_WIDE = 9.0  # inches of a figure that shares its width with a legend, or has long labels

_OF_COLUMNS = "/embedding_weights"  # end of the key of a column's table

Drawing = Mapping[str, bytes]  # each format of a look -> content of the file

# A figure as it is planned: its name, its caption, and what draws it with `look=`.
Figure = tuple[str, str, Callable[..., Drawing]]

# Label of a line -> curves of its seeds, each a sequence of (step, value) pairs.
Groups = Mapping[str, Sequence[Sequence[tuple[float, float]]]]


def write(directory: pathlib.Path, name: str, drawing: Drawing) -> list[pathlib.Path]:
    """Writes a figure in all formats of a drawing; returns the paths of the files."""
    paths = [directory / f"{name}.{kind}" for kind in drawing]
    for path, content in zip(paths, drawing.values(), strict=True):
        write_bytes(path, content)
    return paths


def with_count(label: str, count: int) -> str:
    """Adds the number of seeds to the label of what is drawn of them.

    >>> with_count("multiplier=1", 2)
    'multiplier=1 (n = 2)'
    """
    return f"{label} (n = {count})"


def short_names(keys: Sequence[str]) -> list[str]:
    """Returns a label for every key of a table: the part that distinguishes it from the others.

    >>> short_names(["a/words_embedding/embedding_weights", "items"])
    ['words_embedding', 'items']
    >>> short_names(["a/words", "b/words"])
    ['a/words', 'b/words']
    """
    shorter = [key.removesuffix(_OF_COLUMNS) for key in keys]
    last = [key.rpartition("/")[2] for key in shorter]
    counts = collections.Counter(last)
    return [name if counts[name] == 1 else key for name, key in zip(last, shorter, strict=True)]


def curves(title: str, x_label: str, y_label: str, groups: Groups,
           settings: Sequence[str] | None = None, look: Look = SCREEN) -> Drawing:
    """Draws the mean of every group as a line, and each of its curves as a thin line.

    Args:
        settings: all settings of a sweep, of which groups are some: each has its own colour, and
            the legend says how many seeds. Without it, groups are what else has a curve.
        look: where the figure is to be seen.
    """
    order = list(groups if settings is None else settings)
    width = _WIDE if len(groups) > _MOST_IN_AXIS else SCREEN.width
    with _figure(look, width) as (figure, axis):
        means = {label: _mean(members) for label, members in groups.items()}
        for label, members in groups.items():
            color, line, marker = _style(order.index(label))
            mean = means[label]
            axis.plot(*zip(*mean, strict=True), color=color, linestyle=line,
                      label=label if settings is None else with_count(label, len(members)),
                      linewidth=look.line * (1 + 1.5 * _equal_after(label, means)),
                      marker=marker if len(mean) <= 20 else None)
            for member in members if len(members) > 1 else ():
                axis.plot(*zip(*member, strict=True), color=color, linestyle=line, alpha=0.45,
                          linewidth=look.line / 3)
        look.describe(axis, title, x_label, y_label)
        _legend(figure, axis)
        return _drawing(figure, look)


def _equal_after(label: str, means: Mapping[str, object]) -> int:
    """How many later lines are the same: they are drawn thinner, on top, so that all are seen."""
    labels = list(means)
    return sum(means[other] == means[label] for other in labels[labels.index(label) + 1:])


def dots(title: str, x_label: str, y_label: str, values: Mapping[str, Sequence[float]],
         baseline: str | None = None, settings: Sequence[str] | None = None,
         look: Look = SCREEN) -> Drawing:
    """Draws the values of each label and, of three or more, their mean with standard deviation.

    Args:
        baseline: label whose mean is drawn as a horizontal line for comparison.
        settings: the labels of all settings of a sweep, as in `curves`.
        look: where the figure is to be seen.
    """
    order = list(values if settings is None else settings)
    colors = [_style(order.index(label))[0] for label in values]
    with _figure(look, _WIDE if _are_long(values) else SCREEN.width) as (figure, axis):
        for place, item in enumerate(values.values()):
            axis.plot([place] * len(item), item, linestyle="", marker="o", color=colors[place],
                      alpha=0.6, label="one seed, in the colour of its setting"
                      if place == 0 else None)
        several = {place: item for place, item in enumerate(values.values())
                   if len(item) >= FEWEST_OF_SPREAD}
        for place, item in several.items():
            axis.errorbar([place], [np.mean(item)], [np.std(item, ddof=1)], linestyle="",
                          marker="D", capsize=4, color=colors[place],
                          label="mean ± standard deviation of n seeds"
                          if place == min(several) else None)
        if baseline is not None and baseline in values:
            axis.axhline(float(np.mean(values[baseline])), color="#666666", linestyle="--",
                         linewidth=1, label=with_count(
                             f"mean of {x_label} {baseline}", len(values[baseline])))
        labels = [f"{label}\nn = {len(item)}" for label, item in values.items()]
        axis.set_xticks(range(len(labels)), labels, rotation=30 if _are_long(values) else 0,
                        ha="right" if _are_long(values) else "center")
        axis.set_xlim(-0.5, len(values) - 0.5)
        look.describe(axis, title, x_label, y_label)
        _legend_above(figure, axis, 3)  # beside the few points, none of which it may cover
        return _drawing(figure, look)


def points(title: str, x_label: str, y_label: str, values: Sequence[tuple[float, float]],
           is_logarithmic: bool, look: Look = SCREEN) -> Drawing:
    """Draws (x, y) pairs as dots; `is_logarithmic` is of the horizontal axis."""
    with _figure(look) as (figure, axis):
        axis.plot(*zip(*values, strict=True), linestyle="", marker="o", color=_COLORS[0])
        if is_logarithmic:
            axis.set_xscale("log")
        look.describe(axis, title, x_label, y_label)
        return _drawing(figure, look)


def bars(title: str, x_label: str, y_label: str, labels: Sequence[str],
         groups: Mapping[str, Sequence[float]], is_logarithmic: bool = False,
         counts: Mapping[str, int] | None = None, settings: Sequence[str] | None = None,
         look: Look = SCREEN) -> Drawing:
    """Draws grouped bars: one group per label, with one bar per entry of `groups`.

    Args:
        counts: entry of `groups` -> number of seeds, for the legend.
        settings: all settings of a sweep, as in `curves`.
        look: where the figure is to be seen.
    """
    order = list(groups if settings is None else settings)
    width = max(7.5, 1.5 + 0.25 * len(labels) * len(groups))
    height = 4.5 + (0.04 * max(map(len, labels)) if _are_long(labels) else 0.0)
    with _figure(look, width, height) as (figure, axis):
        places, thickness = np.arange(len(labels)), min(0.3, 0.8 / len(groups))
        for index, (name, values) in enumerate(groups.items()):
            of_style = order.index(name)
            axis.bar(places + (index - (len(groups) - 1) / 2) * thickness, values, thickness,
                     label=with_count(name, counts[name]) if counts else name,
                     color=_COLORS[of_style % len(_COLORS)], edgecolor="white",
                     hatch=("", "//", "..", "xx")[of_style // len(_COLORS) % 4])
        axis.set_xlim(-0.5, len(labels) - 0.5)
        axis.set_xticks(places, list(labels), rotation=30 if _are_long(labels) else 0,
                        ha="right" if _are_long(labels) else "center")
        if is_logarithmic:
            axis.set_yscale("log")
        look.describe(axis, title, x_label, y_label)
        if len(groups) > 1 or "" not in groups:
            _legend_above(figure, axis, 4)
        return _drawing(figure, look)


def histograms(x_label: str, y_label: str, edges: np.ndarray, counts: Mapping[str, np.ndarray],
               look: Look = SCREEN) -> Drawing:
    """Draws several histograms with the same logarithmic axis.

    Args:
        edges: `[bins + 1]`, edges of the bins.
        counts: title -> `[bins]`.
        look: where the figure is to be seen.
    """
    from matplotlib.ticker import NullFormatter

    with _grid(look, len(counts)) as (figure, axes):
        filled = np.flatnonzero(np.sum(list(counts.values()), axis=0))
        low, high = (filled[0], filled[-1]) if len(filled) else (0, len(edges) - 2)
        for axis, (title, values) in zip(axes, counts.items(), strict=False):
            axis.stairs(values, edges, fill=True, color=_COLORS[0])
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
            axis.set_xlim(edges[max(0, low - 5)], edges[min(len(edges) - 1, high + 6)])
            axis.set_title(title, fontsize=look.small)
            axis.set(xlabel=x_label, ylabel=y_label)
        return _drawing(figure, look)


def smoothed(points: Sequence[tuple[int, float]], count: int = 200) -> list[tuple[float, float]]:
    """Returns at most `count` points, each the mean of consecutive points."""
    if len(points) <= count:
        return [(float(step), value) for step, value in points]
    parts = np.array_split(np.asarray(points, np.float64), count)
    return [(float(part[:, 0].mean()), float(part[:, 1].mean())) for part in parts]


@dataclasses.dataclass(frozen=True)
class Style:
    """How the values of a setting look."""

    color: str
    plotly_dash: str


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Returns label -> style, by the order in which the labels come first."""
    return {label: Style(_COLORS[index % len(_COLORS)],
                         _PLOTLY_DASHES[index % len(_PLOTLY_DASHES)])
            for index, label in enumerate(dict.fromkeys(labels))}


def _style(index: int) -> tuple[str, Any, str]:
    return (_COLORS[index % len(_COLORS)], _LINES[index % len(_LINES)],
            _MARKERS[index % len(_MARKERS)])


def _mean(members: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The mean at every step that occurs, over the curves with a value at that step."""
    by_step: dict[float, list[float]] = {}
    for member in members:
        for step, value in member:
            by_step.setdefault(step, []).append(value)
    most = max(len(values) for values in by_step.values())
    return [(step, float(np.mean(values))) for step, values in sorted(by_step.items())
            if len(values) == most]


def _are_long(labels: Iterable[str]) -> bool:
    return sum(len(label) for label in labels) > 60


def _legend(figure: "matplotlib.figure.Figure", axis: "matplotlib.axes.Axes") -> None:
    handles, labels = axis.get_legend_handles_labels()
    if len(labels) > _MOST_IN_AXIS:
        figure.legend(handles, labels, loc="outside right upper")
    else:
        axis.legend(handles, labels)


def _legend_above(figure: "matplotlib.figure.Figure", axis: "matplotlib.axes.Axes",
                  most_columns: int) -> None:
    """A legend outside the axis, in as many columns as fit the width of the figure."""
    handles, labels = axis.get_legend_handles_labels()
    letters = figure.get_figwidth() * _LETTERS_PER_INCH
    columns = int(letters // (max(map(len, labels)) + _LETTERS_OF_HANDLE))
    figure.legend(handles, labels, loc="outside upper right",
                  ncols=max(1, min(most_columns, len(labels), columns)))


@contextlib.contextmanager
def _figure(look: Look, width: float = SCREEN.width, height: float = 4.5
            ) -> Iterator["tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]"]:
    with figures.figure(*look.size(width, height), look.settings) as figure:
        axis = figure.add_subplot()
        yield figure, axis


@contextlib.contextmanager
def _grid(look: Look, count: int) -> Iterator[
        "tuple[matplotlib.figure.Figure, list[matplotlib.axes.Axes]]"]:
    with _figure(look, width=9.0, height=2.4 * -(-count // 2)) as (figure, axis):
        figure.delaxes(axis)
        rows = figure.subplots(-(-count // 2), 2, squeeze=False)
        axes = [axis for row in rows for axis in row]
        for axis in axes[count:]:
            axis.set_visible(False)
        yield figure, axes


def _drawing(figure: "matplotlib.figure.Figure", look: Look) -> Drawing:
    return {kind: figures.content(figure, kind, look.dpi) for kind in look.formats}
