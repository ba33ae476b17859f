# SPDX-License-Identifier: Apache-2.0
"""What the figures of a sweep show: how many seeds are behind a mean, and no spread of one seed."""

import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from tpu_estimator_embedding.experiments import plots
from tpu_estimator_embedding.experiments.looks import SCREEN, paper, read_formats
from tpu_estimator_embedding.figures import FORMATS

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex  # noqa: E402

SETTINGS = ["as it is", "0", "1", "2"]
CURVE = [(0, 1.0), (10, 0.5)]
MANY = [f"multiplier={number},learning_rate=0.0{number}" for number in range(9)]
FIGURES = {
    "dots": lambda values, look=SCREEN, settings=SETTINGS: plots.dots(
        "Final auc", "gradient multiplier", "auc", values, "1", settings, look),
    "curves": lambda values, look=SCREEN, settings=SETTINGS: plots.curves("auc", "step", "auc", {
        label: [CURVE] * len(item) for label, item in values.items()}, settings, look),
    "bars": lambda values, look=SCREEN, settings=SETTINGS: plots.bars(
        "auc", "table", "auc", ["users"], {label: [1.0] for label in values}, settings=settings,
        look=look)}
LONG = {
    "settings": [f"multiplier={value},table:user*=0.5,table:ad=1" for value in (
        "0", "freeze_until:5*0.5,then:20:exponential:0.5:10", "cosine:0.1:40", "warmup:30")],
    "paths": ["st1", *(f"sw4/runs/multiplier=1,learning_rate=0.25,clipping_limit={limit},seed=0/"
                       "model" for limit in (0.5, 1))],
    "one word": [letter * 150 for letter in "Wab"],
    "many": [f"multiplier={number}0000,learning_rate=0.{number},clipping_limit=0.{number}5,"
             "table:user*=0.5" for number in range(1, 25)]}
FOR_PAPER = {
    **{name: lambda look, draw=draw: draw({"0": [0.5, 0.6, 0.7], "1": [0.7]}, look)
       for name, draw in FIGURES.items()},
    "many curves": lambda look: plots.curves(
        "auc", "step", "auc", {label: [CURVE] for label in MANY}, MANY, look),
    "many bars": lambda look: plots.bars(
        "Norms", "table", "mean norm", [f"table_of_words_{number}" for number in range(12)],
        {label: [1.0] * 12 for label in MANY[:4]}, counts=dict.fromkeys(MANY, 3), look=look),
    "many dots": lambda look: plots.dots(
        "Final auc", "setting", "auc", {label: [0.1, 0.2, 0.3] for label in MANY}, look=look),
    "points": lambda look: plots.points("auc", "rate", "auc", [(0.001, 1.0), (1, 2.0)], True, look),
    "histograms": lambda look: plots.histograms(
        "norm", "rows", np.logspace(-3, 3, 13), {name: np.arange(12) for name in "abc"}, look)}


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn."""
    figures = []
    drawing = plots._drawing
    monkeypatch.setattr(plots, "_drawing", lambda figure, look: (
        figures.append(figure) or drawing(figure, look)))
    return figures


@pytest.fixture
def axis_of(figures):
    """A function that returns the axis, and the labels of the legend, of a figure."""
    def axis_of(kind, values):
        FIGURES[kind](values)
        [axis] = figures[-1].axes
        legends = [legend for legend in (*figures[-1].legends, axis.get_legend()) if legend]
        return axis, [text.get_text() for legend in legends for text in legend.get_texts()]
    return axis_of


def test_only_three_seeds_have_a_spread_and_all_say_how_many(axis_of):
    axis, labels = axis_of("dots", {"0": [0.5, 0.6], "1": [0.7]})
    assert not axis.containers and not any("deviation" in label for label in labels)
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0\nn = 2", "1\nn = 1"]
    axis, labels = axis_of("dots", {"0": [0.5, 0.6, 0.7], "1": [0.7]})
    [spread] = axis.containers
    assert spread.lines[0].get_xydata().tolist() == [[0, pytest.approx(0.6)]]  # not of "1"
    assert "mean ± standard deviation of n seeds" in labels
    assert "mean of gradient multiplier 1 (n = 1)" in labels


def test_lines_of_means_say_how_many(axis_of):
    assert axis_of("curves", {"0": [1, 2], "1": [1]})[1] == ["0 (n = 2)", "1 (n = 1)"]


def test_equal_lines_are_all_seen(axis_of):
    axis, _ = axis_of("curves", {"0": [1], "1": [1], "2": [1]})
    widths = [line.get_linewidth() for line in axis.lines]
    assert widths[0] > widths[1] > widths[2]


def test_setting_has_one_colour_in_all_figures(axis_of):
    settings = ["as it is", "0", "1"]
    dots, _ = axis_of("dots", {label: [0.5] for label in settings[1:]})
    curves, _ = axis_of("curves", {"1": [1]})  # the others have no curve
    bars, _ = axis_of("bars", {"1": [1]})
    _, expected = (line.get_color() for line in dots.lines[:2])
    assert curves.lines[0].get_color() == expected
    assert to_hex(bars.patches[0].get_facecolor()).upper() == expected
    assert plots.styles(settings)["1"].color == expected


@pytest.mark.parametrize("look", [SCREEN, paper(["png"])], ids=["screen", "paper"])
@pytest.mark.parametrize("labels", LONG)
@pytest.mark.parametrize("kind", FIGURES)
@pytest.mark.filterwarnings("error")
def test_long_labels_are_whole_and_beside_the_axis(kind, labels, look, figures):
    FIGURES[kind]({label: [0.5] for label in LONG[labels]}, look, LONG[labels])
    [figure] = figures
    [axis] = figure.axes
    for legend in figure.legends:
        assert not legend.get_window_extent().overlaps(axis.get_tightbbox())
    shown = [*figure.legends, *filter(None, [axis.get_legend()]),
             *(axis.get_xticklabels() if kind != "curves" else ())]
    for extent in (item.get_window_extent() for item in shown):
        assert extent.min.min() >= 0 and (extent.max <= figure.bbox.max).all(), extent
    assert axis.bbox.width > 0.5 * figure.bbox.width
    assert axis.bbox.height > 1.3 * figure.dpi


def test_labels_keep_what_distinguishes_them():
    names = list(plots.distinguishing(LONG["settings"]).values())
    assert names[:2] == ["multiplier=0",
                         "multiplier=freeze_until:5*0.5,then:20:exponential:0.5:10"]
    assert list(plots.distinguishing(LONG["paths"]).values()) == LONG["paths"]
    for labels in (["a" * 30 + ",b", "b," + "a" * 30], ["a" * 30, "a" * 30 + "/b"], ["a" * 30]):
        assert list(plots.distinguishing(labels).values()) == labels


def test_figures_come_in_every_format_and_the_same_values_give_the_same_files(tmp_path):
    first, second = (FIGURES["dots"]({"0": [0.5, 0.6]}, paper(FORMATS)) for _ in range(2))
    assert first == second
    paths = plots.write(tmp_path, "final", first)
    assert [path.name for path in paths] == ["final.png", "final.svg", "final.pdf"]
    for path, start in zip(paths, (b"\x89PNG", b"<?xml", b"%PDF"), strict=True):
        assert path.read_bytes().startswith(start)
    assert "gradient multiplier" in paths[1].read_text()  # as text, not as outlines
    assert list(FIGURES["dots"]({"0": [0.5]}, paper(["pdf"]))) == ["pdf"]


@pytest.mark.parametrize("name", FOR_PAPER)
def test_file_for_a_paper_is_what_a_journal_takes(name, tmp_path):
    """The width of a column or a page, text of 7 points that is text, TrueType fonts inside."""
    drawing = FOR_PAPER[name](paper(FORMATS))
    width = float(re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+) ", drawing["pdf"])[1])
    assert width / 72 == pytest.approx(
        7.0 if "many" in name or name == "histograms" else 3.33, abs=0.01)
    assert b"/FontFile2" in drawing["pdf"] and b"/Type3" not in drawing["pdf"]
    svg = drawing["svg"].decode()
    assert f'width="{width:g}pt"' in svg
    sizes = [float(size) for size in re.findall(r"font(?:-size)?: (?:[a-z]+ )*([0-9.]+)px", svg)]
    exponents = svg.count(f"{0.7 * 7:g}px")  # of powers of ten on a logarithmic axis
    assert len(sizes) > 2 * exponents and sorted(sizes)[exponents] >= 7, sizes
    header = drawing["png"].index(b"pHYs") + 4
    dots, _, unit = struct.unpack(">IIB", drawing["png"][header:header + 9])
    assert (round(dots * 0.0254), unit) == (600, 1)
    if shutil.which("pdffonts"):
        path = tmp_path / "figure.pdf"
        path.write_bytes(drawing["pdf"])
        fonts = subprocess.run(["pdffonts", path], capture_output=True, text=True, check=True)
        assert "TrueType" in fonts.stdout and "Type 3" not in fonts.stdout


def test_formats_are_named_with_commas():
    for text in ("pdf,eps", "", "pdf,pdf", "pdf, svg"):
        with pytest.raises(ValueError, match="`--figures` must be one or more of png,svg,pdf, "):
            read_formats(text)
