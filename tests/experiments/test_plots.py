# SPDX-License-Identifier: Apache-2.0
"""What the figures of a sweep show: how many seeds are behind a mean, and no spread of one seed."""

import pytest

from tpu_estimator_embedding.experiments import plots

pytest.importorskip("matplotlib")
from matplotlib.colors import to_hex  # noqa: E402

SETTINGS = ["as it is", "0", "1", "2"]
CURVE = [(0, 1.0), (10, 0.5)]
FIGURES = {
    "dots": lambda values: plots.dots("Final auc", "gradient multiplier", "auc", values, "1",
                                      SETTINGS),
    "curves": lambda values: plots.curves("auc", "step", "auc", {
        label: [CURVE] * len(item) for label, item in values.items()}, SETTINGS),
    "bars": lambda values: plots.bars("auc", "table", "auc", ["users"], {
        label: [1.0] for label in values}, settings=SETTINGS)}


@pytest.fixture
def axis_of(monkeypatch):
    """A function that returns the axis, and the labels of the legend, of a figure."""
    figures = []
    drawing = plots._drawing
    monkeypatch.setattr(plots, "_drawing", lambda figure: figures.append(figure) or drawing(figure))

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


def test_figures_come_in_every_format_and_the_same_values_give_the_same_files(tmp_path):
    first, second = (FIGURES["dots"]({"0": [0.5, 0.6]}) for _ in range(2))
    assert first == second
    paths = plots.write(tmp_path, "final", first)
    assert [path.name for path in paths] == ["final.png", "final.svg", "final.pdf"]
    for path, start in zip(paths, (b"\x89PNG", b"<?xml", b"%PDF"), strict=True):
        assert path.read_bytes().startswith(start)
    assert "gradient multiplier" in paths[1].read_text()  # as text, not as outlines
