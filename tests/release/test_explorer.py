# SPDX-License-Identifier: Apache-2.0
"""The part of a report that one can work in, worked in as a reader does: by mouse and keyboard."""

import math
import re

import pytest

from tpu_estimator_embedding.experiments import explorer, html_page
from tpu_estimator_embedding.experiments.explorer import ExploredRun

pytest.importorskip("plotly", reason="the extra `interactive` has it")
pytest.importorskip("itables", reason="the extra `interactive` has it")
devtools = pytest.importorskip("tests.devtools", reason="it needs websocket-client")

READY = "document.documentElement?.dataset.explorer === 'ready'"
VALUES = {("0.01", 0): [0.1, 0.3, 0.2], ("0.01", 1): [0.2, 0.25, 0.3],
          ("1", 0): [0.4, 0.6, 0.8], ("warmup:10", 0): [0.5, math.nan, 0.7]}

LONG = "training/the_scope_of_a_layer/the_name_of_another/what_it_has_measured/of_ids_by_frequency"
SHARES = {"item": 0.5, "user": 0.75}


def runs():
    return [ExploredRun(
        f"multiplier={multiplier},seed={seed}", f"multiplier={multiplier}",
        {"multiplier": multiplier, "seed": str(seed)}, {"auc": values[-1], "loss": 1 - values[-1]},
        {"auc": [(10 * place, value) for place, value in enumerate(values, 1)],
         "</script><b>": [(1, 1.0)], LONG: [(1, 1.0)],
         **{f"training/embedding/{table}/update_ratio": [(5, 0.25), (15, share)]
            for table, share in SHARES.items()}}) for (multiplier, seed), values in VALUES.items()]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    directory = tmp_path_factory.mktemp("explorer")
    path = directory / "report.html"
    path.write_text(html_page.page("A sweep", explorer.section(runs(), "auc", True)), "utf-8")
    with devtools.open_browser(directory) as page:
        page.path = path
        yield page
        assert page.console == []
        assert {re.match("[a-z]+:", address)[0] for address in page.requests} <= {
            "file:", "blob:", "data:"}


@pytest.fixture(scope="module")
def wide(page):
    """The page in a wide window, which every test leaves as it was."""
    page.open(page.path, 1280, READY)
    return page


def lines(page):
    return page.evaluate("document.getElementById('curve-plot').data.map("
                         "line => [line.name, line.y, line.line.color])")


def rows(page):
    return page.evaluate("[...document.querySelectorAll('#runs tbody tr')].map("
                         "row => row.cells[0].textContent)")


def test_no_button_sends_data_anywhere(wide):
    buttons = wide.evaluate("[...document.querySelectorAll('.modebar-btn')].map("
                            "button => button.dataset.title || button.ariaLabel)")
    assert len(buttons) > 6 and not any(re.search("(?i)cloud|share|edit", str(text))
                                        for text in buttons), buttons


def test_hovering_over_a_point_says_what_it_is(wide):
    point = "document.querySelectorAll('#curve-plot .scatterlayer .trace')[2]" \
            ".querySelectorAll('.points path')[1]"
    wide.mouse("Moved", *wide.middle(point))
    wide.wait_for("document.querySelector('#curve-plot .hovertext')")
    text = wide.evaluate("document.querySelector('#curve-plot .hovertext').textContent")
    assert "multiplier=1,seed=0" in text and "step 20: 0.6" in text


def test_dragging_zooms_and_a_double_click_shows_all_again(wide):
    x, y = wide.middle("document.querySelector('#curve-plot .nsewdrag')")
    width = "(([low, high]) => high - low)(document.getElementById('curve-plot').layout.{}.range)"
    whole = [wide.evaluate(width.format(axis)) for axis in ("xaxis", "yaxis")]
    wide.mouse("Moved", x - 60, y - 30)
    wide.mouse("Pressed", x - 60, y - 30, button="left", clickCount=1)
    for place in (-20, 20, 60):
        wide.mouse("Moved", x + place, y + place / 2, button="left", buttons=1)
    wide.mouse("Released", x + 60, y + 30, button="left", clickCount=1)
    for axis, before in zip(("xaxis", "yaxis"), whole, strict=True):
        wide.wait_for(f"{width.format(axis)} < {before / 2}")
    for count in (1, 2):
        for kind in ("Pressed", "Released"):
            wide.mouse(kind, x, y, button="left", clickCount=count)
    for axis, before in zip(("xaxis", "yaxis"), whole, strict=True):
        wide.wait_for(f"Math.abs({width.format(axis)} - {before}) < {before / 1e6}")


def test_filter_of_the_table_is_that_of_the_figures(wide):
    assert len(rows(wide)) == 4
    assert [name for name, _, _ in lines(wide)] == [
        "multiplier=0.01 (n = 2)", "multiplier=0.01 (n = 2)", "multiplier=1 (n = 1)",
        "multiplier=warmup:10 (n = 1)"]
    wide.click("document.querySelector('input[type=search]')")
    wide.type("warmup")
    wide.wait_for("document.querySelectorAll('#runs tbody tr').length === 1")
    [[name, values, color]] = lines(wide)
    assert (name, values) == ("multiplier=warmup:10 (n = 1)", [0.5, None, 0.7])
    assert wide.evaluate("document.getElementById('scatter-plot').data[0].y") == [0.7]
    assert "n = 1 of 4" in wide.evaluate("document.getElementById('parallel-count').textContent")
    for _ in "warmup":
        wide.press("Backspace", 8)
    wide.wait_for("document.querySelectorAll('#runs tbody tr').length === 4")
    assert lines(wide)[3][2] == color  # the filter changes no colour


def test_header_sorts_the_table_with_the_keyboard(wide):
    header = "document.querySelectorAll('#runs thead th')[3]"  # auc
    wide.evaluate(f"({header}.querySelector('[tabindex]') || {header}).focus()")
    for first in ("multiplier=0.01,seed=0", "multiplier=1,seed=0"):  # ascending and descending
        wide.press("Enter", 13, "\r")
        wide.wait_for(f"document.querySelector('#runs tbody td').textContent === '{first}'")


def test_legend_hides_a_setting(wide):
    wide.click("document.querySelector('#curve-plot .legendtoggle')")
    wide.wait_for("document.querySelectorAll('#curve-plot .scatterlayer .trace').length === 2")
    wide.click("document.querySelector('#curve-plot .legendtoggle')")
    wide.wait_for("document.querySelectorAll('#curve-plot .scatterlayer .trace').length === 4")


def test_smoothing_is_an_exponential_mean_and_axes_become_logarithmic_by_keyboard(wide):
    wide.evaluate("document.getElementById('smoothing').focus()")
    wide.press("End", 35)
    wide.wait_for("document.getElementById('smoothing-value').textContent === '0.95'")
    for (_, found, _), values in zip(lines(wide), VALUES.values(), strict=True):
        for place, value in enumerate(found):
            before = [item for item in values[:place + 1] if not math.isnan(item)]
            weights = [0.95 ** (len(before) - 1 - index) for index in range(len(before))]
            expected = sum(map(math.prod, zip(weights, before, strict=True))) / sum(weights)
            assert value is None if math.isnan(values[place]) else math.isclose(
                value, expected, rel_tol=1e-6)
    wide.evaluate("document.getElementById('curve-log').focus()")
    wide.type(" ")
    wide.wait_for("document.getElementById('curve-plot').layout.yaxis.type === 'log'")
    wide.type(" ")
    wide.evaluate("document.getElementById('smoothing').focus()")
    wide.press("Home", 36)


def test_any_setting_is_shown_against_any_metric(wide):
    for name, value in (("scatter-x", "seed"), ("scatter-y", "loss")):
        wide.evaluate(f"(() => {{ const e = document.getElementById('{name}'); "
                      f"e.value = '{value}'; e.dispatchEvent(new Event('input')); }})()")
    found = wide.evaluate("(({x, y}) => [x, y])(document.getElementById('scatter-plot').data[0])")
    assert found[0] == [0, 1, 0, 0]
    assert found[1] == pytest.approx([1 - values[-1] for values in VALUES.values()])
    assert wide.evaluate("document.querySelectorAll('#parallel-plot .axis-title').length") == 4


def test_statistics_of_the_tables_chosen_are_shown_with_their_steps(wide):
    shares = "document.getElementById('table-plot').data.map(line => line.y[1])"
    assert wide.evaluate(shares) == [0.5] * 4 + [0.75] * 4  # of four runs
    assert wide.evaluate("document.getElementById('table-steps').textContent") == (
        "measured at 2 steps, from 5 to 15")
    wide.evaluate("document.getElementById('table-names').focus()")
    wide.press("End", 35)  # the last table, and no other
    wide.wait_for(f"JSON.stringify({shares}) === '[0.75,0.75,0.75,0.75]'")
    assert wide.evaluate("document.getElementById('table-plot').data[0].name") == (
        "user, multiplier=0.01,seed=0")


def test_equal_lines_and_points_of_several_settings_are_all_seen(wide):
    wide.evaluate("(() => { const e = document.getElementById('table-names'); for (const one of "
                  "e.options) one.selected = true; e.dispatchEvent(new Event('input')); })()")
    found = wide.evaluate("document.getElementById('table-plot').data.map("
                          "line => [line.line.color, line.line.width, line.marker.size])")
    assert len(found) == 8
    for of_table in (found[:4], found[4:]):  # two seeds of the first setting have its colour
        assert of_table[0] == of_table[1]
        for larger, smaller in zip(of_table[1:], of_table[2:], strict=False):
            assert larger[0] != smaller[0]
            assert larger[1] > smaller[1] and larger[2] > smaller[2]
    for name in ("scatter-x", "scatter-y"):
        wide.evaluate(f"(() => {{ const e = document.getElementById('{name}'); "
                      "e.value = 'seed'; e.dispatchEvent(new Event('input')); })()")
    sizes = wide.evaluate("document.getElementById('scatter-plot').data[0].marker.size")
    assert sizes[0] > sizes[2] > sizes[3] == sizes[1]
    assert wide.evaluate("document.getElementById('scatter-plot').layout.xaxis.title.text") == (
        "seed (n = 4 runs)")


def test_page_fits_its_window(wide):
    assert wide.evaluate("document.documentElement.scrollWidth") <= 1280
    wide.open(wide.path, 390, READY)
    assert wide.evaluate("document.documentElement.scrollWidth") <= 390
    # Its numbers and names stay in one piece; the table scrolls.
    assert wide.evaluate("Math.max(...[...document.querySelectorAll('#runs td')].map("
                         "cell => cell.getClientRects()[0].height))") < 50
    assert len(lines(wide)) == 4


def test_without_the_libraries_it_says_how_to_get_them(monkeypatch):
    monkeypatch.setattr(explorer.importlib.util, "find_spec", lambda name: None)
    [part] = explorer.section(runs(), "auc", True)
    assert "[interactive]" in part


def test_axis_keeps_its_width_beside_long_settings(page, tmp_path):
    settings = [f"multiplier=freeze_until:{number}*0.5,then:20:exponential:0.5:10,table:user*=0.5"
                for number in range(6)]
    path = tmp_path / "report.html"
    path.write_text(html_page.page("A sweep", explorer.section([ExploredRun(
        setting, setting, {"multiplier": setting}, {"auc": 0.5}, {"auc": [(1, 0.25), (2, 0.5)]})
        for setting in settings], "auc", True)), "utf-8")
    page.open(path, 1280, READY)
    axis, plot, title, legend = page.evaluate(
        "['.nsewdrag', '.main-svg', '.xtitle', '.legend'].map(part => { const box = document"
        ".querySelector('#curve-plot ' + part).getBoundingClientRect();"
        "return {width: box.width, top: box.top, bottom: box.bottom}; })")
    assert axis["width"] > 0.8 * plot["width"]
    assert title["bottom"] <= legend["top"] and legend["bottom"] <= plot["bottom"]
    page.open(page.path, 1280, READY)
