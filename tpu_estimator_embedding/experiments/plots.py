# SPDX-License-Identifier: Apache-2.0
"""The figures of reports: PNG on the page, and PNG, SVG or PDF files for papers."""

import collections
import contextlib
import dataclasses
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tpu_estimator_embedding import figures
from tpu_estimator_embedding.experiments.files import write_bytes
from tpu_estimator_embedding.experiments.looks import SCREEN, Look, wrapped

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
_MOST_COLUMNS = 4  # of a legend
_MOST_TIMES_WIDER = 4.5  # how much wider a line is than the ones that it equals
_SHORT = 24  # letters of a label that may be slanted, and next to others in a legend
_NARROWEST = 12  # letters of a line of a label that is broken
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


def distinguishing(labels: Iterable[str]) -> dict[str, str]:
    """Returns each label without the parts that all of them have, if any of them is long.

    >>> list(distinguishing(["runs/rate=1,limit=0.5/model", "runs/rate=1,limit=2/model"]).values())
    ['limit=0.5', 'limit=2']
    >>> list(distinguishing(["a/b", "a/c"]).values())
    ['a/b', 'a/c']
    """
    parts = {label: re.findall("[^,/]*[,/]?", label) for label in labels}
    bare = {label: [part.rstrip(",/") for part in found] for label, found in parts.items()}
    common = set.intersection(*map(set, bare.values())) if bare else set()
    shorter = {label: "".join(part for part, name in zip(found, bare[label], strict=True)
                              if name not in common).rstrip(",/")
               for label, found in parts.items()}
    is_enough = all(shorter.values()) and len(set(shorter.values())) == len(shorter)
    if is_enough and max(map(len, shorter), default=0) > _SHORT:
        return shorter
    return {label: label for label in parts}


def curves(title: str, x_label: str, y_label: str, groups: Groups,
           settings: Sequence[str] | None = None, look: Look = SCREEN) -> Drawing:
    """Draws the mean of every group as a line, and each of its curves as a thin line.

    Args:
        settings: all settings of a sweep, of which groups are some: each has its own colour, and
            the legend says how many seeds. Without it, groups are what else has a curve.
        look: where the figure is to be seen.
    """
    order = list(groups if settings is None else settings)
    names = distinguishing(order)
    width = _WIDE if len(groups) > _MOST_IN_AXIS else SCREEN.width
    with _figure(look, width) as (figure, axis):
        means = {label: _mean(members) for label, members in groups.items()}
        for label, members in groups.items():
            color, line, marker = _style(order.index(label))
            mean = means[label]
            axis.plot(*zip(*mean, strict=True), color=color, linestyle=line,
                      label=names[label] if settings is None else with_count(
                          names[label], len(members)),
                      linewidth=look.line * (1 + _equal_after(label, means) * min(
                          1.5, _MOST_TIMES_WIDER / len(means))),
                      marker=marker if len(mean) <= 20 else None)
            for member in members if len(members) > 1 else ():
                axis.plot(*zip(*member, strict=True), color=color, linestyle=line, alpha=0.45,
                          linewidth=look.line / 3)
        look.describe(axis, title, x_label, y_label)
        _legend(figure, axis, may_cover=True)
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
    names = distinguishing(order)
    colors = [_style(order.index(label))[0] for label in values]
    width = max(_WIDE if _are_long(values) else SCREEN.width, 1.5 + 0.25 * len(values))
    with _figure(look, width) as (figure, axis):
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
                             f"mean of {x_label} {names[baseline]}", len(values[baseline])))
        look.describe(axis, title, x_label, y_label)
        _ticks(figure, axis, [names[label] for label in values],
               [f"n = {len(item)}" for item in values.values()])
        _legend(figure, axis, may_cover=False)
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
    names = distinguishing(order)
    width = max(SCREEN.width, 1.5 + 0.25 * len(labels) * len(groups))
    with _figure(look, width) as (figure, axis):
        places, thickness = np.arange(len(labels)), min(0.3, 0.8 / len(groups))
        for index, (name, values) in enumerate(groups.items()):
            of_style = order.index(name)
            axis.bar(places + (index - (len(groups) - 1) / 2) * thickness, values, thickness,
                     label=with_count(names[name], counts[name]) if counts else names[name],
                     color=_COLORS[of_style % len(_COLORS)], edgecolor="white",
                     hatch=("", "//", "..", "xx")[of_style // len(_COLORS) % 4])
        if is_logarithmic:
            axis.set_yscale("log")
        look.describe(axis, title, x_label, y_label)
        _ticks(figure, axis, labels)
        if len(groups) > 1 or "" not in groups:
            _legend(figure, axis, may_cover=False)
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
            axis.set(xlabel=x_label, ylabel=y_label)
            letters = figure.get_figwidth() / 2 * _LETTERS_PER_INCH
            axis.set_title(wrapped(title, int(0.8 * letters)), fontsize=look.small)
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


def _legend(figure: "matplotlib.figure.Figure", axis: "matplotlib.axes.Axes",
            may_cover: bool) -> None:
    """A legend in the axis, or below it, which makes the figure as much higher.

    Args:
        figure: the figure.
        axis: its only axis.
        may_cover: whether it may be in the axis, where a small one fits between lines.
    """
    handles, labels = axis.get_legend_handles_labels()
    longest, letters = max(map(len, labels)), figure.get_figwidth() * _LETTERS_PER_INCH
    if may_cover and len(labels) <= _MOST_IN_AXIS and longest <= letters / 2:
        axis.legend(handles, labels)
        return
    while True:
        columns = max(1, min(_MOST_COLUMNS, len(labels),
                             int(letters // (longest + _LETTERS_OF_HANDLE))))
        lines = [wrapped(label, int(letters / columns) - _LETTERS_OF_HANDLE) for label in labels]
        legend = figure.legend(handles, lines, loc="outside lower left", ncols=columns)
        extent = legend.get_window_extent()
        if extent.width <= 0.98 * figure.bbox.width or letters < _NARROWEST:
            break
        legend.remove()
        letters *= 0.9
    figure.set_figheight(figure.get_figheight() + extent.height / figure.dpi)


def _ticks(figure: "matplotlib.figure.Figure", axis: "matplotlib.axes.Axes",
           labels: Sequence[str], counts: Sequence[str] | None = None) -> None:
    """The labels at 0, 1, ... of the horizontal axis; long ones make the figure higher.

    Args:
        figure: the figure.
        axis: its only axis.
        labels: what is at each place.
        counts: a further line of each of them.
    """
    def size(texts: Sequence[str], **options: Any) -> tuple[float, float]:
        axis.set_xticks(range(len(labels)), [
            "\n".join(lines) for lines in zip(texts, *([counts] if counts else []), strict=True)],
            **options)
        extents = [label.get_window_extent() for label in axis.get_xticklabels()]
        return (max(extent.width for extent in extents), max(extent.height for extent in extents))

    axis.set_xlim(-0.5, len(labels) - 0.5)
    longest, room = max(map(len, labels)), 0.85 * figure.bbox.width / len(labels)
    width, height = size(labels)
    letters, high = int(longest * room / width), height
    if letters < min(longest, _NARROWEST):
        if longest <= _SHORT:
            _, high = size(labels, rotation=30, ha="right")
        else:
            lines = max(1, int(room / (height / (2 if counts else 1))) - bool(counts))
            _, high = size([wrapped(label, max(_SHORT, math.ceil(1.2 * longest / lines)))
                            for label in labels], rotation=90, ha="center")
    elif letters < longest:
        _, high = size([wrapped(label, letters) for label in labels])
    figure.set_figheight(figure.get_figheight() + (high - height) / figure.dpi)


@contextlib.contextmanager
def _figure(look: Look, width: float = SCREEN.width, height: float = 4.5
            ) -> Iterator["tuple[matplotlib.figure.Figure, matplotlib.axes.Axes]"]:
    with figures.figure(*look.size(width, height), look.settings) as figure:
        figure.set_dpi(look.dpi)  # what is measured of texts depends on it
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
