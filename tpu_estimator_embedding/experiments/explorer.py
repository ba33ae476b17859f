# SPDX-License-Identifier: Apache-2.0
"""The part of a report that one can work in: curves, a table, and settings against metrics.

Plotly draws and DataTables sorts and filters. Both are embedded, so the page stays one file that
needs no network. Measured: Plotly's bundle has 4.8 MB and DataTables', which itables has, 0.9 MB
encoded. Plotly itself has hover, zoom, a legend that toggles, and parallel coordinates that filter
by brushing, and it draws curves as SVG, in which text is text. Vega-Lite's bundle (0.9 MB, from a
package of 84 MB) leaves parallel coordinates and the choice of an axis to our own code; Bokeh's
(2.0 MB with widgets and tables) draws on a canvas and has no parallel coordinates. Plotly and
DataTables have the MIT licence, the others BSD's.
"""

import base64
import dataclasses
import functools
import html
import importlib.resources
import importlib.util
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tpu_estimator_embedding.experiments import html_page, plots
from tpu_estimator_embedding.experiments.event_files import (
    TABLE_STATISTICS,
    Curves,
    steps_measured,
    table_curves,
)

HOW_TO_GET = "pip install 'tpu_estimator_embedding[interactive]'"

_MOST_POINTS = 1_000_000  # of all curves; about 15 MB of the page
_FEWEST_POINTS, _POINTS = 50, 1000  # of one curve
_TABLES_AT_FIRST = 5

_STYLE = """\
.controls { display: flex; flex-wrap: wrap; gap: .5rem 1.5rem; }
.controls label { max-width: 100%; }
.controls select { max-width: 100%; font: inherit; }
.plot { width: 100%; min-height: 420px; overflow-x: auto; }
"""


@dataclasses.dataclass(frozen=True)
class ExploredRun:
    """A line of every figure, and a row of the table.

    Attributes:
        label: names the run.
        group: what it shares colour and entry of the legend with: its setting.
        settings: name -> text of the settings, and what else it can be sorted by.
        finals: metric -> last value.
        curves: metric -> (step, value) pairs.
        note: the error, or what else there is to say.
    """

    label: str
    group: str
    settings: Mapping[str, str]
    finals: Mapping[str, float]
    curves: Curves
    note: str = ""


def can_explore() -> bool:
    """Whether the libraries that a page embeds are installed."""
    return all(importlib.util.find_spec(name) for name in ("plotly", "itables"))


def section(runs: Sequence[ExploredRun], metric: str | None, has_seeds: bool) -> list[str]:
    """Returns the parts of a page; a sentence that says what is missing, without the libraries.

    Args:
        runs: the runs, in the order of the table.
        metric: what is shown first.
        has_seeds: whether runs of a group differ in their seeds, so that n is said of each.
    """
    if not can_explore():
        return [html_page.paragraph("For curves, a table and settings to explore: "
                                    f"{HOW_TO_GET}, and the same command again.")]
    data = _data(runs, metric, has_seeds)
    metrics = _first(data["curves"], metric)
    settings, finals = _names(runs)
    parts = [html_page.heading("Explore"),
             _element("style", _STYLE + _library("itables", "html/dt_bundle.css"))]
    if metrics:
        parts.append(_curves_part(metrics, data["most_points"]))
    if data["tables"]:
        parts.append(_tables_part(data["tables"]))
    if settings and finals:
        parts.append(_settings_part(settings, _first(finals, metric)))
    parts += [_table(runs, settings, _first(finals, metric)),
              f'<script type="application/json" id="explorer-data">{_json(data)}</script>',
              '<script type="text/plain" id="tables-library">'
              f"{base64.b64encode(_library('itables', 'html/dt_bundle.js').encode()).decode()}"
              "</script>",
              _element("script", _library("plotly", "package_data/plotly.min.js")),
              _element("script", _library(__package__, "explorer.js"))]
    return parts


def _data(runs: Sequence[ExploredRun], metric: str | None, has_seeds: bool) -> dict[str, Any]:
    settings, finals = _names(runs)
    count = max(1, sum(len(run.curves) for run in runs))
    points = min(_POINTS, max(_FEWEST_POINTS, _MOST_POINTS // count))
    curves: dict[str, list[list[object]]] = {}
    for index, run in enumerate(runs):
        for name, pairs in run.curves.items():
            steps, values = zip(*plots.smoothed(pairs, points), strict=True)
            curves.setdefault(name, []).append(
                [index, list(steps), [_finite(value) for value in values]])
    styles = plots.styles([run.group for run in runs])
    return {
        "runs": [{"label": html.escape(run.label), "group": html.escape(run.group),
                  "color": styles[run.group].color, "dash": styles[run.group].plotly_dash,
                  "values": _values(run)} for run in runs],
        "curves": curves, "tables": _tables(runs), "has_seeds": has_seeds, "most_points": points,
        "dimensions": [*(name for name in settings if len({
            run.settings.get(name) for run in runs}) > 1), *reversed(_first(finals, metric)[:4])]}


def _tables(runs: Sequence[ExploredRun]) -> dict[str, Any]:
    """Returns statistic -> when it was measured, and for each table its curve and its style."""
    found: dict[str, Curves] = {}
    for run in runs:
        for statistic, tables in table_curves(run.curves).items():
            for table, points in tables.items():
                merged = found.setdefault(statistic, {})
                merged[table] = [*merged.get(table, []), *points]
    styles = plots.styles(sorted({table for tables in found.values() for table in tables}))
    return {statistic: {"measured": steps_measured(tables), "curves": {
        table: {"curve": f"{TABLE_STATISTICS}{table}/{statistic}", "color": styles[table].color,
                "dash": styles[table].plotly_dash} for table in sorted(tables)}}
        for statistic, tables in found.items()}


def _values(run: ExploredRun) -> dict[str, float | str]:
    """Settings and metrics of a run; those that are no finite numbers have no place on an axis."""
    values: dict[str, float | str] = {}
    for name, text in run.settings.items():
        try:
            values[name] = float(text)
        except ValueError:
            values[name] = text
    return values | {name: value for name, value in run.finals.items() if math.isfinite(value)}


def _names(runs: Sequence[ExploredRun]) -> tuple[list[str], list[str]]:
    """The names of settings and of metrics that any run has."""
    settings = list(dict.fromkeys(name for run in runs for name in run.settings))
    return settings, list(dict.fromkeys(name for run in runs for name in run.finals))


def _first(names: Iterable[str], metric: str | None) -> list[str]:
    """Returns names with the metric before all others."""
    return sorted(names, key=lambda name: name != metric)


def _curves_part(metrics: Sequence[str], points: int) -> str:
    return (
        "<h3>Curves</h3>\n"
        f'<p class="controls">{_select("curve-metric", "Curve", metrics)}'
        '<label>Smoothing <input type="range" id="smoothing" min="0" max="0.95" step="0.05" '
        'value="0"> <output id="smoothing-value" for="smoothing">0.00</output></label>'
        '<label><input type="checkbox" id="curve-log"> logarithmic axis</label></p>\n'
        '<div id="curve-plot" class="plot" role="group" aria-label="Curves over steps"></div>\n'
        + html_page.paragraph(
            "Drag to zoom, double-click to see all; click the legend to hide lines. Smoothing is "
            "the weight of an exponential mean of the values before. A curve of more than "
            f"{points:,} points is drawn as that many means of consecutive ones."))


def _tables_part(tables: Mapping[str, Any]) -> str:
    names = sorted({table for statistic in tables.values() for table in statistic["curves"]})
    options = "".join(f"<option{' selected' if place < _TABLES_AT_FIRST else ''}>"
                      f"{html.escape(name)}</option>" for place, name in enumerate(names))
    return (
        "<h3>Statistics of tables</h3>\n"
        f'<p class="controls">{_select("table-statistic", "Statistic", sorted(tables))}'
        f'<label>Tables <select id="table-names" multiple size="{min(6, len(names))}">{options}'
        "</select></label></p>\n"
        '<div id="table-plot" class="plot" role="group" aria-label="Statistics of tables over '
        'steps"></div>\n<p>It was <span id="table-steps"></span>. Choose several tables with Ctrl '
        "or Shift. With one run, colours show tables; with several, colours show runs and line "
        "styles show tables.</p>")


def _settings_part(settings: Sequence[str], metrics: Sequence[str]) -> str:
    return (
        "<h3>Settings against metrics</h3>\n"
        f'<p class="controls">{_select("scatter-x", "Horizontal", [*settings, *metrics])}'
        f'{_select("scatter-y", "Vertical", [*metrics, *settings])}'
        '<label><input type="checkbox" id="scatter-log"> logarithmic horizontal axis</label></p>\n'
        '<div id="scatter-plot" class="plot" role="group" aria-label="Last value of every run">'
        "</div>\n<h3>Parallel coordinates</h3>\n"
        '<div id="parallel-plot" class="plot" tabindex="0" role="group" '
        'aria-label="Settings and metrics of every run"></div>\n'
        '<p><span id="parallel-count"></span> Drag along an axis to see only the runs in between. '
        "The table has the same values.</p>")


def _select(identifier: str, label: str, names: Sequence[str]) -> str:
    options = "".join(f"<option>{html.escape(name)}</option>" for name in names)
    return f'<label>{label} <select id="{identifier}">{options}</select></label>'


def _table(runs: Sequence[ExploredRun], settings: Sequence[str], metrics: Sequence[str]) -> str:
    shown = list(metrics[:6])
    has_notes = any(run.note for run in runs)
    header = ["run", *settings, *shown, *(["note"] if has_notes else [])]
    lines = ["<h3>Runs</h3>", '<div class="wide"><table id="runs"><thead><tr>',
             "".join(f"<th>{html.escape(name)}</th>" for name in header), "</tr></thead><tbody>"]
    for index, run in enumerate(runs):
        cells = [run.label, *(run.settings.get(name, "") for name in settings),
                 *(f"{run.finals[name]:.6g}" if name in run.finals else "" for name in shown),
                 *([run.note] if has_notes else [])]
        lines.append(f'<tr data-run="{index}">' + "".join(
            f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return "\n".join([*lines, "</tbody></table></div>"])


def _finite(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None


def _json(value: object) -> str:
    """JSON that cannot end the script element that it is in."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")


@functools.cache
def _library(package: str, path: str) -> str:
    return importlib.resources.files(package).joinpath(path).read_text("utf-8")


def _element(name: str, content: str) -> str:
    assert f"</{name}" not in content, f"a library ends the element {name} that it is in"
    return f"<{name}>{content}</{name}>"
